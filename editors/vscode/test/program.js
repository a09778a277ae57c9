// Stand-ins for `slapoc`.

'use strict';

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

/** A program that answers `lsp --help` with a status. */
function program(status, mode = 0o755) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'slapo-'));
  process.on('exit', () => fs.rmSync(folder, { recursive: true }));
  const file = path.join(folder, 'slapoc');
  fs.writeFileSync(file, `#!/bin/sh\ntest "$1 $2" = "lsp --help" || exit 9\nexit ${status}\n`, { mode });
  return file;
}

module.exports = { program };
