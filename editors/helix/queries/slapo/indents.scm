[(block) (entries) (use_names) (record_type) (param_list) (arg_list) (list_expr) (paren_expr)] @indent

["}" ")" "]"] @outdent
