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
  (#any-of? @type.builtin {{types}}))
((named_type (identifier) @type)
  (#not-any-of? @type {{types}}))

; Calls. Behind a dot a word with parentheses belongs to the language, any other to the model.
((call_expr name: (identifier) @function.builtin)
  (#any-of? @function.builtin {{functions}}))
((call_expr name: (identifier) @function.call)
  (#not-any-of? @function.call {{functions}}))
((method_call name: (identifier) @function.builtin)
  (#any-of? @function.builtin {{primitives}} {{queries}}))
((method_call name: (identifier) @function.method.call)
  (#not-any-of? @function.method.call {{primitives}} {{queries}}))
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
  (#any-of? @constant.builtin {{constants}}))
((entry value: (identifier) @constant.builtin)
  (#any-of? @constant.builtin {{constants}}))
((list_expr (identifier) @constant.builtin)
  (#any-of? @constant.builtin {{constants}}))
((arg value: (identifier) @variable)
  (#not-any-of? @variable {{constants}}))
((entry value: (identifier) @variable)
  (#not-any-of? @variable {{constants}}))
((list_expr (identifier) @variable)
  (#not-any-of? @variable {{constants}}))
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
