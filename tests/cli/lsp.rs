//! `slapoc lsp` as an editor meets it: the real program, over its standard input and output.

use crate::support::{command, root};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const HEAD: &str = "model \"gpt2.pt2\"\ninput { batch = 8, seq = 64 }\nmesh { tp = 2 }\n\n";

/// An editor with one schedule open, beside its model.
struct Editor {
    server: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    folder: TempDir,
    next: i64,
    version: i64,
    /// Notifications that came while an answer was waited for.
    told: Vec<Value>,
}

impl Editor {
    fn new() -> Editor {
        Editor::with(Value::Null)
    }

    /// An editor with its own settings, whose folder is that of the schedule.
    fn with(options: Value) -> Editor {
        let folder = TempDir::new().expect("a folder");
        fs::copy(root().join("examples/gpt2/gpt2-tiny.pt2"), folder.path().join("gpt2.pt2")).expect("copies");
        let mut command = command(&["lsp", "--stdio"]);
        command.env("SLAPO_CACHE", folder.path().join("cache")).env_remove("VIRTUAL_ENV").env_remove("CONDA_PREFIX");
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::null());
        let mut server = command.spawn().expect("slapoc starts");
        let input = server.stdin.take().expect("piped");
        let output = BufReader::new(server.stdout.take().expect("piped"));
        let mut editor = Editor { server, input, output, folder, next: 0, version: 0, told: Vec::new() };
        let capabilities = json!({ "general": { "positionEncodings": ["utf-8"] } });
        let folders = json!([{ "uri": format!("file://{}", editor.folder.path().display()), "name": "folder" }]);
        let answer = editor.ask(
            "initialize",
            json!({ "capabilities": capabilities, "workspaceFolders": folders, "initializationOptions": options }),
        );
        assert_eq!(answer["capabilities"]["positionEncoding"], "utf-8");
        editor.tell("initialized", json!({}));
        editor
    }

    fn uri(&self) -> String {
        format!("file://{}", self.folder.path().join("main.slapo").display())
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.input.write_all(bytes).and_then(|()| self.input.flush()).expect("the server reads");
    }

    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        self.raw(format!("Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes());
    }

    fn tell(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    fn receive(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).expect("reads"), 0, "the server has gone");
            match line.trim().split_once(": ") {
                Some((_, value)) => length = value.parse().expect("a length"),
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.output.read_exact(&mut body).expect("a body");
        serde_json::from_slice(&body).expect("JSON")
    }

    /// The whole answer to a request.
    fn answer(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let message = self.receive();
            if message["id"] == id {
                return message;
            }
            self.told.push(message);
        }
    }

    /// What a request that must succeed gives.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        let answer = self.answer(method, params);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Asks about the place of the marker `|` in a text, which is opened or changed to first.
    fn ask_at(&mut self, method: &str, text: &str) -> Value {
        let at = text.find('|').expect("a marker");
        self.show(&text.replacen('|', "", 1));
        let line = text[..at].matches('\n').count();
        let character = at - text[..at].rfind('\n').map_or(0, |end| end + 1);
        let document = json!({ "uri": self.uri() });
        self.ask(method, json!({ "textDocument": document, "position": { "line": line, "character": character } }))
    }

    /// Opens the schedule or replaces its text.
    fn show(&mut self, text: &str) {
        let uri = self.uri();
        self.version += 1;
        let version = self.version;
        match version {
            1 => self.tell(
                "textDocument/didOpen",
                json!({ "textDocument": { "uri": uri, "languageId": "slapo", "version": 1, "text": text } }),
            ),
            _ => self.change(json!([{ "text": text }])),
        }
    }

    fn change(&mut self, changes: Value) {
        let document = json!({ "uri": self.uri(), "version": self.version });
        self.tell("textDocument/didChange", json!({ "textDocument": document, "contentChanges": changes }));
    }

    /// The parameters of the next notification of that kind.
    fn told_by(&mut self, method: &str) -> Value {
        loop {
            let message = if self.told.is_empty() { self.receive() } else { self.told.remove(0) };
            if message["method"] == method {
                return message["params"].clone();
            }
        }
    }

    /// What is wrong with the text that was shown last.
    fn diagnostics(&mut self) -> Vec<Value> {
        loop {
            let message = if self.told.is_empty() { self.receive() } else { self.told.remove(0) };
            let params = &message["params"];
            if message["method"] == "textDocument/publishDiagnostics" && params["version"] == self.version {
                return params["diagnostics"].as_array().expect("a list").clone();
            }
        }
    }

    /// Of errors.
    fn codes(&mut self) -> Vec<String> {
        let found = self.diagnostics();
        let errors = found.iter().filter(|found| found["severity"] == 1);
        errors.map(|found| found["code"].as_str().expect("a code").to_owned()).collect()
    }

    fn end(mut self) -> Option<i32> {
        self.ask("shutdown", Value::Null);
        self.tell("exit", Value::Null);
        self.server.wait().expect("ends").code()
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn mistakes_come_and_go() {
    let mut editor = Editor::new();
    editor.show(&format!("{HEAD}schedule main(m: GPT2LMHeadModel) {{\n    m.transfomer.wte.freeze()\n}}\n"));
    let found = editor.diagnostics();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["code"], "S0201");
    assert_eq!(found[0]["source"], "slapoc");
    assert_eq!(found[0]["severity"], 1);
    assert_eq!(found[0]["range"]["start"], json!({ "line": 5, "character": 6 }));
    assert!(found[0]["message"].as_str().expect("text").contains("`transformer`"), "{found:?}");
    // The forgotten letter, typed where it belongs.
    editor.version += 1;
    let at = json!({ "line": 5, "character": 13 });
    editor.change(json!([{ "range": { "start": at, "end": at }, "text": "r" }]));
    assert_eq!(editor.codes(), [""; 0]);
    assert_eq!(editor.end(), Some(0));
}

