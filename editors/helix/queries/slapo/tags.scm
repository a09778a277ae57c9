(schedule_item name: (identifier) @definition.function)
(pattern_item name: (identifier) @definition.function)
(type_item name: (identifier) @definition.type)
