-- The language server of schedules in Neovim: `require("slapo").setup()` in `init.lua`.
--
-- `setup { cmd = { "/path/to/slapoc", "lsp" } }` where `slapoc` is not on the path.

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

local function start(options, buffer)
  if vim.fn.executable(options.cmd[1]) == 0 then
    vim.notify_once(("slapo: there is no `%s`: schedules are not checked"):format(options.cmd[1]), vim.log.levels.WARN)
    return
  end
  local config = { name = "slapoc", cmd = options.cmd, root_dir = root(options.root_markers, buffer) }
  if vim.lsp.start then
    vim.lsp.start(config, { bufnr = buffer })
    return
  end
  clients[config.root_dir] = clients[config.root_dir] or vim.lsp.start_client(config)
  vim.lsp.buf_attach_client(buffer, clients[config.root_dir])
end

function M.setup(options)
  options = vim.tbl_extend("force", defaults, options or {})
  vim.api.nvim_create_autocmd("FileType", {
    pattern = "slapo",
    group = vim.api.nvim_create_augroup("slapo", {}),
    callback = function(event)
      start(options, event.buf)
    end,
  })
end

return M
