// What a user is told when there is no language server.

'use strict';

const assert = require('node:assert');
const { test } = require('node:test');
const { probe } = require('../src/server');
const { program } = require('./program');

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
