//! Declarations, uses and new names.

use super::{at, main_of};
use slapo_ide::{Definition, around, definition, references, renamable, rename};

fn defined(text: &str) -> Option<(String, u32)> {
    let (snapshot, offset) = at(text);
    let Definition::Schedule(span) = definition(&snapshot, offset)? else { return None };
    let at = snapshot.files.line_column(span.file, span.start);
    Some((format!("{} {}", snapshot.files.name(span.file), snapshot.files.slice(span)), at.line))
}

/// The text after a renaming.
fn renamed(text: &str, new: &str) -> Result<String, String> {
    let (snapshot, offset) = at(text);
    let mut out = snapshot.text().to_owned();
    for edit in rename(&snapshot, offset, new)?.iter().rev() {
        out.replace_range(edit.span.range(), &edit.replacement);
    }
    Ok(out)
}

#[test]
fn names_lead_to_their_declaration() {
    let line = |text: &str| defined(text).map(|(name, line)| format!("{name}:{line}"));
    assert_eq!(line(&main_of("let b = m\n    |b.freeze()")).as_deref(), Some("main.slapo b:8"));
    assert_eq!(line(&main_of("|m.freeze()")).as_deref(), Some("main.slapo m:7"));
    assert_eq!(line(&main_of("m.data_parallel(over: d|p)")).as_deref(), Some("main.slapo dp:5"));
    assert_eq!(
        line(&main_of("for b in m.transformer.h {\n        |b.freeze()\n    }")).as_deref(),
        Some("main.slapo b:8")
    );
    let helper = format!("{}\nschedule help(b: Module, n: int) {{\n}}\n", main_of("help(m, |n: 2)"));
    assert_eq!(line(&helper).as_deref(), Some("main.slapo n:11"));
    assert_eq!(line(&main_of("m.trans|former.freeze()")), None, "that is the model's");
    let pattern = format!("pattern twice(x) = |x * 2\n\n{}", main_of(""));
    assert_eq!(line(&pattern).as_deref(), Some("main.slapo x:1"));
}

#[test]
fn names_of_the_model_lead_to_its_source() {
    let source = |text: &str| {
        let (snapshot, offset) = at(text);
        match definition(&snapshot, offset)? {
            Definition::Model(line) => Some((line.file.rsplit('/').next()?.to_owned(), line.text)),
            Definition::Schedule(_) => None,
        }
    };
    let (file, text) = source(&main_of("m.transformer.h[0].att|n.freeze()")).expect("found");
    assert_eq!(file, "modeling_gpt2.py");
    assert!(text.contains("self.c_attn(hidden_states)"), "{text}");
    let (_, text) = source(&main_of("m.transformer.h.*.at|tn.freeze()")).expect("found");
    assert!(text.contains("self.c_attn(hidden_states)"), "of several modules the first: {text}");
    let (_, text) = source(&main_of("m.transformer.h[0].ml|p.freeze()")).expect("found");
    assert!(text.contains("self.dropout(hidden_states)"), "what is in the file of its class: {text}");
    assert_eq!(source(&main_of("m.transformer.|h.freeze()")), None, "a container runs nothing");
    let (file, text) = source(&main_of("m.transformer.h.*.attn.c_attn.we|ight.freeze()")).expect("found");
    assert_eq!((file.as_str(), text.contains("addmm")), ("pytorch_utils.py", true), "{text}");
}

#[test]
fn other_files_are_followed() {
    let text =
        |statement: &str| main_of(statement).replace("use std", "use own.blocks.{halves, gelu_new, Mlp}\nuse std");
    let found = |text: &str| defined(text).map(|(name, _)| name);
    assert_eq!(found(&text("hal|ves(m.lm_head, over: tp)")).as_deref(), Some("/own/blocks.slapo halves"));
    assert_eq!(found(&text("m.find(gelu|_new)")).as_deref(), Some("/own/blocks.slapo gelu_new"));
    assert_eq!(found(&text("m.**.only(M|lp).freeze()")).as_deref(), Some("/own/blocks.slapo Mlp"));
    assert_eq!(found(&text("").replace("own.bl", "own.bl|")).as_deref(), Some("/own/blocks.slapo "));
    assert_eq!(found(&text("").replace("halves", "hal|ves")).as_deref(), Some("/own/blocks.slapo halves"));
    let refused = renamed(&text("hal|ves(m.lm_head, over: tp)"), "thirds").expect_err("refused");
    assert!(refused.contains("another file"), "{refused}");
}

#[test]
fn library_schedules_are_found_in_their_module() {
    let (name, line) = defined(&main_of("col|umn(m.lm_head, over: tp)")).expect("found");
    assert_eq!(name, "std/parallel.slapo column");
    let text = slapo_stdlib::module("parallel").expect("there");
    assert!(text.lines().nth(line as usize - 1).expect("a line").starts_with("schedule column("));
    assert_eq!(defined(&main_of("").replace("std.parallel", "std.para|llel")).expect("found").1, 1);
}

#[test]
fn uses_are_found_by_meaning() {
    let text = main_of(
        "for b in m.transformer.h {\n        |b.freeze()\n    }\n    for b in m.transformer.h {\n        b.b.b()\n    }",
    );
    let (snapshot, offset) = at(&text);
    let lines =
        references(&snapshot, offset).into_iter().map(|span| snapshot.files.line_column(span.file, span.start).line);
    assert_eq!(lines.collect::<Vec<_>>(), [8, 9]);
}

#[test]
fn renaming_changes_every_use_and_nothing_else() {
    let before =
        format!("{}\nschedule help(blo|ck: Module) {{\n    block.block.freeze()\n}}\n", main_of("help(block: m)"));
    let after = renamed(&before, "layer").expect("renamed");
    assert!(after.contains("help(layer: m)") && after.contains("help(layer: Module)"), "{after}");
    assert!(after.contains("layer.block.freeze()"), "{after}");
    let schedule = format!("{}\nschedule help(b: Module) {{\n}}\n", main_of("he|lp(m)"));
    let after = renamed(&schedule, "assist").expect("renamed");
    assert!(after.contains("    assist(m)") && after.contains("schedule assist("), "{after}");
}

#[test]
fn names_that_cannot_be_are_refused() {
    let refused = |text: &str, new: &str| renamed(text, new).expect_err("refused");
    let text = main_of("let blo|cks = m.transformer.h");
    assert!(refused(&text, "2b").contains("not a name"));
    assert!(refused(&text, "for").contains("word of the language"));
    assert!(refused(&text, "vocab").contains("word of the language"));
    assert!(refused(&text, "m").contains("line 7"));
    assert!(refused(&main_of("col|umn(m.lm_head, over: tp)"), "c").contains("another file"));
    assert!(refused(&main_of("").replace("main", "ma|in"), "start").contains("starts at `main`"));
    assert!(refused(&main_of("m.trans|former.freeze()"), "x").contains("this file"));
    let (snapshot, offset) = at(&text);
    assert_eq!(snapshot.files.slice(renamable(&snapshot, offset).expect("renamable")), "blocks");
}

#[test]
fn a_selection_grows_node_by_node() {
    let (snapshot, offset) = at(&main_of("m.transformer.w|te.freeze()"));
    let texts: Vec<&str> = around(&snapshot, offset).into_iter().map(|span| snapshot.files.slice(span)).collect();
    assert_eq!(texts[..3], ["wte", "m.transformer.wte", "m.transformer.wte.freeze()"]);
}
