; Written by `cargo xtask codegen` from editors/templates/highlights.scm: edit that file.
; No two patterns take one node, so that it does not matter whether an editor prefers the first or the last.

; Items and statements
["use"] @keyword.import
["model" "input" "mesh" "knob" "let"] @keyword
["schedule" "pattern"] @keyword.function
["type"] @keyword.type
["if" "else"] @keyword.conditional
["for"] @keyword.repeat
(for_stmt "in" @keyword.repeat)
(knob_item "in" @keyword)
["require" "try"] @keyword.exception
(binary_expr operator: ["and" "or"] @keyword.operator)
(prefix_expr operator: "not" @keyword.operator)

; Declarations
(schedule_item name: (identifier) @function)
(pattern_item name: (identifier) @function)
(type_item name: (identifier) @type)
(knob_item name: (identifier) @variable)
(let_stmt name: (identifier) @variable)
(for_stmt name: (identifier) @variable)
(param name: (identifier) @variable.parameter)
(entry name: (identifier) @property)
(record_field name: (identifier) @property)
(use_item (identifier) @module)
(use_names (identifier) @function)

; Types
((named_type (identifier) @type.builtin)
  (#any-of? @type.builtin "Module" "param" "point" "pattern" "match" "axis" "dim" "int" "float" "bool" "string" "dtype" "order" "groups"))
((named_type (identifier) @type)
  (#not-any-of? @type "Module" "param" "point" "pattern" "match" "axis" "dim" "int" "float" "bool" "string" "dtype" "order" "groups"))

; Calls. Behind a dot a word with parentheses belongs to the language, any other to the model.
((call_expr name: (identifier) @function.builtin)
  (#any-of? @function.builtin "len" "floor" "ceil" "min" "max" "abs" "choose"))
((call_expr name: (identifier) @function.call)
  (#not-any-of? @function.call "len" "floor" "ceil" "min" "max" "abs" "choose"))
((method_call name: (identifier) @function.builtin)
  (#any-of? @function.builtin "accumulate" "annotate" "checkpoint" "data_parallel" "decompose" "deny" "freeze" "layout" "replace" "shard" "sync" "zero" "input" "output" "grad" "size" "only" "except" "expect" "is" "find"))
((method_call name: (identifier) @function.method.call)
  (#not-any-of? @function.method.call "accumulate" "annotate" "checkpoint" "data_parallel" "decompose" "deny" "freeze" "layout" "replace" "shard" "sync" "zero" "input" "output" "grad" "size" "only" "except" "expect" "is" "find"))
(field_expr name: (identifier) @variable.member)
(brace_name name: (identifier) @variable.member)
(star_expr "*" @character.special)
(globstar_expr "**" @character.special)
(field_expr "?" @character.special)
(brace_name "?" @character.special)
(param "?" @character.special)
(record_field "?" @character.special)
(arg label: _ @label)

; Words that stand for themselves, and all other names
((arg value: (identifier) @constant.builtin)
  (#any-of? @constant.builtin "out" "vocab" "hidden" "channel" "head" "expert" "batch" "seq" "token" "fp64" "fp32" "fp16" "bf16" "gpipe" "one_f_one_b" "interleaved" "zero_bubble" "before" "after" "all_reduce" "all_gather" "reduce_scatter" "all_to_all" "slice" "replicate" "shard" "auto"))
((entry value: (identifier) @constant.builtin)
  (#any-of? @constant.builtin "out" "vocab" "hidden" "channel" "head" "expert" "batch" "seq" "token" "fp64" "fp32" "fp16" "bf16" "gpipe" "one_f_one_b" "interleaved" "zero_bubble" "before" "after" "all_reduce" "all_gather" "reduce_scatter" "all_to_all" "slice" "replicate" "shard" "auto"))
((list_expr (identifier) @constant.builtin)
  (#any-of? @constant.builtin "out" "vocab" "hidden" "channel" "head" "expert" "batch" "seq" "token" "fp64" "fp32" "fp16" "bf16" "gpipe" "one_f_one_b" "interleaved" "zero_bubble" "before" "after" "all_reduce" "all_gather" "reduce_scatter" "all_to_all" "slice" "replicate" "shard" "auto"))
((arg value: (identifier) @variable)
  (#not-any-of? @variable "out" "vocab" "hidden" "channel" "head" "expert" "batch" "seq" "token" "fp64" "fp32" "fp16" "bf16" "gpipe" "one_f_one_b" "interleaved" "zero_bubble" "before" "after" "all_reduce" "all_gather" "reduce_scatter" "all_to_all" "slice" "replicate" "shard" "auto"))
((entry value: (identifier) @variable)
  (#not-any-of? @variable "out" "vocab" "hidden" "channel" "head" "expert" "batch" "seq" "token" "fp64" "fp32" "fp16" "bf16" "gpipe" "one_f_one_b" "interleaved" "zero_bubble" "before" "after" "all_reduce" "all_gather" "reduce_scatter" "all_to_all" "slice" "replicate" "shard" "auto"))
((list_expr (identifier) @variable)
  (#not-any-of? @variable "out" "vocab" "hidden" "channel" "head" "expert" "batch" "seq" "token" "fp64" "fp32" "fp16" "bf16" "gpipe" "one_f_one_b" "interleaved" "zero_bubble" "before" "after" "all_reduce" "all_gather" "reduce_scatter" "all_to_all" "slice" "replicate" "shard" "auto"))
(role_in) @constant.builtin
(_ receiver: (identifier) @variable)
(_ left: (identifier) @variable)
(_ right: (identifier) @variable)
(_ operand: (identifier) @variable)
(_ condition: (identifier) @variable)
(_ domain: (identifier) @variable)
(_ index: (identifier) @variable)
(_ start: (identifier) @variable)
(_ end: (identifier) @variable)
(_ default: (identifier) @variable)
(let_stmt value: (identifier) @variable)
(knob_item value: (identifier) @variable)
(pattern_item value: (identifier) @variable)
(paren_expr (identifier) @variable)
(expr_stmt (identifier) @variable)

; Literals
[(true) (false)] @boolean
(number) @number
(string) @string

; Marks
["+" "-" "/" "%" "^" "=" "==" "!=" "<" "<=" ">" ">=" ".." "..="] @operator
(binary_expr operator: "*" @operator)
["(" ")" "[" "]" "{" "}"] @punctuation.bracket
["," ":" "."] @punctuation.delimiter

(comment) @comment
(doc_comment) @comment.documentation
