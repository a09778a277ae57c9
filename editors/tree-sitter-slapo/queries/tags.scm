(schedule_item name: (identifier) @name) @definition.function
(pattern_item name: (identifier) @name) @definition.function
(type_item name: (identifier) @name) @definition.type
(call_expr name: (identifier) @name) @reference.call