/// Codes with their lines.
type Told = Vec<(String, u64)>;

/// Every mistake there is a schedule for, as the editor shows it and as `slapoc check` does.
#[test]
fn schedules_are_checked_as_on_the_command_line() {
    let mut editor = Editor::new();
    let folder = editor.folder.path().to_owned();
    fs::rename(folder.join("gpt2.pt2"), folder.join("gpt2-tiny.pt2")).expect("renames");
    fs::copy(root().join("tests/data/gpt2-odd.pt2"), folder.join("gpt2-odd.pt2")).expect("copies");
    for entry in fs::read_dir(root().join("tests/data/replacements")).expect("a folder") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, folder.join(path.file_name().expect("a name"))).expect("copies");
    }
    let mut shown: BTreeMap<String, Told> = BTreeMap::new();
    for entry in fs::read_dir(root().join("tests/ui")).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|ending| ending == "slapo") {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            fs::copy(&path, folder.join(&name)).expect("copies");
            shown.insert(name, Told::new());
        }
    }
    let mut checked = shown.clone();
    let run = command(&["check", "--message-format", "json", "-C"]).arg(&folder).arg(".").output().expect("starts");
    for line in String::from_utf8(run.stdout).expect("UTF-8").lines() {
        let record: Value = serde_json::from_str(line).expect("JSON");
        let labels = record["labels"].as_array().map_or(&[][..], Vec::as_slice);
        let primary = labels.iter().find(|label| label["primary"] == true);
        let file = primary.or(labels.first()).and_then(|label| label["file"].as_str());
        if let Some(told) = file.and_then(|file| checked.get_mut(file)) {
            let line = primary.map_or(1, |label| label["line"].as_u64().expect("a line"));
            told.push((record["code"].as_str().expect("a code").to_owned(), line));
        }
    }
    for (name, told) in &mut shown {
        let uri = format!("file://{}/{name}", folder.display());
        let text = fs::read_to_string(folder.join(name)).expect("reads");
        editor.version += 1;
        let opened = json!({ "uri": uri, "languageId": "slapo", "version": editor.version, "text": text });
        editor.tell("textDocument/didOpen", json!({ "textDocument": opened }));
        for found in editor.diagnostics() {
            let line = found["range"]["start"]["line"].as_u64().expect("a line") + 1;
            told.push((found["code"].as_str().expect("a code").to_owned(), line));
        }
    }
    // What an option of the command line causes or turns on, an editor does not see.
    let of_options = |name: &str| {
        let text = fs::read_to_string(folder.join(name)).expect("reads");
        text.contains("# slapoc check") || name.starts_with("S1108")
    };
    let silent = shown.iter().filter(|(_, told)| told.is_empty()).map(|(name, _)| name.as_str());
    let silent: Vec<&str> = silent.filter(|name| !of_options(name)).collect();
    assert!(shown.len() > 50 && silent.is_empty(), "{silent:?}");
    assert_eq!(shown, checked);
    editor.end();
}

