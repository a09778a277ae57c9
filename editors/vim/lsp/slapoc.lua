-- For `vim.lsp.enable("slapoc")` (Neovim 0.11), where nothing is to be set.

return require("slapo").config()
