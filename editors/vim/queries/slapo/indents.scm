[(block) (entries) (use_names) (record_type) (param_list) (arg_list) (list_expr) (paren_expr)] @indent.begin

["}" ")" "]"] @indent.branch @indent.end

(ERROR ["{" "(" "["]) @indent.begin
[(comment) (doc_comment)] @indent.auto
