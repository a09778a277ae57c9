//! One mistake gives one error: every statement of right schedules is left out, doubled or changed in one place.

use crate::support::{run, schedules};

/// The pair of an MLP and attention, the embedding and its head in single statements, over two ranks by two.
const BY_HAND: &str = "\
model \"gpt2-tiny.pt2\"
input { batch = 8, seq = 64 }
mesh { dp = 2, tp = 2 }

schedule main(m: GPT2LMHeadModel) {
    for b in m.transformer.h {
        b.attn.c_attn.weight.shard(out, over: tp, groups: 3)
        b.attn.c_attn.bias.shard(out, over: tp, groups: 3)
        b.attn.c_attn.input().grad().sync(all_reduce, over: tp)
        b.attn.c_proj.weight.shard(in, over: tp)
        b.attn.c_proj.output().sync(all_reduce, over: tp)
        b.mlp.c_fc.{weight, bias}.shard(out, over: tp)
        b.mlp.c_fc.input().grad().sync(all_reduce, over: tp)
        b.mlp.c_proj.weight.shard(in, over: tp)
        b.mlp.c_proj.output().sync(all_reduce, over: tp)
    }
    m.transformer.wte.weight.shard(vocab, over: tp, uneven: true)
    m.transformer.wte.output().sync(all_reduce, over: tp)
    m.lm_head.input().grad().sync(all_reduce, over: tp)
    m.data_parallel(over: dp)
}
";

/// A norm on pieces of the sequence.
const SEQUENCE: &str = "\
model \"gpt2-tiny.pt2\"
input { batch = 8, seq = 64 }
mesh { dp = 2, tp = 2 }

schedule main(m: GPT2LMHeadModel) {
    let b = m.transformer.h[0]
    b.ln_2.input().sync(slice(seq), over: tp)
    b.ln_2.output().sync(all_gather, over: tp)
    b.ln_2.input().grad().sync(all_gather, over: tp)
    b.ln_2.output().grad().sync(slice(seq), over: tp)
    b.ln_2.weight.grad().sync(all_reduce, over: tp)
    b.ln_2.bias.grad().sync(all_reduce, over: tp)
    m.data_parallel(over: dp)
}
";

/// All of Megatron's sequence parallelism in single statements.
const SEQUENCES: &str = "\
model \"gpt2-tiny.pt2\"
input { batch = 8, seq = 64 }
mesh { dp = 2, tp = 2 }

schedule main(m: GPT2LMHeadModel) {
    for b in m.transformer.h {
        b.ln_1.weight.grad().sync(all_reduce, over: tp)
        b.ln_1.bias.grad().sync(all_reduce, over: tp)
        b.attn.c_attn.weight.shard(out, over: tp, groups: 3)
        b.attn.c_attn.bias.shard(out, over: tp, groups: 3)
        b.attn.c_attn.input().sync(all_gather(seq), over: tp)
        b.attn.c_attn.input().grad().sync(reduce_scatter(seq), over: tp)
        b.attn.c_proj.weight.shard(in, over: tp)
        b.attn.c_proj.output().sync(reduce_scatter(seq), over: tp)
        b.attn.c_proj.output().grad().sync(all_gather(seq), over: tp)
        b.ln_2.{weight, bias}.grad().sync(all_reduce, over: tp)
        b.mlp.c_fc.{weight, bias}.shard(out, over: tp)
        b.mlp.c_fc.input().sync(all_gather(seq), over: tp)
        b.mlp.c_fc.input().grad().sync(reduce_scatter(seq), over: tp)
        b.mlp.c_proj.weight.shard(in, over: tp)
        b.mlp.c_proj.output().sync(reduce_scatter(seq), over: tp)
        b.mlp.c_proj.output().grad().sync(all_gather(seq), over: tp)
    }
    m.transformer.ln_f.{weight, bias}.grad().sync(all_reduce, over: tp)
    m.transformer.wte.weight.shard(vocab, over: tp, uneven: true)
    m.transformer.wte.output().sync(reduce_scatter(seq), over: tp)
    m.transformer.wte.output().grad().sync(all_gather(seq), over: tp)
    m.transformer.wpe.weight.grad().sync(all_reduce, over: tp)
    m.lm_head.input().sync(all_gather(seq), over: tp)
    m.lm_head.input().grad().sync(reduce_scatter(seq), over: tp)
    m.data_parallel(over: dp)
}
";

/// What is written in place of what, in one statement.
const SLIPS: [(&str, &str); 15] = [
    ("all_reduce", "all_gather"),
    ("all_reduce", "slice(seq)"),
    ("all_reduce", "reduce_scatter(seq)"),
    ("all_gather", "all_reduce"),
    ("reduce_scatter(seq)", "all_reduce"),
    ("reduce_scatter(seq)", "reduce_scatter(batch)"),
    ("slice(seq)", "all_reduce"),
    ("groups: 3", "groups: 2"),
    (", groups: 3", ""),
    ("{weight, bias}", "weight"),
    ("{weight, bias}", "bias"),
    ("shard(out", "shard(in"),
    ("shard(in", "shard(out"),
    (".grad()", ""),
    ("over: tp", "over: dp"),
];

/// The text with every single slip, and what that is.
fn slips(text: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let words = [".shard(", ".sync(", "column(", "row(", "vocab(", "norm(", "gather(", "ulysses_"];
    let is_step = |line: &str| !line.contains("##") && words.iter().any(|word| line.trim().contains(word));
    let has_dp = text.contains("dp = 2");
    let mut found = Vec::new();
    for at in (0..lines.len()).filter(|at| is_step(lines[*at])) {
        let with = |new: &[&str]| [&lines[..at], new, &lines[at + 1..]].concat().join("\n") + "\n";
        let line = lines[at].trim();
        found.push((format!("without `{line}`"), with(&[])));
        found.push((format!("twice `{line}`"), with(&[lines[at], lines[at]])));
        for (from, to) in SLIPS.iter().filter(|(from, to)| line.contains(from) && (has_dp || !to.contains("dp"))) {
            let slip = lines[at].replacen(from, to, 1);
            found.push((format!("`{}`", slip.trim()), with(&[&slip])));
        }
    }
    found
}

#[test]
fn one_slip_is_one_error() {
    let mut texts: Vec<(String, String)> =
        ["examples/gpt2", "examples/llama"].into_iter().flat_map(schedules).collect();
    let by_hand = [("by-hand", BY_HAND), ("sequence", SEQUENCE), ("sequences", SEQUENCES)];
    texts.extend(by_hand.map(|(name, text)| (name.into(), text.into())));
    let (mut refused, mut wrong) = (0, String::new());
    for (name, text) in &texts {
        for (slip, broken) in slips(text) {
            let run = run(name, &broken).compiled();
            match run.diagnostics.len() {
                1 => refused += 1,
                count => wrong += &format!("{count} errors: {name}, {slip}\n{}\n", run.rendered()),
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(refused > 100, "only {refused} slips");
}
