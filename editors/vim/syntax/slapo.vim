" Vim syntax file for schedules of slapoc.
" Written by `cargo xtask codegen` from editors/templates/slapo.vim: edit that file.

if exists('b:current_syntax')
  finish
endif

let s:cpo = &cpo
set cpo&vim

" Item words are such at the start of a line only; behind a dot and in braces every word is a name of the model.
syntax match slapoIdentifier /\<[[:alpha:]_]\w*\>/
syntax keyword slapoConstant out vocab hidden channel head expert batch seq token fp64 fp32 fp16 bf16 gpipe one_f_one_b interleaved zero_bubble before after all_reduce all_gather reduce_scatter all_to_all slice replicate shard auto
syntax keyword slapoStatement let for in if else require try
syntax keyword slapoOperatorWord and or not
syntax keyword slapoBoolean true false
syntax match slapoItem /^\s*\zs\%(schedule\|pattern\|knob\|type\|use\)\ze\s\+\w/
syntax match slapoItem /^\s*\zs\%(mesh\|input\)\ze\s*{/
syntax match slapoItem /^\s*\zsmodel\ze\s*"/

syntax match slapoCall /\<[[:alpha:]_]\w*\ze\s*(/ contains=slapoFunction
syntax keyword slapoFunction contained len floor ceil min max abs choose
syntax match slapoDefinition /\%(^\s*\%(schedule\|pattern\|type\)\s\+\)\@<=\w\+/

syntax match slapoPath /\%(\.\.\)\@<!\.\s*\w\+?\?/
syntax match slapoMethod /\%(\.\.\)\@<!\.\s*\w\+\ze\s*(/ contains=slapoPrimitive,slapoQuery
syntax keyword slapoPrimitive contained accumulate annotate checkpoint data_parallel decompose deny freeze layout replace shard sync zero
syntax keyword slapoQuery contained input output grad size only except expect is find
syntax match slapoWildcard /\.\s*\*\*\?/
syntax region slapoBraces matchgroup=slapoMark start=/\.\s*{/ end=/}/ contains=slapoComment,slapoDocumentation,slapoBraceName
syntax match slapoBraceName contained /\w\+?\?/

syntax match slapoLabel /\<\w\+\ze?\?\s*:/
syntax match slapoTypeColon /:\s*\[\?\s*\h\w*\ze\s*\%([],)=}]\|$\)/ contains=slapoType
syntax keyword slapoType contained Module param point pattern match axis dim int float bool string dtype order groups

syntax match slapoNumber /\<\d\%(_\?\d\)*\%(\.\d\%(_\?\d\)*\)\?\%([eE][+-]\?\d\+\)\?\%([KMGT]i\?B\)\?\>/
syntax match slapoOperator /[-+*\/%^<>=!]\|\.\.=\?/
syntax region slapoString start=/"/ skip=/\\./ end=/"\|$/ oneline contains=slapoEscape
syntax match slapoEscape contained /\\["\\nt]/
syntax match slapoComment /#.*$/ contains=@Spell
syntax match slapoDocumentation /##\%(#\)\@!.*$/ contains=@Spell

highlight default link slapoIdentifier Identifier
highlight default link slapoConstant Constant
highlight default link slapoStatement Statement
highlight default link slapoOperatorWord Operator
highlight default link slapoBoolean Boolean
highlight default link slapoItem Keyword
highlight default link slapoDefinition Function
highlight default link slapoCall Function
highlight default link slapoFunction Function
highlight default link slapoMethod Function
highlight default link slapoPrimitive Special
highlight default link slapoQuery Function
highlight default link slapoBraceName Normal
highlight default link slapoPath Normal
highlight default link slapoWildcard Special
highlight default link slapoLabel Label
highlight default link slapoType Type
highlight default link slapoNumber Number
highlight default link slapoOperator Operator
highlight default link slapoString String
highlight default link slapoEscape SpecialChar
highlight default link slapoComment Comment
highlight default link slapoDocumentation SpecialComment

let b:current_syntax = 'slapo'

let &cpo = s:cpo
unlet s:cpo
