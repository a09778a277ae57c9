//! Whatever a text and a cursor are, every question has an answer or none, and soon.

use super::{main_of, model, snapshot, snapshot_on};
use slapo_ide::{
    Found, Snapshot, actions, around, completions, definition, folds, hints, hover, references, renamable, rename,
    signature_help, symbols, tokens,
};
use slapo_syntax::Span;
use std::time::{Duration, Instant};

const TEXT: &str = "\
use std.memory.checkpoint_every

model \"gpt2-tiny.pt2\"
input { batch = 8, seq = 64 }
mesh { dp = 2, tp = [2, 2] }
knob ratio = 0.5 in [0.0, 0.5]
type Mlp = { c_fc: Linear, c_proj?: Linear }

## Splits.
schedule split(b: Module, over: axis) {
    b.mlp.c_fc.{weight, bias?}.shard(out, over: over)  # å𝄞
    b.mlp.c_proj.output().sync(all_reduce, over: [over])
}

schedule main(m: GPT2LMHeadModel) {
    let blocks = m.transformer.h[.. floor(len(m.transformer.h) * ratio)]
    for b in blocks {
        if tp > 1 and not b.is(Mlp) {
            try split(b, over: tp[0])
        }
    }
    checkpoint_every(m.**.only(GPT2Block), n: 2)
}
";

/// Asks everything there is to ask.
fn ask(snapshot: &Snapshot, offset: u32) {
    completions(snapshot, offset);
    hover(snapshot, offset);
    signature_help(snapshot, offset);
    definition(snapshot, offset);
    references(snapshot, offset);
    renamable(snapshot, offset);
    let _ = rename(snapshot, offset, "other");
    around(snapshot, offset);
    actions(snapshot, Span::new(snapshot.file, offset, offset));
}

fn ask_whole(snapshot: &Snapshot) {
    symbols(snapshot);
    folds(snapshot);
    hints(snapshot);
    let all = tokens(snapshot);
    assert!(all.windows(2).all(|pair| pair[0].span.end <= pair[1].span.start));
}

/// Numbers that look random and are the same in every run.
fn numbers() -> impl FnMut(usize) -> usize {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    }
}

#[test]
fn every_cursor_in_a_good_text() {
    let found = Found { current: Some(model()), ..Found::default() };
    let mut snapshot = snapshot_on(TEXT, found);
    snapshot.check_layouts();
    ask_whole(&snapshot);
    for (offset, _) in TEXT.char_indices().step_by(3) {
        ask(&snapshot, offset as u32);
    }
    ask(&snapshot, TEXT.len() as u32);
    // Beside a character's start, and behind the end.
    ask(&snapshot, TEXT.find('å').expect("there") as u32 + 1);
    ask(&snapshot, TEXT.len() as u32 + 9);
}

#[test]
fn edited_texts() {
    let pieces =
        ["{", "}", "(", ")", "[", "]", ".", "..", ",", ":", "=", "\"", "\n", "#", "?", "*", "m", " in ", "let ", "é"];
    let mut number = numbers();
    for _ in 0..200 {
        let mut text = TEXT.to_owned();
        let mut offset = 0;
        for _ in 0..1 + number(4) {
            offset = text.floor_char_boundary(number(text.len()));
            let end = text.floor_char_boundary((offset + number(12)).min(text.len())).max(offset);
            text.replace_range(offset..end, pieces[number(pieces.len())]);
        }
        let snapshot = snapshot_on(&text, Found { last: Some(model()), ..Found::default() });
        ask(&snapshot, offset as u32);
        ask_whole(&snapshot);
    }
}

/// Each schedule gives its parameter to the next one twice.
#[test]
fn callers_of_callers_are_not_counted_out() {
    let mut text = main_of("s0(m.transformer.h[0])\n    s0(m.transformer.h[1])");
    for at in 0..40 {
        text +=
            &format!("schedule s{at}(b: Module) {{\n    s{}(b)\n    s{}(b)\n    b.*.freeze()\n}}\n", at + 1, at + 1);
    }
    text += "schedule s40(b: Module) {\n}\n";
    let snapshot = snapshot(&text);
    let start = Instant::now();
    hints(&snapshot);
    completions(&snapshot, text.rfind("b.*").expect("there") as u32 + 2);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}
