" Tests of the Vim files, in Vim or Neovim, from the root of the repository:
"
"     vim -es -u NONE -i NONE -N -S editors/vim/test/run.vim
"
" Ends with 1 and the faults on the error stream where something is wrong.

set nomore noswapfile shortmess+=A
set runtimepath^=editors/vim
filetype plugin indent on
syntax on

" The group that a word gets, or nothing: the column is where `\zs` stands in the pattern.
function! s:group(pattern) abort
  let [l:line, l:column] = searchpos(a:pattern, 'cnw')
  return substitute(synIDattr(synID(l:line, l:column, 1), 'name'), '^slapo', '', '')
endfunction

function! s:test_highlighting() abort
  enew
  setfiletype slapo
  call setline(1, [
        \ '## Documented.',
        \ 'mesh { dp = auto, tp = 2 }',
        \ 'schedule main(m: Module, over: axis) {',
        \ '    for b in m.shard[..n / 2] {',
        \ '        b.{weight, bias?}.shard(out, over: tp)  # why',
        \ '    }',
        \ '    m.for.**.only(Linear).checkpoint()',
        \ '    require not len(m) == 10MiB, "say \"no\""',
        \ '}'])
  for [l:pattern, l:group] in [
        \ ['## Doc', 'Documentation'], ['^mesh', 'Item'], ['auto', 'Constant'], ['^schedule', 'Item'], ['main', 'Definition'],
        \ ['\zsm: ', 'Label'], ['Module', 'Type'], ['axis', 'Type'], ['for b', 'Statement'], ['\.\zsshard\[', 'Path'],
        \ ['weight', 'BraceName'], ['\.\zsshard(', 'Primitive'], ['out', 'Constant'], ['over: tp', 'Label'], ['# why', 'Comment'],
        \ ['\.\zsfor', 'Path'], ['\*\*', 'Wildcard'], ['only', 'Query'], ['checkpoint', 'Primitive'], ['require', 'Statement'],
        \ ['not', 'OperatorWord'], ['len', 'Function'], ['==', 'Operator'], ['10MiB', 'Number'], ['say', 'String'],
        \ ['\\"no', 'Escape']]
    call assert_equal(l:group, s:group(l:pattern), l:pattern)
  endfor
endfunction

" Lines that have lost their indentation get back what `slapoc fmt` gave them.
function! s:test_indentation() abort
  let l:paths = glob('stdlib/*.slapo', 0, 1) + glob('examples/*/*.slapo', 0, 1) + glob('tests/syntax/good/*.slapo', 0, 1)
  call assert_true(len(l:paths) > 20, 'schedules are missing')
  for l:path in l:paths
    let l:lines = readfile(l:path)
    enew!
    setfiletype slapo
    call setline(1, map(copy(l:lines), 'substitute(v:val, "^ *", "", "")'))
    silent normal! gg=G
    call assert_equal(l:lines, getline(1, '$'), l:path)
  endfor
endfunction

function! s:test_file_type() abort
  edit! stdlib/parallel.slapo
  call assert_equal('slapo', &filetype)
  call assert_equal('# %s', &commentstring)
  call assert_equal(4, &shiftwidth)
endfunction

" Without a server there is one warning, and editing goes on.
function! s:test_missing_server() abort
  if !has('nvim')
    return
  endif
  lua require('slapo').setup { cmd = { 'no-such-slapoc', 'lsp' } }
  edit! stdlib/memory.slapo
  call assert_match('there is no `no-such-slapoc`', execute('messages'))
  call assert_equal('slapo', &filetype)
endfunction

try
  call s:test_highlighting()
  call s:test_indentation()
  call s:test_file_type()
  call s:test_missing_server()
catch
  call add(v:errors, v:exception . ' at ' . v:throwpoint)
endtry

if !empty(v:errors)
  call writefile(v:errors, '/dev/stderr')
  cquit
endif
qall!