#[test]
fn causes_in_the_library_can_be_opened() {
    let mut editor = Editor::new();
    editor.show(&format!(
        "use std.parallel.{{column}}\n{HEAD}schedule main(m: GPT2LMHeadModel) {{\n    let l = m.lm_head\n    \
         column(l, over: tp)\n    column(l, over: tp)\n}}\n"
    ));
    let found = editor.diagnostics();
    let related = found[0]["relatedInformation"].as_array().expect("related places");
    let uri = related.iter().find_map(|one| one["location"]["uri"].as_str().filter(|uri| uri.contains("std-")));
    let path = uri.expect("a place in the library").strip_prefix("file://").expect("a file");
    let text = fs::read_to_string(path).expect("it is there");
    assert_eq!(Some(text.as_str()), slapo_stdlib::module("parallel"));
    // The library itself is no schedule, and nothing is wrong with it.
    let opened = json!({ "uri": uri, "languageId": "slapo", "version": 7, "text": text });
    editor.tell("textDocument/didOpen", json!({ "textDocument": opened }));
    editor.version = 7;
    assert_eq!(editor.codes(), [""; 0]);
    editor.end();
}

#[test]
fn a_model_is_read_again_when_it_has_changed() {
    let mut editor = Editor::new();
    let model = editor.folder.path().join("gpt2.pt2");
    let good = fs::read(&model).expect("reads");
    let text = format!("{HEAD}schedule main(m: GPT2LMHeadModel) {{\n    m.transformer.wte.freeze()\n}}\n");
    editor.show(&text);
    assert_eq!(editor.codes(), [""; 0]);
    fs::remove_file(&model).expect("removes");
    editor.tell("textDocument/didSave", json!({ "textDocument": { "uri": editor.uri() } }));
    assert_eq!(editor.codes(), ["S1010"]);
    // An export that is still at it.
    fs::write(&model, &good[..good.len() / 2]).expect("writes");
    editor.tell("workspace/didChangeWatchedFiles", json!({ "changes": [] }));
    let codes = editor.codes();
    assert!(codes.len() == 1 && codes[0].starts_with("S10"), "{codes:?}");
    fs::write(&model, good).expect("writes");
    editor.tell("workspace/didChangeWatchedFiles", json!({ "changes": [] }));
    assert_eq!(editor.codes(), [""; 0]);
    editor.end();
}

#[test]
fn a_schedule_is_formatted_in_place() {
    let mut editor = Editor::new();
    editor.show(&format!("{HEAD}schedule main(m: GPT2LMHeadModel) {{\n  m.freeze( )\n}}\n"));
    let options = json!({ "textDocument": { "uri": editor.uri() }, "options": { "tabSize": 4, "insertSpaces": true } });
    let edits = editor.ask("textDocument/formatting", options.clone());
    let range = json!({ "start": { "line": 5, "character": 0 }, "end": { "line": 6, "character": 0 } });
    assert_eq!(edits, json!([{ "range": range, "newText": "    m.freeze()\n" }]));
    editor.show("schedule main(");
    assert_eq!(editor.ask("textDocument/formatting", options), Value::Null, "what cannot be parsed stays");
    editor.end();
}

