// Starts `slapoc lsp` for schedules. Owns nothing of the language: what the server says is shown as it is. Without a
// server, highlighting and snippets still work, and one message says what is missing. Read `start` first.

'use strict';

const vscode = require('vscode');
const { LanguageClient, Trace } = require('vscode-languageclient/node');
const { probe } = require('./server');

let client;
let output;

async function activate(context) {
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
  await start();
}

async function start() {
  const settings = vscode.workspace.getConfiguration('slapo');
  if (!settings.get('server.enabled')) {
    return;
  }
  const path = settings.get('server.path');
  const fault = await probe(path);
  if (fault) {
    await report(fault);
    return;
  }
  client = new LanguageClient(
    'slapo',
    'Slapo',
    { command: path, args: ['lsp'] },
    { documentSelector: [{ language: 'slapo' }], outputChannel: output },
  );
  try {
    await client.start();
    await client.setTrace(Trace.fromString(settings.get('trace.server')));
  } catch (error) {
    client = undefined;
    await report({ message: `\`${path} lsp\` did not start: ${error.message}`, help: 'The output of Slapo has more.' });
  }
}

async function restart() {
  await deactivate();
  await start();
}

async function deactivate() {
  const running = client;
  client = undefined;
  await running?.stop();
}

// Not awaited by the caller's work: the message stays until it is dismissed.
async function report(fault) {
  output.appendLine(`${fault.message}\n${fault.help}`);
  const settings = 'Open Settings';
  const chosen = vscode.window.showWarningMessage(`${fault.message}. ${fault.help}`, settings);
  chosen.then(answer => {
    if (answer === settings) {
      vscode.commands.executeCommand('workbench.action.openSettings', 'slapo.server');
    }
  });
}

module.exports = { activate, deactivate };
