// What a user is told when there is no language server.

'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { test } = require('node:test');
const { probe } = require('../src/server');

/** A program that ends as told. */
function program(status, mode = 0o755) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'slapo-'));
  const file = path.join(folder, 'slapoc');
  fs.writeFileSync(file, `#!/bin/sh\ntest "$1 $2" = "lsp --help" || exit 9\nexit ${status}\n`, { mode });
  return file;
}

test('a server is taken without a word', async () => {
  assert.strictEqual(await probe(program(0)), undefined);
});

test('a missing program is named, and how to set its path', async () => {
  const fault = await probe('no-such-slapoc');
  assert.match(fault.message, /There is no `no-such-slapoc`/);
  assert.match(fault.help, /slapo\.server\.path/);
});

test('a program without the command is told apart', async () => {
  const fault = await probe(program(2));
  assert.match(fault.message, /has no language server/);
});

test('a file that is no program is told apart', async () => {
  const fault = await probe(program(0, 0o644));
  assert.match(fault.message, /cannot be run/);
});
