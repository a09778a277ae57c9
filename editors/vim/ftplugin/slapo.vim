" Vim settings for schedules of slapoc.

if exists('b:did_ftplugin')
  finish
endif
let b:did_ftplugin = 1

setlocal comments=:##,:# commentstring=#\ %s
setlocal expandtab shiftwidth=4 softtabstop=4
setlocal formatoptions-=t formatoptions+=croql
setlocal suffixesadd=.slapo

" `gq` formats comments as text does; this formats the whole file as `slapoc fmt` writes it.
if executable('slapoc')
  command! -buffer SlapoFormat call s:format()
endif

function! s:format() abort
  let l:text = systemlist('slapoc fmt -', getline(1, '$'))
  if v:shell_error
    echohl ErrorMsg | echo join(l:text, "\n") | echohl None
    return
  endif
  let l:view = winsaveview()
  call setline(1, l:text)
  if line('$') > len(l:text)
    call deletebufline('%', len(l:text) + 1, '$')
  endif
  call winrestview(l:view)
endfunction

let b:undo_ftplugin = 'setlocal comments< commentstring< expandtab< shiftwidth< softtabstop< formatoptions< suffixesadd<'
      \ . ' | silent! delcommand SlapoFormat'
