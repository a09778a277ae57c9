//! `slapoc lsp` as an editor meets it: the real program, over its standard input and output.

use crate::support::{command, root};
use serde_json::{Value, json};
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
        let folder = TempDir::new().expect("a folder");
        fs::copy(root().join("examples/gpt2/gpt2-tiny.pt2"), folder.path().join("gpt2.pt2")).expect("copies");
        let mut command = command(&["lsp", "--stdio"]);
        command.env("SLAPO_CACHE", folder.path().join("cache"));
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::null());
        let mut server = command.spawn().expect("slapoc starts");
        let input = server.stdin.take().expect("piped");
        let output = BufReader::new(server.stdout.take().expect("piped"));
        let mut editor = Editor { server, input, output, folder, next: 0, version: 0, told: Vec::new() };
        let answer =
            editor.ask("initialize", json!({ "capabilities": { "general": { "positionEncodings": ["utf-8"] } } }));
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

    fn codes(&mut self) -> Vec<String> {
        self.diagnostics().iter().map(|found| found["code"].as_str().expect("a code").to_owned()).collect()
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

#[test]
fn a_schedule_is_checked_as_on_the_command_line() {
    let mut editor = Editor::new();
    let text = "use std.parallel.{column}\n\nmodel \"gpt2.pt2\"\ninput { batch = 8, seq = 64 }\nmesh { tp = 2 }\n\n\
                schedule main(m: GPT2LMHeadModel) {\n    column(m.transformer.h.*.mlp.c_fc, over: tp)\n}\n";
    editor.show(text);
    let found = editor.diagnostics();
    let path = editor.folder.path().join("main.slapo");
    fs::write(&path, text).expect("writes");
    let run = command(&["check", "--message-format", "json"]).arg(&path).output().expect("slapoc starts");
    let lines = String::from_utf8(run.stdout).expect("UTF-8");
    let records = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let checked: Vec<Value> = records.filter(|record| record["type"] == "diagnostic").collect();
    let codes = |found: &[Value]| found.iter().map(|one| one["code"].clone()).collect::<Vec<_>>();
    assert_eq!(codes(&found), codes(&checked));
    assert_eq!(found[0]["code"], "S0602");
    assert!(found.iter().all(|one| one["range"]["start"]["line"] == 7), "{found:?}");
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
            json!({ "textDocument": { "uri": uri }, "position": far, "newName": "x", "context": {} }),
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

const METHODS: &[&str] = &["textDocument/formatting"];

#[test]
fn requests_come_after_initialize_and_before_shutdown() {
    let mut editor = Editor::new();
    assert_eq!(editor.answer("initialize", json!({ "capabilities": {} }))["error"]["code"], -32601);
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
