" Vim indentation for schedules of slapoc: one level for every line that leaves a bracket open, and one for the rest of a
" statement behind an operator at the end of a line.

if exists('b:did_indent')
  finish
endif
let b:did_indent = 1

setlocal indentexpr=SlapoIndent(v:lnum)
setlocal indentkeys=0{,0},0),0],o,O,!^F
let b:undo_indent = 'setlocal indentexpr< indentkeys<'

if exists('*SlapoIndent')
  finish
endif

function! SlapoIndent(line) abort
  let l:before = prevnonblank(a:line - 1)
  if l:before == 0
    return 0
  endif
  let l:indent = indent(l:before)
  let l:is_rest = s:continues(prevnonblank(l:before - 1))
  if s:code(l:before) =~# '[{(\[]\s*$'
    let l:indent += shiftwidth()
  elseif s:continues(l:before)
    let l:indent += l:is_rest ? 0 : shiftwidth()
  elseif l:is_rest
    let l:indent -= shiftwidth()
  endif
  if getline(a:line) =~# '^\s*[})\]]'
    let l:indent -= shiftwidth()
  endif
  return l:indent
endfunction

" Whether the statement of a line goes on in the next one, without a bracket.
function! s:continues(line) abort
  let l:code = s:code(a:line)
  return l:code =~# '\%([-+*/%^=<>]\|\<\%(and\|or\)\)\s*$' || l:code =~# '^\s*require\>.*,\s*$'
endfunction

" A line without what its strings say and without its comment.
function! s:code(line) abort
  let l:text = substitute(getline(a:line), '"\%(\\.\|[^"\\]\)*"', '""', 'g')
  return substitute(l:text, '#.*$', '', '')
endfunction
