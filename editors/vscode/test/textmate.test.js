// The TextMate grammar with VS Code's own engine: scopes of single words, and of every schedule of the repository.

'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const { before, test } = require('node:test');
const oniguruma = require('vscode-oniguruma');
const textmate = require('vscode-textmate');

const folder = path.join(__dirname, '..');
const root = path.join(folder, '../..');
const grammars = {
  'source.slapo': 'syntaxes/slapo.tmLanguage.json',
  'markdown.slapo.codeblock': 'syntaxes/markdown.tmLanguage.json',
};

let slapo;
let markdown;

before(async () => {
  const wasm = fs.readFileSync(require.resolve('vscode-oniguruma/release/onig.wasm'));
  await oniguruma.loadWASM(wasm);
  const registry = new textmate.Registry({
    onigLib: Promise.resolve({
      createOnigScanner: sources => new oniguruma.OnigScanner(sources),
      createOnigString: text => new oniguruma.OnigString(text),
    }),
    loadGrammar: async scope => {
      const file = grammars[scope];
      return file ? textmate.parseRawGrammar(fs.readFileSync(path.join(folder, file), 'utf8'), file) : null;
    },
  });
  slapo = await registry.loadGrammar('source.slapo');
  markdown = await registry.loadGrammar('markdown.slapo.codeblock');
});

/** Tokens of a text: what they say, their innermost scope, and where they are. */
function tokens(text, grammar = slapo) {
  const found = [];
  let stack = textmate.INITIAL;
  text.split(/\r?\n/).forEach((line, number) => {
    const result = grammar.tokenizeLine(line, stack);
    stack = result.ruleStack;
    for (const token of result.tokens) {
      const word = line.slice(token.startIndex, token.endIndex);
      found.push({ word, scope: token.scopes.at(-1), scopes: token.scopes, line, number });
    }
  });
  return found;
}

// A line, and words of it with their scopes (without `.slapo`); `word@2` is the second of its kind.
const cases = [
  ['schedule main(m: Module, over: axis = tp) {', {
    schedule: 'keyword.declaration', main: 'entity.name.function', m: 'variable.parameter', Module: 'support.type',
    axis: 'support.type', tp: 'variable.other',
  }],
  ['use std.parallel.{column, row}', {
    use: 'keyword.control.import', std: 'entity.name.namespace', column: 'entity.name.function',
  }],
  ['model "gpt2.pt2"', { model: 'keyword.declaration', 'gpt2.pt2': 'string.quoted.double' }],
  ['mesh { dp = auto, tp = 2 }', {
    mesh: 'keyword.declaration', dp: 'variable.other.constant', auto: 'constant.language', 2: 'constant.numeric',
  }],
  ['knob ratio = 0.5 in 0.0..=1.0', {
    knob: 'keyword.declaration', ratio: 'variable.other.constant', '0.5': 'constant.numeric', in: 'keyword.control',
    '..=': 'keyword.operator.range', '1.0': 'constant.numeric',
  }],
  ['    for b in m.h[..n / 2] {', {
    for: 'keyword.control', b: 'variable.other', in: 'keyword.control', h: 'variable.other.path',
    '..': 'keyword.operator.range', n: 'variable.other', '/': 'keyword.operator.arithmetic',
  }],
  ['    b.{weight, bias?}.shard(in, over: over)', {
    weight: 'variable.other.path', '?': 'keyword.operator.optional', shard: 'support.function.primitive',
    in: 'constant.language', over: 'variable.parameter', 'over@2': 'variable.other',
  }],
  ['    model.for.if.schedule.0.in.freeze()', {
    model: 'variable.other', for: 'variable.other.path', if: 'variable.other.path', schedule: 'variable.other.path',
    0: 'variable.other.path', in: 'variable.other.path', freeze: 'support.function.primitive',
  }],
  ['    l.input().grad().sync(all_reduce, over: tp)  # why', {
    input: 'support.function.query', grad: 'support.function.query', sync: 'support.function.primitive',
    all_reduce: 'constant.language', '# why': 'comment.line.number-sign',
  }],
  ['    m.shard.shard(0)', { shard: 'variable.other.path', 'shard@2': 'support.function.primitive' }],
  ['    m.**.only(Linear).a.*', { '**': 'keyword.operator.wildcard', '*': 'keyword.operator.wildcard' }],
  ['    require not a == b and true, "say \\"hi\\""', {
    require: 'keyword.control', not: 'keyword.operator.word', '==': 'keyword.operator.comparison',
    and: 'keyword.operator.word', true: 'constant.language.boolean', '\\"': 'constant.character.escape',
  }],
  ['    m.deny(reshard: 10MiB)', { 10: 'constant.numeric', MiB: 'keyword.other.unit' }],
  ['    x.größe.layout(replicate)', { größe: 'variable.other.path', replicate: 'constant.language' }],
  ['    column(l, groups: len(m.h))', { column: 'entity.name.function', len: 'support.function.builtin' }],
  ['## Documented.', { '## Documented.': 'comment.line.documentation' }],
  ['type Part = { fc: Linear, more?: [Module] }', {
    type: 'keyword.declaration', Part: 'entity.name.type', fc: 'variable.parameter', Module: 'support.type',
  }],
];

for (const [line, words] of cases) {
  test(line.trim(), () => {
    const found = tokens(line);
    for (const [key, scope] of Object.entries(words)) {
      const [word, count = 1] = key.split('@');
      const token = found.filter(token => token.word === word)[count - 1];
      assert.ok(token, `no token \`${word}\` in ${JSON.stringify(found.map(token => token.word))}`);
      assert.strictEqual(token.scope, `${scope}.slapo`, word);
    }
  });
}

function schedules(below) {
  return fs.readdirSync(path.join(root, below), { recursive: true })
    .filter(name => name.endsWith('.slapo'))
    .map(name => path.join(below, name));
}

const isTriviaOrText = token => /^\s*$/.test(token.word) || /comment|string/.test(token.scopes.join(' '));

test('every word of the right schedules has a scope', () => {
  const files = ['stdlib', 'examples', 'tests/syntax/good', 'tests/syntax/format'].flatMap(schedules);
  assert.ok(files.length > 20);
  for (const file of files) {
    const text = fs.readFileSync(path.join(root, file), 'utf8');
    for (const token of tokens(text)) {
      const place = `\`${token.word}\` of ${file}:${token.number + 1}`;
      assert.ok(!token.scopes.some(scope => scope.startsWith('invalid')), place);
      assert.ok(isTriviaOrText(token) || token.scopes.length > 1, `${place} has none`);
    }
  }
});

test('an unclosed string ends with its line', () => {
  const found = tokens('    m.annotate("key)\n    m.freeze()');
  assert.strictEqual(found.find(token => token.word === 'freeze').scope, 'support.function.primitive.slapo');
});

test('schedules in Markdown', () => {
  const found = tokens('```slapo\nmesh { tp = 2 }\n```\nmesh', markdown);
  const scopes = found.filter(token => token.word === 'mesh').map(token => token.scope);
  assert.deepStrictEqual(scopes, ['keyword.declaration.slapo', 'markdown.slapo.codeblock']);
});
