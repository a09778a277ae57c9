//! Other names for types, as parameters of schedules, in filters, and from other files.

use crate::support::{Run, run};

fn on(items: &str, body: &str) -> Run {
    let text = format!(
        "model \"gpt2-tiny.pt2\"\ninput {{ batch = 8, seq = 64 }}\n{items}\nschedule main(m: Module) {{\n{body}\n}}\n"
    );
    run("types", &text).compiled()
}

const ITEMS: &str = "type Block = GPT2Block
type Blocks = [Block]
type Mlp = { c_fc: Layer, c_proj: Layer }
type Parts = [Mlp]
schedule each(b: Block) {
    b.checkpoint()
}
schedule all(blocks: Blocks) {
    blocks[1 ..].checkpoint()
}
schedule parts(parts: Parts) {
    parts[0].c_fc.checkpoint()
}";

/// As the type that they name, wherever it is named.
#[test]
fn aliases_are_types() {
    let items = format!("type Layer = Conv1D\n{ITEMS}");
    let h =
        |blocks: &[u32], below: &str| blocks.iter().map(|b| format!("transformer.h.{b}{below}")).collect::<Vec<_>>();
    for (body, paths) in [
        ("each(m.transformer.h.*)", h(&[0, 1, 2], "")),
        ("all(m.transformer.h)", h(&[1, 2], "")),
        ("parts(m.transformer.h.*.mlp)", h(&[0], ".mlp.c_fc")),
        ("m.**.only(Block)[0].checkpoint()", h(&[0], "")),
        ("m.**.only(Mlp).checkpoint()", h(&[0, 1, 2], ".mlp")),
        ("if m.transformer.h[1].mlp.c_fc.is(Layer) { each(m.transformer.h[2]) }", h(&[2], "")),
    ] {
        let run = on(&items, body);
        assert_eq!(run.rendered(), "", "{body}");
        let targets: Vec<&str> = run.checked.steps.iter().map(|step| step.target.path.as_str()).collect();
        assert_eq!(targets, paths, "{body}");
    }
}

/// Used above its declaration, like any type.
#[test]
fn aliases_stand_above_their_use() {
    let run = on(&format!("{ITEMS}\ntype Layer = Conv1D"), "each(m.transformer.h[0])");
    assert_eq!(run.codes(), ["S0110"; 2], "{}", run.rendered());
}
