//! Messages on standard input and output: JSON behind a header with its length.
//!
//! Types of messages are lsp-server's; its reader is not used, because it ends at the first message that is not JSON.

use lsp_server::{ErrorCode, Message};
use serde_json::{Value, json};
use std::io::{self, BufRead, Read, Write};

/// Longer messages are skipped.
const LONGEST: u64 = 64 << 20;

/// What came in.
pub enum Incoming {
    Message(Message),
    /// What is no message, with the answer to it, if anybody waits for one.
    Garbled(Option<Value>),
}

/// The next message; `None` at the end of the input. Lines that are no header are skipped.
pub fn read(input: &mut impl BufRead) -> io::Result<Option<Incoming>> {
    let Some(length) = length(input)? else { return Ok(None) };
    let mut body = Vec::new();
    let taken = input.take(length.min(LONGEST)).read_to_end(&mut body)? as u64;
    if length > LONGEST {
        io::copy(&mut input.take(length - LONGEST), &mut io::sink())?;
        return Ok(Some(Incoming::Garbled(Some(refusal(&Value::Null, ErrorCode::InvalidRequest, "too long")))));
    }
    if taken < length {
        return Ok(None);
    }
    Ok(Some(decoded(&body)))
}

pub fn write(output: &mut impl Write, message: &Message) -> io::Result<()> {
    message.write(output)
}

/// Writes an answer that lsp-server has no type for: one to nobody.
pub fn write_value(output: &mut impl Write, value: &Value) -> io::Result<()> {
    let text = value.to_string();
    write!(output, "Content-Length: {}\r\n\r\n{text}", text.len())?;
    output.flush()
}

/// The length of the body that follows.
fn length(input: &mut impl BufRead) -> io::Result<Option<u64>> {
    let mut length = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&line);
        match (text.trim(), length) {
            ("", Some(length)) => return Ok(Some(length)),
            (header, _) => {
                // What is garbled may end without a line end, right before the next header.
                let value =
                    header.to_ascii_lowercase().rsplit_once("content-length:").map(|(_, value)| value.trim().parse());
                length = value.and_then(Result::ok).or(length);
            }
        }
    }
}

fn decoded(body: &[u8]) -> Incoming {
    let value: Value = match serde_json::from_slice(body) {
        Ok(value) => value,
        Err(error) => {
            return Incoming::Garbled(Some(refusal(&Value::Null, ErrorCode::ParseError, &error.to_string())));
        }
    };
    let id = value.get("id").cloned();
    match serde_json::from_value(value) {
        Ok(message) => Incoming::Message(message),
        Err(_) => Incoming::Garbled(id.map(|id| refusal(&id, ErrorCode::InvalidRequest, "not a message"))),
    }
}

fn refusal(id: &Value, code: ErrorCode, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code as i32, "message": message } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(input: &str) -> Vec<&'static str> {
        let mut input = input.as_bytes();
        let mut found = Vec::new();
        while let Some(incoming) = read(&mut input).expect("reads") {
            found.push(match incoming {
                Incoming::Message(Message::Request(_)) => "request",
                Incoming::Message(_) => "message",
                Incoming::Garbled(Some(_)) => "refused",
                Incoming::Garbled(None) => "ignored",
            });
        }
        found
    }

    #[test]
    fn what_is_garbled_does_not_take_the_next_message_with_it() {
        let framed = |body: &str| format!("Content-Length: {}\r\n\r\n{body}", body.len());
        let good = framed(r#"{"jsonrpc":"2.0","id":1,"method":"shutdown"}"#);
        assert_eq!(all(&format!("{}{good}", framed("{nonsense"))), ["refused", "request"]);
        assert_eq!(all(&format!("{}{good}", framed("[1, 2]"))), ["ignored", "request"]);
        assert_eq!(all(&format!("{}{good}", framed(r#"{"id": 3.5, "method": 7}"#))), ["refused", "request"]);
        assert_eq!(all(&format!("no header at all\r\n\r\n{good}")), ["request"]);
        assert_eq!(all(&format!("Content-Length: x\r\n\r\n{{}}{good}{good}")), ["request", "request"]);
        assert_eq!(all("Content-Length: 90\r\n\r\n{"), [""; 0]);
    }
}