#[test]
fn settings_are_flags_of_check() {
    let mut editor = Editor::new();
    editor.show("use std.parallel.column\nknob world = 2 in [2, 4]\n\nschedule main(m: Module) {\n}\n");
    let shown = |editor: &mut Editor| {
        let line = |found: &Value| format!("{} {}", found["code"].as_str().unwrap_or(""), found["severity"]);
        editor.diagnostics().iter().map(line).collect::<Vec<_>>()
    };
    assert_eq!(shown(&mut editor), ["S1101 2", "S1102 2"]);
    let change = |editor: &mut Editor, check: Value| {
        editor.tell("workspace/didChangeConfiguration", json!({ "settings": { "slapo": { "check": check } } }));
    };
    change(&mut editor, json!({ "deny": ["unused-import"] }));
    assert_eq!(shown(&mut editor), ["S1101 1", "S1102 2"]);
    change(&mut editor, json!({ "allow": ["warnings"], "set": { "world": 3, "unknown": 1 } }));
    assert_eq!(shown(&mut editor), ["S0307 1"]);
    // A model of the settings is looked for in the folder that is open.
    change(&mut editor, json!({ "allow": ["warnings"], "model": "gone.pt2" }));
    let found = editor.diagnostics();
    assert_eq!(found[0]["code"], "S1010", "{found:?}");
    assert!(found[0]["message"].as_str().expect("text").contains("`gone.pt2`"), "{found:?}");
    change(&mut editor, json!({ "allow": ["warnings"], "model": "gpt2.pt2", "batch": 8, "seq": 64 }));
    assert_eq!(shown(&mut editor), [""; 0]);
    let items = editor.ask_at("textDocument/completion", "schedule main(m: Module) {\n    m.|\n}\n");
    assert_eq!(items[0]["label"], "transformer");
    // What is wrong is told, and what was set before holds.
    change(&mut editor, json!({ "wolrd": 8 }));
    let message = editor.told_by("window/showMessage");
    assert!(message["message"].as_str().expect("text").contains("`wolrd`, expected one of `model`"), "{message}");
    editor.show("use std.parallel.column\nschedule main(m: Module) {\n}\n");
    assert_eq!(shown(&mut editor), [""; 0]);
    editor.end();
}

#[test]
fn ranks_that_the_settings_name_fill_the_mesh() {
    let check = json!({ "check": { "world": 8 } });
    let mut editor = Editor::with(check);
    let text = main_of("m.data_parallel(over: tp)").replace("tp = 2", "tp = auto");
    let hover = editor.ask_at("textDocument/hover", &text.replace("over: tp", "over: t|p"));
    assert!(hover["contents"]["value"].as_str().expect("text").contains("8 ranks"), "{hover}");
    editor.end();
    let mut editor = Editor::with(json!({ "check": { "world": 0 } }));
    assert!(editor.told_by("window/showMessage")["message"].as_str().expect("text").contains("at least 1"));
    editor.end();
}

#[test]
fn files_beside_are_used_and_opened() {
    let mut editor = Editor::new();
    let beside = editor.folder.path().join("blocks.slapo");
    fs::write(&beside, "## Half.\nschedule halves(l: Linear, over: axis) {\n    l.weight.shard(out, over: over)\n}\n")
        .expect("writes");
    let items = editor.ask_at("textDocument/completion", "model \"|");
    assert_eq!((items[0]["label"].as_str(), items.as_array().map(Vec::len)), (Some("gpt2.pt2"), Some(1)));
    let items = editor.ask_at("textDocument/completion", &main_of("ro|"));
    let row = items.as_array().expect("items").iter().find(|item| item["label"] == "row").expect("offered");
    assert_eq!(row["additionalTextEdits"][0]["newText"], "use std.parallel.row\n");
    let items = editor.ask_at("textDocument/completion", "use |");
    assert_eq!(items[1]["label"], "blocks", "{items}");
    let text = main_of("hal|ves(m.lm_head, over: tp)").replace("std.parallel.{column}", "blocks.halves");
    let found = editor.ask_at("textDocument/definition", &text);
    assert_eq!(found["uri"], format!("file://{}", beside.display()));
    assert_eq!(found["range"]["start"], json!({ "line": 1, "character": 9 }));
    // It is read again when it is written.
    let uses = text.replacen('|', "", 1);
    editor.show(&uses);
    assert!(!editor.codes().contains(&"S0102".to_owned()));
    fs::write(&beside, "schedule thirds(l: Linear) {\n}\n").expect("writes");
    editor.tell("workspace/didChangeWatchedFiles", json!({ "changes": [] }));
    let codes = editor.codes();
    assert_eq!(codes.len(), 1, "{codes:?}");
    editor.end();
}

