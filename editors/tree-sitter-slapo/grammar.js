/**
 * @file The grammar of schedules for editors. `grammar/slapo.pest` is the language's own; this one knows right schedules
 * only, and leaves what is broken to tree-sitter's recovery. Nodes are named as in `src/syntax/src/kind.rs`, and a test
 * compares the trees of both (`editors/tests/parity.rs`).
 *
 * A newline ends a statement where one can end, and is white space everywhere else: it is a token of the grammar and an
 * extra at once. So a few breaks of lines pass here that the compiler refuses.
 */

/// <reference types="tree-sitter-cli/dsl" />
// @ts-check

// Loosest first, as in `src/syntax/src/precedence.rs`.
const LEVEL = { or: 1, and: 2, not: 3, compare: 4, add: 5, multiply: 6, negate: 7, power: 8 };

// Words that name nothing, except behind a dot, in braces and before the colon of an argument.
const RESERVED = ['let', 'for', 'in', 'if', 'else', 'require', 'try', 'and', 'or', 'not', 'true', 'false'];

const list = (rule) => seq(rule, repeat(seq(',', rule)), optional(','));
const lines = ($, rule) => seq(rule, repeat(seq($._newline, rule)), optional($._newline));
const operation = (operand, operator) =>
  seq(field('left', operand), field('operator', operator), field('right', operand));
const binary = (operand, level, operator) => prec.left(level, operation(operand, operator));
const param = ($, ...optional_mark) =>
  seq(
    field('name', $.identifier),
    ...optional_mark,
    optional(seq(':', field('type', $._param_type))),
    optional(seq('=', field('default', $._expr))),
  );

