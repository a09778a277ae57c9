//! Every schedule in the documentation does what its fence says, and generated parts are current.

mod support;

use std::path::PathBuf;
use support::{Expected, blocks, root};

/// The pages, with the least number of blocks that must be found there.
fn pages() -> Vec<(PathBuf, usize)> {
    let named = [
        ("README.md", 1),
        ("docs/language.md", 45),
        ("docs/from-slapo.md", 10),
        ("docs/from-megatron.md", 12),
        ("docs/messages.md", 0),
    ];
    let mut pages: Vec<(PathBuf, usize)> = named.iter().map(|(path, least)| (root().join(path), *least)).collect();
    let entries = std::fs::read_dir(root().join("docs")).expect("the documentation");
    for path in entries.map(|entry| entry.expect("readable").path()) {
        let is_page = path.extension().is_some_and(|ending| ending == "md");
        if is_page && pages.iter().all(|(known, _)| known.file_name() != path.file_name()) {
            pages.push((path, 0));
        }
    }
    pages
}

#[test]
fn examples_do_what_they_say() {
    let mut wrong = String::new();
    for (path, least) in pages() {
        let page = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let blocks = blocks(&page).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        if blocks.len() < least {
            wrong += &format!("only {} blocks in {name}\n\n", blocks.len());
        }
        for block in blocks {
            if let Some(fault) = block.fault() {
                wrong += &format!("{name}:{}: {fault}\n\n", block.line);
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn generated_parts_are_current() {
    let mut text = String::new();
    for page in slapo_docs::PAGES {
        let page = root().join("docs").join(page);
        let now = std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        let written = slapo_docs::filled(&now).unwrap_or_else(|fault| panic!("{}: {fault}", page.display()));
        assert!(now == written, "{} is old: run `cargo xtask codegen`", page.display());
        text += &now;
    }
    let missing = slapo_docs::names().filter(|name| !text.contains(&format!("<!-- generated: {name} -->")));
    assert_eq!(missing.collect::<Vec<_>>(), [""; 0], "generated for nobody");
}

/// What the one block of a page comes to: nothing wrong, or the fault in words.
fn fault(page: &str) -> String {
    match blocks(page) {
        Err(fault) => fault,
        Ok(blocks) => blocks[0].fault().unwrap_or_default(),
    }
}

/// A harness that finds nothing would let everything pass: each kind of wrong block is found.
#[test]
fn wrong_blocks_are_found() {
    for (page, said) in [
        ("```slapo\nm.freeze(\n```\n", "S0006"),
        ("```slapo\nschedule main(m: Module) {\n```\n", "S0008"),
        ("```slapo\nlet  a = 1\n```\n", "as `slapoc fmt` writes it"),
        ("```slapo,ok\nm.transformer.g.freeze()\n```\n", "S0201"),
        ("```slapo,ok\ncolumn(m.transformer.h[0].mlp.c_fc, over: tp)\n```\n", "S0602"),
        ("```slapo,ok\nmodel \"gpt2-tiny.pt2\"\nmesh { tp = 2 }\n\nschedule main(m: Module) {}\n```\n", "S1105"),
        ("```slapo,S0602\nm.accumulate(steps: 2)\n```\n", "gives [], not S0602"),
        ("```slapo,S0602\nm.accumulate(steps: 3)\n```\n", "not S0602"),
        ("```slapo,ok,bert-tiny.pt2\nm.transformer.wte.freeze()\n```\n", "S0201"),
        ("```slapo,fine\nm.accumulate(steps: 2)\n```\n", "`fine` says nothing"),
    ] {
        assert!(fault(page).contains(said), "{page} comes to `{}`", fault(page));
    }
    for right in [
        "```slapo\nm.anything.at(all)\n```\n",
        "```slapo,ok\nm.accumulate(steps: 2)\n```\n",
        "```slapo,ok,bert-tiny.pt2\ncolumn_gathered(m.cls.predictions.transform.dense, over: tp)\n```\n",
        "```slapo,S0402\nm.accumulate(steps: 3)\n```\n",
        "```python\n```slapo\n```\n```slapo\nm.f()\n```\n",
    ] {
        assert_eq!(fault(right), "", "{right}");
    }
    assert_eq!(
        blocks("```slapo,S0602\n```\n").expect("is one")[0].expected,
        Expected::Fails(slapo_syntax::Code::PartialSum)
    );
}
