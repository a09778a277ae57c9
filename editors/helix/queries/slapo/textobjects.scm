(schedule_item body: (block) @function.inside) @function.around
(pattern_item value: (_) @function.inside) @function.around

(type_item type: (_) @class.inside) @class.around

(param_list ((_) @parameter.inside . ","? @parameter.around) @parameter.around)
(arg_list ((_) @parameter.inside . ","? @parameter.around) @parameter.around)

[(comment) (doc_comment)] @comment.inside
(comment)+ @comment.around
(doc_comment)+ @comment.around
