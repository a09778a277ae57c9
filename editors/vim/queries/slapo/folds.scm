[
  (schedule_item)
  (for_stmt)
  (if_stmt)
  (entries)
  (use_names)
  (record_type)
  (arg_list)
  (list_expr)
] @fold