#[test]
fn the_models_source_is_opened_where_it_is() {
    let mut editor = Editor::new();
    let text = main_of("m.transformer.h[0].at|tn.checkpoint()");
    assert_eq!(editor.ask_at("textDocument/definition", &text), Value::Null);
    let packages = editor.folder.path().join(".venv/lib/python3.12/site-packages");
    let file = packages.join("transformers/models/gpt2/modeling_gpt2.py");
    fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    fs::write(&file, "").expect("writes");
    let found = editor.ask_at("textDocument/definition", &text);
    assert!(
        found["uri"].as_str().expect("a place").ends_with("/site-packages/transformers/models/gpt2/modeling_gpt2.py")
    );
    assert!(found["range"]["start"]["line"].as_u64().expect("a line") > 100, "{found}");
    editor.end();
}

/// A text whose `main` has one statement.
fn main_of(statement: &str) -> String {
    format!("use std.parallel.{{column}}\n{HEAD}schedule main(m: GPT2LMHeadModel) {{\n    {statement}\n}}\n")
}

#[test]
fn paths_are_completed_from_the_model() {
    let mut editor = Editor::new();
    let items = editor.ask_at("textDocument/completion", &main_of("m.transformer.h[0].|"));
    let items = items.as_array().expect("items");
    let labels: Vec<&str> = items.iter().map(|item| item["label"].as_str().expect("a label")).collect();
    assert_eq!(labels[..4], ["ln_1", "attn", "ln_2", "mlp"]);
    assert_eq!(items[1]["detail"], "GPT2Attention");
    let checkpoint = items.iter().find(|item| item["label"] == "checkpoint").expect("a primitive");
    assert_eq!(checkpoint["textEdit"]["newText"], "checkpoint()");
    // This editor has no snippets: what is given is typed on from.
    let items = editor.ask_at("textDocument/completion", &main_of("col|"));
    assert_eq!(items[0]["textEdit"]["newText"], "m");
    let column = items.as_array().expect("items").iter().find(|item| item["label"] == "column").expect("offered");
    assert_eq!((&column["textEdit"]["newText"], &column["insertTextFormat"]), (&json!("column("), &json!(1)));
    // The model is gone; what was known of it still is.
    fs::remove_file(editor.folder.path().join("gpt2.pt2")).expect("removes");
    let items = editor.ask_at("textDocument/completion", &main_of("m.transformer.|"));
    assert_eq!(items[0]["label"], "wte");
    editor.end();
}

#[test]
fn words_are_explained_under_the_cursor() {
    let mut editor = Editor::new();
    let hover = editor.ask_at("textDocument/hover", &main_of("m.transformer.h.*.ml|p.checkpoint()"));
    assert!(hover["contents"]["value"].as_str().expect("text").contains("3 modules"), "{hover}");
    let at = |character: u32| json!({ "line": 6, "character": character });
    assert_eq!(hover["range"], json!({ "start": at(22), "end": at(25) }));
    let help = editor.ask_at("textDocument/signatureHelp", &main_of("column(m.lm_head, |)"));
    assert_eq!(help["activeParameter"], 1);
    assert_eq!(help["signatures"][0]["parameters"][1]["label"], "over: axis");
    assert_eq!(editor.ask_at("textDocument/hover", "| # nothing"), Value::Null);
    editor.end();
}

