// The client beside a stand-in for VS Code: when a server is started, stopped, and what is said if there is none.

'use strict';

const assert = require('node:assert');
const Module = require('node:module');
const { beforeEach, test } = require('node:test');
const { program } = require('./program');

const state = {};

class LanguageClient {
  constructor(id, name, server, options) {
    this.server = server;
    state.options = options;
  }

  async start() {
    state.log.push(`start ${this.server.args}`);
    if (state.startFails) {
      throw new Error('no answer');
    }
  }

  async stop() {
    state.log.push('stop');
  }
}

const vscode = {
  window: {
    createOutputChannel: () => ({ appendLine: line => state.output.push(line) }),
    showWarningMessage: async message => void state.warnings.push(message),
  },
  commands: { registerCommand: (name, run) => (state.commands[name] = run) },
  workspace: {
    getConfiguration: () => ({ get: name => state.settings[name] }),
    onDidChangeConfiguration: listener => (state.changed = listener),
  },
};

const stands = { vscode, 'vscode-languageclient/node': { LanguageClient } };
const load = Module._load;
Module._load = (name, ...rest) => stands[name] ?? load(name, ...rest);
const extension = require('../src/extension');

beforeEach(async () => {
  Object.assign(state, { log: [], output: [], warnings: [], commands: {}, startFails: false });
  state.settings = { 'server.enabled': true, 'server.path': program(0) };
  await extension.deactivate();
  state.log = [];
});

const activate = () => extension.activate({ subscriptions: [] });

test('the server is started and stopped', async () => {
  await activate();
  await extension.deactivate();
  assert.deepStrictEqual(state.log, ['start lsp', 'stop']);
  assert.deepStrictEqual(state.warnings, []);
});

test('the server gets the flags of check, at the start and when they change', async () => {
  state.settings.check = { world: 8, deny: ['unused-import'] };
  await activate();
  assert.deepStrictEqual(state.options.initializationOptions, { check: { world: 8, deny: ['unused-import'] } });
  assert.strictEqual(state.options.synchronize.configurationSection, 'slapo');
});

test('a missing server is one warning, also in the output', async () => {
  state.settings['server.path'] = 'no-such-slapoc';
  await activate();
  assert.strictEqual(state.warnings.length, 1);
  assert.match(state.warnings[0], /There is no `no-such-slapoc`.*slapo\.server\.path/);
  assert.deepStrictEqual(state.output, state.warnings);
  assert.deepStrictEqual(state.log, []);
});

test('a server that is switched off is not looked for', async () => {
  state.settings = { 'server.enabled': false, 'server.path': 'no-such-slapoc' };
  await activate();
  assert.deepStrictEqual([state.log, state.warnings], [[], []]);
});

test('a server that does not start is reported', async () => {
  state.startFails = true;
  await activate();
  assert.match(state.warnings[0], /did not start: no answer/);
});

test('restarts come one after the other', async () => {
  const changed = () => state.changed({ affectsConfiguration: name => name === 'slapo.server' });
  await Promise.all([activate(), state.commands['slapo.restartServer'](), changed()]);
  assert.deepStrictEqual(state.log, ['start lsp', 'stop', 'start lsp', 'stop', 'start lsp']);
});

test('other settings change nothing', async () => {
  await activate();
  await state.changed({ affectsConfiguration: () => false });
  assert.deepStrictEqual(state.log, ['start lsp']);
});
