[(block) (entries) (use_names) (record_type) (param_list) (arg_list) (list_expr) (paren_expr) (brace_expr) (index_expr)
  (slice_expr) (list_type)] @rainbow.scope

["{" "}" "(" ")" "[" "]"] @rainbow.bracket