#[test]
fn names_are_followed_and_renamed() {
    let mut editor = Editor::new();
    let text = main_of("let blocks = m.transformer.h\n    blo|cks[0].checkpoint()");
    let found = editor.ask_at("textDocument/definition", &text);
    assert_eq!(found["range"]["start"], json!({ "line": 6, "character": 8 }));
    let place = json!({ "textDocument": { "uri": editor.uri() }, "position": { "line": 7, "character": 5 } });
    let with = |more: &str, value: Value| {
        let mut params = place.clone();
        params[more] = value;
        params
    };
    let all = editor.ask("textDocument/references", with("context", json!({ "includeDeclaration": false })));
    assert_eq!(all.as_array().expect("places").len(), 1);
    let renamed = editor.ask("textDocument/rename", with("newName", json!("layers")));
    let edits = renamed["changes"][editor.uri()].as_array().expect("edits");
    assert_eq!(edits.iter().map(|edit| edit["newText"].as_str()).collect::<Vec<_>>(), [Some("layers"); 2]);
    let refused = editor.answer("textDocument/rename", with("newName", json!("1x")));
    assert!(refused["error"]["message"].as_str().expect("a reason").contains("not a name"), "{refused}");
    let found = editor.ask_at("textDocument/definition", &main_of("col|umn(m.lm_head, over: tp)"));
    let path = found["uri"].as_str().and_then(|uri| uri.strip_prefix("file://")).expect("a file");
    let line = found["range"]["start"]["line"].as_u64().expect("a line") as usize;
    let library = fs::read_to_string(path).expect("it is there");
    assert!(library.lines().nth(line).expect("a line").starts_with("schedule column("));
    editor.end();
}

#[test]
fn a_text_is_outlined_coloured_and_annotated() {
    let mut editor = Editor::new();
    editor.show(&main_of("column(m.transformer.h.*.mlp.c_fc, over: tp)"));
    let document = json!({ "textDocument": { "uri": editor.uri() } });
    let symbols = editor.ask("textDocument/documentSymbol", document.clone());
    assert_eq!(symbols[3]["name"], "main");
    let folds = editor.ask("textDocument/foldingRange", document.clone());
    assert_eq!((folds[0]["startLine"].as_u64(), folds[0]["endLine"].as_u64()), (Some(5), Some(7)));
    let tokens = editor.ask("textDocument/semanticTokens/full", document.clone());
    let tokens = tokens["data"].as_array().expect("numbers");
    assert_eq!(tokens.len() % 5, 0);
    assert_eq!(tokens[..3], [0, 0, 3].map(Value::from), "`use` comes first");
    let range = json!({ "start": { "line": 0, "character": 0 }, "end": { "line": 99, "character": 0 } });
    let hints =
        editor.ask("textDocument/inlayHint", json!({ "textDocument": document["textDocument"], "range": range }));
    let texts: Vec<&str> = hints.as_array().expect("hints").iter().filter_map(|hint| hint["label"].as_str()).collect();
    let shapes = "weight [64, 256] → [64, 128], bias [256] → [128]: 97.5 KiB on each rank";
    assert_eq!(texts, ["2 ranks, 584.8 KiB of parameters on each", "3 modules", shapes]);
    editor.end();
}

#[test]
fn a_fix_settles_its_diagnostic() {
    let mut editor = Editor::new();
    editor.show(&main_of("m.data_parallel(over = tp)"));
    let found = editor.diagnostics();
    let context = json!({ "diagnostics": found });
    let uri = editor.uri();
    let params = json!({ "textDocument": { "uri": uri }, "range": found[0]["range"], "context": context });
    let actions = editor.ask("textDocument/codeAction", params);
    assert_eq!(actions[0]["kind"], "quickfix");
    assert_eq!(actions[0]["diagnostics"], json!(found));
    let edit = actions[0]["edit"]["changes"][&uri][0].clone();
    editor.version += 1;
    editor.change(json!([{ "range": edit["range"], "text": edit["newText"] }]));
    assert_eq!(editor.codes(), [""; 0]);
    editor.end();
}

