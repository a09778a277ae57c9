// Whether there is a `slapoc` with a language server, and what to say if not. Knows nothing of VS Code.

'use strict';

const { execFile } = require('node:child_process');

/**
 * Asks `path` for the help of its language server.
 * @returns {Promise<{message: string, help: string} | undefined>} what is wrong, if anything
 */
function probe(path) {
  return new Promise(resolve => {
    execFile(path, ['lsp', '--help'], { timeout: 10_000 }, error => resolve(error ? fault(path, error) : undefined));
  });
}

function fault(path, error) {
  switch (error.code) {
    case 'ENOENT':
      return {
        message: `There is no \`${path}\`: schedules are highlighted but not checked`,
        help: 'Install slapoc, or set `slapo.server.path` to where it is.',
      };
    case 'EACCES':
      return {
        message: `\`${path}\` cannot be run: schedules are highlighted but not checked`,
        help: 'Set `slapo.server.path` to the slapoc program.',
      };
    default:
      return {
        message: `\`${path}\` has no language server: schedules are highlighted but not checked`,
        help: 'Update slapoc, or set `slapo.server.enabled` to false.',
      };
  }
}

module.exports = { probe };
