"""How long an editor waits for `slapoc lsp`: a schedule of 500 lines, typed into.

    python tests/bench/keystrokes.py target/release/slapoc gpt2.pt2

Prints a line of JSON for each question: the median and the longest time in seconds, and the mean processor time of the
server. `cargo xtask bench editor` makes the model and starts this.
"""

import json
import os
import statistics
import subprocess
import sys
import time

LINES = 500
KEYSTROKES = 40

STATEMENTS = """\
    m.data_parallel(over: dp)
    for b in m.transformer.h {
        column(b.attn.c_attn, over: tp, groups: 3)
        row(b.attn.c_proj, over: tp)
        column(b.mlp.c_fc, over: tp)
        row(b.mlp.c_proj, over: tp)
    }
    vocab(m.transformer.wte, over: tp)
    m.lm_head.input().grad().sync(all_reduce, over: tp)
    m.transformer.h[.. len(m.transformer.h) / 2].checkpoint()
"""


def schedule(model):
    text = "use std.parallel.{column, row, vocab}\n\n"
    text += f'model "{os.path.abspath(model)}"\ninput {{ batch = 8, seq = 128 }}\nmesh {{ dp = 2, tp = 4 }}\n\n'
    text += "schedule main(m: GPT2LMHeadModel) {\n" + STATEMENTS
    while text.count("\n") < LINES - 1:
        text += f'    m.transformer.h.*.annotate("line{text.count(chr(10))}", 1)\n'
    return text + "}\n"


class Editor:
    """A client with one schedule open."""

    def __init__(self, slapoc, text):
        self.server = subprocess.Popen([slapoc, "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.document = {"uri": "file:///nowhere/main.slapo", "version": 1}
        self.questions = 0
        self.ask("initialize", {"capabilities": {}})
        self.tell("initialized", {})
        self.tell("textDocument/didOpen", {"textDocument": {**self.document, "languageId": "slapo", "text": text}})

    def send(self, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.server.stdin.flush()

    def receive(self):
        length = 0
        while header := self.server.stdout.readline().strip():
            length = int(header.split(b":")[1])
        return json.loads(self.server.stdout.read(length))

    def tell(self, method, params):
        self.send({"method": method, "params": params})

    def ask(self, method, params):
        self.questions += 1
        self.send({"id": self.questions, "method": method, "params": params})
        while (message := self.receive()).get("id") != self.questions:
            pass
        return message["result"]

    def type(self, text):
        """Puts a text before the last line."""
        self.document["version"] += 1
        at = {"line": LINES - 1, "character": 0}
        change = {"range": {"start": at, "end": at}, "text": text}
        self.tell("textDocument/didChange", {"textDocument": self.document, "contentChanges": [change]})

    def diagnostics(self):
        while True:
            message = self.receive()
            params = message.get("params", {})
            is_published = message.get("method") == "textDocument/publishDiagnostics"
            if is_published and params["version"] == self.document["version"]:
                return params["diagnostics"]

    def processor(self):
        """Seconds, also of threads that have ended."""
        with open(f"/proc/{self.server.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(editor, what, keystroke):
    times = []
    before = editor.processor()
    for _ in range(KEYSTROKES):
        began = time.perf_counter()
        keystroke()
        times.append(time.perf_counter() - began)
    processor = (editor.processor() - before) / KEYSTROKES
    print(json.dumps({"what": what, "median": statistics.median(times), "worst": max(times), "processor": processor}))


def main():
    slapoc, model = sys.argv[1:]
    editor = Editor(slapoc, schedule(model))
    found = editor.diagnostics()
    assert found == [], found

    def diagnostics():
        editor.type("# typed\n")
        assert editor.diagnostics() == []

    def completion():
        editor.type("    m.transformer.h[0].\n")
        place = {"line": LINES - 1, "character": len("    m.transformer.h[0].")}
        items = editor.ask("textDocument/completion", {"textDocument": editor.document, "position": place})
        assert items[0]["label"] == "ln_1", items[0]

    measure(editor, "diagnostics", diagnostics)
    measure(editor, "completion", completion)
    editor.server.kill()


main()