#[test]
fn nothing_a_client_sends_ends_the_server() {
    let mut editor = Editor::new();
    editor.show("schedule main(m: Module) {}\n");
    editor.raw(b"Content-Length: 9\r\n\r\n{nonsense");
    editor.raw(b"what is this\r\n\r\n");
    editor.raw(b"Content-Length: 2\r\n\r\n\xff\xfe");
    editor.tell("textDocument/didChange", json!({ "textDocument": 7 }));
    editor.tell("textDocument/didClose", json!({ "textDocument": { "uri": "file:///nowhere" } }));
    editor.tell("$/unheard", json!([1]));
    let far = json!({ "line": 4_000_000_000_u32, "character": 4_000_000_000_u32 });
    let uri = editor.uri();
    for method in METHODS {
        for params in [
            json!({}),
            json!(3),
            json!({ "textDocument": { "uri": "file:///nowhere" }, "position": far }),
            json!({
                "textDocument": { "uri": uri }, "position": far, "positions": [far, far], "newName": "x",
                "range": { "start": far, "end": { "line": 0, "character": 0 } }, "options": {},
                "context": { "includeDeclaration": true, "diagnostics": [] },
            }),
        ] {
            editor.answer(method, params);
        }
    }
    let unknown = editor.answer("textDocument/unheard", json!({}));
    assert_eq!(unknown["error"]["code"], -32601);
    editor.version += 1;
    editor.change(json!([
        { "range": { "start": far, "end": far }, "text": "# é𝄞" },
        { "range": { "start": { "line": 0, "character": 90 }, "end": { "line": 0, "character": 2 } }, "text": "x" },
    ]));
    editor.diagnostics();
    assert_eq!(editor.end(), Some(0));
}

const METHODS: &[&str] = &[
    "textDocument/codeAction",
    "textDocument/completion",
    "textDocument/definition",
    "textDocument/documentHighlight",
    "textDocument/documentSymbol",
    "textDocument/foldingRange",
    "textDocument/formatting",
    "textDocument/hover",
    "textDocument/inlayHint",
    "textDocument/prepareRename",
    "textDocument/references",
    "textDocument/rename",
    "textDocument/selectionRange",
    "textDocument/semanticTokens/full",
    "textDocument/signatureHelp",
];

#[test]
fn requests_come_after_initialize_and_before_shutdown() {
    let mut editor = Editor::new();
    assert_eq!(editor.answer("initialize", json!({ "capabilities": {} }))["error"]["code"], -32600);
    editor.ask("shutdown", Value::Null);
    assert_eq!(editor.answer("textDocument/hover", json!({}))["error"]["code"], -32600);
}

/// From a keystroke to the diagnostics, in a schedule of 500 lines.
#[test]
fn a_keystroke_is_answered_at_once() {
    const LIMIT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 500 } else { 50 });
    let mut editor = Editor::new();
    let mut text = format!("use std.parallel.{{column, row, vocab}}\n\n{HEAD}schedule main(m: GPT2LMHeadModel) {{\n");
    text += "    for b in m.transformer.h {\n        column(b.attn.c_attn, over: tp, groups: 3)\n        \
             row(b.attn.c_proj, over: tp)\n        column(b.mlp.c_fc, over: tp)\n        row(b.mlp.c_proj, over: tp)\n    \
             }\n    vocab(m.transformer.wte, over: tp)\n    m.lm_head.input().grad().sync(all_reduce, over: tp)\n";
    while text.lines().count() < 499 {
        text += &format!("    m.transformer.h.*.annotate(\"line{}\", 1)\n", text.lines().count());
    }
    text += "}\n";
    editor.show(&text);
    assert_eq!(editor.codes(), [""; 0]);
    let mut times = Vec::new();
    for typed in ["# a", "b", "c", "d", "e"] {
        let at = json!({ "line": 498, "character": 0 });
        editor.version += 1;
        let start = Instant::now();
        editor.change(json!([{ "range": { "start": at, "end": at }, "text": format!("{typed}\n") }]));
        editor.diagnostics();
        times.push(start.elapsed());
    }
    times.sort();
    println!("keystroke to diagnostics, 500 lines: median {:?}, worst {:?}", times[2], times[4]);
    assert!(times[2] < LIMIT, "{times:?}");
    editor.end();
}
