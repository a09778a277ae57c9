autocmd BufRead,BufNewFile *.slapo setfiletype slapo