module.exports = grammar({
  name: 'slapo',

  word: $ => $.identifier,

  extras: $ => [/[ \t]/, $._newline, $.doc_comment, $.comment],

  reserved: {
    words: _ => RESERVED,
  },

  supertypes: $ => [$._item, $._stmt, $._expr, $._type],

  rules: {
    file: $ => optional(lines($, $._item)),

    // ---- items

    _item: $ =>
      choice(
        $.use_item,
        $.model_item,
        $.input_item,
        $.mesh_item,
        $.knob_item,
        $.let_stmt,
        $.type_item,
        $.pattern_item,
        $.schedule_item,
      ),

    use_item: $ => seq('use', $._step, repeat(seq('.', $._step)), optional(seq('.', $.use_names))),
    use_names: $ => seq('{', list($._step), '}'),
    model_item: $ => seq('model', field('path', $.string)),
    input_item: $ => seq('input', $.entries),
    mesh_item: $ => seq('mesh', $.entries),
    entries: $ => seq('{', optional(list($.entry)), '}'),
    entry: $ => seq(field('name', $.identifier), '=', field('value', $._expr)),
    knob_item: $ =>
      seq(
        'knob',
        field('name', $.identifier),
        '=',
        field('value', $._expr),
        optional(seq('in', field('domain', $._domain))),
      ),
    type_item: $ => seq('type', field('name', $.identifier), '=', field('type', $._type)),
    pattern_item: $ =>
      seq(
        'pattern',
        field('name', $.identifier),
        field('params', alias($._pattern_params, $.param_list)),
        '=',
        field('value', $._expr),
      ),
    schedule_item: $ =>
      seq('schedule', field('name', $.identifier), field('params', $.param_list), field('body', $.block)),

    param_list: $ => seq('(', optional(list($.param)), ')'),
    param: $ => param($),
    _pattern_params: $ => seq('(', optional(list(alias($._pattern_param, $.param))), ')'),
    _pattern_param: $ => param($, optional('?')),

    // A structure has a name wherever a parameter wants one, so that no brace stands in a head.
    _param_type: $ => choice($.named_type, alias($._param_list_type, $.list_type)),
    _param_list_type: $ => seq('[', $._param_type, ']'),
    _type: $ => choice($.named_type, $.list_type, $.record_type),
    named_type: $ => $.identifier,
    list_type: $ => seq('[', $._type, ']'),
    record_type: $ => seq('{', optional(list($.record_field)), '}'),
    record_field: $ => seq(field('name', $._step), optional('?'), ':', field('type', $._type)),

    // ---- statements

    block: $ => seq('{', optional(lines($, $._stmt)), '}'),

    _stmt: $ => choice($.let_stmt, $.for_stmt, $.if_stmt, $.require_stmt, $.try_stmt, $.expr_stmt),

    let_stmt: $ => seq('let', field('name', $.identifier), '=', field('value', $._expr)),
    for_stmt: $ =>
      seq('for', field('name', $.identifier), 'in', field('domain', $._domain), field('body', $.block)),
    if_stmt: $ => seq($.if_branch, repeat(alias($._else_if, $.if_branch)), optional($.else_branch)),
    if_branch: $ => seq('if', field('condition', $._expr), field('body', $.block)),
    _else_if: $ => seq('else', 'if', field('condition', $._expr), field('body', $.block)),
    else_branch: $ => seq('else', field('body', $.block)),
    require_stmt: $ => seq('require', field('condition', $._expr), optional(seq(',', field('message', $.string)))),
    try_stmt: $ => seq('try', $._expr),
    expr_stmt: $ => $._expr,

    _domain: $ => choice($._expr, $.range_expr),
    range_expr: $ => seq(field('start', $._expr), choice('..', '..='), field('end', $._expr)),

    // ---- expressions; a comparison is no operand of another one

    _expr: $ => choice($._operand, alias($._logic, $.binary_expr), alias($._comparison, $.binary_expr)),

    _logic: $ => choice(binary($._expr, LEVEL.or, 'or'), binary($._expr, LEVEL.and, 'and')),
    _comparison: $ => binary($._operand, LEVEL.compare, choice('==', '!=', '<', '<=', '>', '>=')),

    _operand: $ => choice($._primary, $.prefix_expr, $.binary_expr),

    binary_expr: $ =>
      choice(
        binary($._operand, LEVEL.add, choice('+', '-')),
        binary($._operand, LEVEL.multiply, choice('*', '/', '%')),
        prec.right(LEVEL.power, operation($._operand, '^')),
      ),
    prefix_expr: $ =>
      choice(
        prec(LEVEL.not, seq(field('operator', 'not'), field('operand', $._expr))),
        prec(LEVEL.negate, seq(field('operator', '-'), field('operand', $._operand))),
      ),

    _primary: $ =>
      choice(
        $.identifier,
        $._literal,
        $.paren_expr,
        $.list_expr,
        $.call_expr,
        $.field_expr,
        $.method_call,
        $.star_expr,
        $.globstar_expr,
        $.brace_expr,
        $.index_expr,
        $.slice_expr,
      ),

    paren_expr: $ => seq('(', $._element, ')'),
    list_expr: $ => seq('[', optional(list($._element)), ']'),
    call_expr: $ => seq(field('name', $.identifier), field('arguments', $.arg_list)),

    field_expr: $ => seq(field('receiver', $._primary), '.', field('name', $._step), optional('?')),
    method_call: $ =>
      seq(field('receiver', $._primary), '.', field('name', $._step), field('arguments', $.arg_list)),
    star_expr: $ => seq(field('receiver', $._primary), '.', '*'),
    globstar_expr: $ => seq(field('receiver', $._primary), '.', '**'),
    brace_expr: $ => seq(field('receiver', $._primary), '.', '{', list($.brace_name), '}'),
    brace_name: $ => seq(field('name', $._step), optional('?')),
    index_expr: $ => seq(field('receiver', $._primary), '[', field('index', $._expr), ']'),
    slice_expr: $ =>
      seq(
        field('receiver', $._primary),
        '[',
        optional(field('start', $._expr)),
        '..',
        optional(field('end', $._expr)),
        ']',
      ),

    arg_list: $ => seq('(', optional(list($.arg)), ')'),
    arg: $ => seq(optional(seq(field('label', $._label), ':')), field('value', $._element)),
    _label: $ => choice($.identifier, ...RESERVED.map(word => alias(word, $.identifier))),

    _element: $ => choice($._expr, $.role_in),
    role_in: _ => 'in',

    // ---- tokens

    identifier: _ => /[_\p{XID_Start}]\p{XID_Continue}*/u,
    // A name as the model spells it: `0` in `m.h.0`, and any reserved word.
    _step: $ => alias($._model_name, $.identifier),
    _model_name: _ => /\p{XID_Continue}+/u,

    _literal: $ => choice($.number, $.string, $.true, $.false),
    true: _ => 'true',
    false: _ => 'false',
    // Whatever is attached to the digits belongs to the number, unit or not.
    number: _ => /[0-9](_?[0-9])*(\.[0-9](_?[0-9])*)?([eE][+-]?[0-9](_?[0-9])*)?\p{XID_Continue}*/u,
    // One token, or a newline could stand between its parts.
    string: _ => /"([^"\\\r\n]|\\["\\nt])*"/,

    // `##` documents the item below; a longer row of `#` is a ruler.
    doc_comment: _ => /##([^#\r\n][^\r\n]*)?/,
    comment: _ => /#[^\r\n]*/,
    _newline: _ => /\r?\n|\r/,
  },
});
