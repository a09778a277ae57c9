-- The language server of schedules in Neovim: `require("slapo").setup()` in `init.lua`.
--
-- `setup { cmd = { "/path/to/slapoc", "lsp" } }` where `slapoc` is not on the path; `setup { check = { world = 8 } }` for
-- the flags of `slapoc check`, as the README of the editors lists them.

local M = {}

local defaults = { cmd = { "slapoc", "lsp" }, root_markers = { "slapo.toml", ".git" } }

-- Clients by root, for a Neovim that does not look for a running one itself (before 0.8).
local clients = {}

local function root(markers, buffer)
  local folder = vim.fn.fnamemodify(vim.api.nvim_buf_get_name(buffer), ":p:h")
  for _, marker in ipairs(markers) do
    local file = vim.fn.findfile(marker, folder .. ";")
    if file ~= "" then
      return vim.fn.fnamemodify(file, ":p:h")
    end
    local directory = vim.fn.finddir(marker, folder .. ";")
    if directory ~= "" then
      return vim.fn.fnamemodify(directory, ":p:h:h")
    end
  end
  return folder
end

-- What `vim.lsp.config` takes (Neovim 0.11).
function M.config(options)
  options = vim.tbl_extend("force", defaults, options or {})
  return {
    name = "slapoc",
    cmd = options.cmd,
    filetypes = { "slapo" },
    root_markers = options.root_markers,
    init_options = { check = options.check },
  }
end

local function start(config, buffer)
  if vim.fn.executable(config.cmd[1]) == 0 then
    local message = "slapo: there is no `%s`: schedules are not checked"
    vim.notify_once(message:format(config.cmd[1]), vim.log.levels.WARN)
    return
  end
  local folder = root(config.root_markers, buffer)
  local options = vim.tbl_extend("force", config, { root_dir = folder })
  if vim.lsp.start then
    vim.lsp.start(options, { bufnr = buffer })
    return
  end
  clients[folder] = clients[folder] or vim.lsp.start_client(options)
  vim.lsp.buf_attach_client(buffer, clients[folder])
  vim.bo[buffer].omnifunc = "v:lua.vim.lsp.omnifunc"
end

function M.setup(options)
  local config = M.config(options)
  vim.api.nvim_create_autocmd("FileType", {
    pattern = "slapo",
    group = vim.api.nvim_create_augroup("slapo", {}),
    callback = function(event)
      start(config, event.buf)
    end,
  })
end

return M
