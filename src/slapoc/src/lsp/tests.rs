//! The server on messages that are all there already, so that their order is certain.

use super::*;
use serde_json::json;

/// What the server says to these messages.
fn said(messages: &[Value]) -> Vec<Value> {
    let (sender, receiver) = sync_channel(messages.len() + 1);
    let start = json!({ "id": 0, "method": "initialize", "params": { "capabilities": {} } });
    for message in std::iter::once(&start).chain(messages) {
        let message = serde_json::from_value(message.clone()).expect("a message");
        sender.send(Incoming::Message(message)).expect("there is room");
    }
    drop(sender);
    let mut server = Server::new(Vec::new());
    server.serve(&receiver).expect("nothing is written to a file");
    let text = String::from_utf8(server.output).expect("UTF-8");
    let bodies = text.split("Content-Length: ").filter_map(|message| message.split_once("\r\n\r\n"));
    bodies.map(|(_, body)| serde_json::from_str(body).expect("JSON")).collect()
}

fn open(text: &str) -> Value {
    let document = json!({ "uri": "untitled:1", "languageId": "slapo", "version": 1, "text": text });
    json!({ "method": "textDocument/didOpen", "params": { "textDocument": document } })
}

#[test]
fn only_the_last_of_many_keystrokes_is_checked() {
    let change = |version: i32, text: &str| {
        let document = json!({ "uri": "untitled:1", "version": version });
        let params = json!({ "textDocument": document, "contentChanges": [{ "text": text }] });
        json!({ "method": "textDocument/didChange", "params": params })
    };
    let messages = [open("s"), change(2, "sch"), change(3, "schedule main(m: Module) {}\n")];
    let published: Vec<Value> = said(&messages).into_iter().filter(|one| one["method"].is_string()).collect();
    assert_eq!(published.len(), 1, "{published:?}");
    assert_eq!(published[0]["params"], json!({ "uri": "untitled:1", "version": 3, "diagnostics": [] }));
}

#[test]
fn a_question_taken_back_is_not_answered() {
    let hover = |id: i32| {
        let place = json!({ "textDocument": { "uri": "untitled:1" }, "position": { "line": 0, "character": 15 } });
        json!({ "id": id, "method": "textDocument/hover", "params": place })
    };
    let cancel = json!({ "method": "$/cancelRequest", "params": { "id": 1 } });
    let answers = said(&[open("schedule main(m: Module) {}\n"), hover(1), hover(2), cancel]);
    let answer = |id: i32| answers.iter().find(|one| one["id"] == id).expect("answered");
    assert_eq!(answer(1)["error"]["code"], ErrorCode::RequestCanceled as i32);
    assert!(answer(2)["result"]["contents"]["value"].as_str().expect("text").contains("m: Module"), "{answers:?}");
}

#[test]
fn a_panic_is_an_answer() {
    let refused = guarded(|| panic!("meant to")).expect_err("an error");
    assert_eq!(refused.code as i32, ErrorCode::InternalError as i32);
}

#[test]
fn nothing_is_done_before_initialize() {
    let mut server = Server::new(Vec::new());
    let refused = server.request("textDocument/hover", json!({})).expect_err("an error");
    assert_eq!(refused.code as i32, ErrorCode::ServerNotInitialized as i32);
}
