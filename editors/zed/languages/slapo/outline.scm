(schedule_item "schedule" @context name: (identifier) @name) @item
(pattern_item "pattern" @context name: (identifier) @name) @item
(type_item "type" @context name: (identifier) @name) @item
(knob_item "knob" @context name: (identifier) @name) @item
(mesh_item "mesh" @name) @item
(file (let_stmt "let" @context name: (identifier) @name) @item)
