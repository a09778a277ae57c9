// Starts `slapoc lsp` for schedules. Owns nothing of the language: what the server says is shown as it is. Without a
// server, highlighting and snippets still work, and one message says what is missing. Read `start` first.

'use strict';

const vscode = require('vscode');
const { LanguageClient } = require('vscode-languageclient/node');
const { probe } = require('./server');

let client;
let output;
// Starts and stops come one after the other, however fast settings change.
let work = Promise.resolve();

function activate(context) {
  output = vscode.window.createOutputChannel('Slapo');
  context.subscriptions.push(
    output,
    vscode.commands.registerCommand('slapo.restartServer', restart),
    vscode.workspace.onDidChangeConfiguration(change => {
      if (change.affectsConfiguration('slapo.server')) {
        return restart();
      }
    }),
  );
  return restart();
}

function deactivate() {
  work = work.then(stop);
  return work;
}

function restart() {
  work = work.then(stop).then(start);
  return work;
}

async function start() {
  const settings = vscode.workspace.getConfiguration('slapo');
  if (!settings.get('server.enabled')) {
    return;
  }
  const path = settings.get('server.path');
  const fault = await probe(path);
  if (fault) {
    report(fault);
    return;
  }
  const server = { command: path, args: ['lsp'] };
  const starting = new LanguageClient('slapo', 'Slapo', server, {
    documentSelector: [{ language: 'slapo' }],
    initializationOptions: { check: settings.get('check') },
    // What is changed later, and files that schedules name.
    synchronize: { configurationSection: 'slapo' },
    outputChannel: output,
  });
  try {
    await starting.start();
    client = starting;
  } catch (error) {
    report({ message: `\`${path} lsp\` did not start: ${error.message}`, help: 'The output of Slapo has more.' });
  }
}

async function stop() {
  const running = client;
  client = undefined;
  // A server that has crashed cannot be stopped, which is no reason not to start another.
  await running?.stop().catch(error => output.appendLine(`the server did not stop: ${error.message}`));
}

// The message stays until it is dismissed; nothing waits for that.
function report(fault) {
  output.appendLine(`${fault.message}. ${fault.help}`);
  const settings = 'Open Settings';
  vscode.window.showWarningMessage(`${fault.message}. ${fault.help}`, settings).then(answer => {
    if (answer === settings) {
      vscode.commands.executeCommand('workbench.action.openSettings', 'slapo.server');
    }
  });
}

module.exports = { activate, deactivate };
