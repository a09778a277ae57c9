-- Neovim as an editor of schedules: these files, the real `slapoc lsp`, and the keys that a user presses. From the root of
-- the repository:
--
--     SLAPOC=target/debug/slapoc nvim --headless -u NONE -i NONE -c "luafile editors/vim/test/server.lua"
--
-- This Neovim presses the keys of another one, whose screen nobody sees. Ends with 1 and the fault on the error stream
-- where something is wrong.

local WAIT = 10000 -- milliseconds
local here = vim.fn.getcwd()
local slapoc = vim.fn.fnamemodify(vim.env.SLAPOC or "target/debug/slapoc", ":p")
local folder = vim.fn.tempname()
local file = folder .. "/main.slapo"

local HEAD = {
  ('model "%s/examples/gpt2/gpt2-tiny.pt2"'):format(here),
  "input { batch = 8, seq = 64 }",
  "mesh { tp = 2 }",
  "",
}

local editor

local function lua(code, ...)
  return vim.fn.rpcrequest(editor, "nvim_exec_lua", code, { ... })
end

local function press(keys)
  vim.fn.rpcrequest(editor, "nvim_input", keys)
end

-- What `code` returns, once that is neither nil nor false.
local function eventually(what, code, ...)
  local arguments, found = { ... }, nil
  local is_there = vim.wait(WAIT, function()
    found = lua(code, unpack(arguments))
    return found ~= vim.NIL and found ~= nil and found ~= false
  end, 20)
  if not is_there then
    local screen = table.concat(lua("return vim.api.nvim_buf_get_lines(0, 0, -1, false)"), "\n")
    local said = lua("return vim.fn.execute('messages')")
    error(("%s: not within %d s. The text:\n%s\nMessages: %s"):format(what, WAIT / 1000, screen, said))
  end
  return found
end

local function assert_equal(expected, found, what)
  if not vim.deep_equal(expected, found) then
    error(("%s: expected %s, found %s"):format(what, vim.inspect(expected), vim.inspect(found)))
  end
end

local function assert_holds(text, part, what)
  if not text:find(part, 1, true) then
    error(("%s: `%s` is not in:\n%s"):format(what, part, text))
  end
end

-- Opens a schedule in a Neovim with nothing but our files, set up as the README says.
local function open(options)
  editor = vim.fn.jobstart({ vim.v.progpath, "--embed", "--headless", "-u", "NONE", "-i", "NONE", "-n" }, { rpc = true })
  assert(editor > 0, "Neovim does not start")
  lua(
    [[
      local folder, file, options = ...
      vim.opt.runtimepath:prepend(folder)
      vim.opt.completeopt = { "menuone", "noinsert" }
      vim.cmd("filetype plugin indent on")
      vim.cmd("syntax on")
      require("slapo").setup(options)
    ]],
    here .. "/editors/vim",
    file,
    options
  )
end

local function show(lines)
  vim.fn.writefile(lines, file)
  lua("vim.api.nvim_command('edit! ' .. ...)", file)
end

-- Until the server knows the text.
local function attached()
  eventually(
    "a client",
    [[
      for _, client in ipairs((vim.lsp.get_clients or vim.lsp.get_active_clients)()) do
        if client.name == "slapoc" and vim.lsp.buf_is_attached(0, client.id) then
          return true
        end
      end
    ]]
  )
end

-- Asks for names, and waits for what is offered.
local function menu()
  press("<C-x><C-o>")
  return eventually(
    "a menu",
    [[
      local items = vim.fn.complete_info({ "items" }).items
      return #items > 0 and vim.tbl_map(function(item) return item.abbr end, items)
    ]]
  )
end

-- The code and the place of what is shown as wrong: `S0400 6:7`, from 1.
local function diagnostics()
  return lua([[
    return vim.tbl_map(function(found)
      return ("%s %d:%d"):format(found.code, found.lnum + 1, found.col + 1)
    end, vim.diagnostic.get(0))
  ]])
end

-- A schedule with these statements; what is typed is on line 7.
local function main_of(...)
  local lines = vim.list_extend(vim.deepcopy(HEAD), { "schedule main(m: GPT2LMHeadModel) {", "    m.data_parallel(over: tp)" })
  return vim.list_extend(vim.list_extend(lines, { ... }), { "}" })
end

local scenarios = {}

function scenarios.a_mistake_is_shown_and_goes_with_its_cause()
  show(main_of("    m.transformer.h[0].mpl.checkpoint()"))
  assert_equal("slapo", lua("return vim.bo.filetype"), "the file type")
  eventually("a diagnostic", "return #vim.diagnostic.get(0) > 0")
  assert_equal({ "S0201 7:24" }, diagnostics(), "what is wrong")
  assert_holds(lua("return vim.diagnostic.get(0)[1].message"), "did you mean `mlp`?", "the message")
  press("7G0fpxp")
  eventually("no diagnostic", "return #vim.diagnostic.get(0) == 0")
  assert_equal("    m.transformer.h[0].mlp.checkpoint()", lua("return vim.fn.getline(7)"), "the line")
end

function scenarios.paths_are_completed_from_the_model()
  show(main_of())
  attached()
  press("6Gom.transformer.h[0].")
  local words = menu()
  assert_equal({ "ln_1", "attn", "ln_2", "mlp" }, vim.list_slice(words, 1, 4), "what is offered")
  press("ml<C-y>.checkpoint()<Esc>")
  eventually("the line", "return vim.fn.getline(7) == '    m.transformer.h[0].mlp.checkpoint()'")
end

function scenarios.a_schedule_is_written_from_nothing()
  vim.fn.writefile(vim.fn.readfile("examples/gpt2/gpt2-tiny.pt2", "b"), folder .. "/gpt2.pt2", "b")
  show({})
  attached()
  press('imodel "')
  assert_equal({ "gpt2.pt2" }, menu(), "models")
  press('<C-y>"<CR>input { batch = 8, seq = 64 }<CR>mesh { tp = 2 }<CR><CR>schedule main(m: GPT2LM')
  assert_equal({ "GPT2LMHeadModel" }, menu(), "classes")
  press("<C-y>) {<CR>")
  eventually("what is missing", "return #vim.diagnostic.get(0) > 0")
  press("m.data_parallel(over: tp)<CR>m.tra")
  assert_equal({ "transformer" }, menu(), "modules")
  press("<C-y>.h.*.checkpoint()<CR>}<Esc>")
  eventually("no diagnostic", "return #vim.diagnostic.get(0) == 0")
  local text = lua("return vim.api.nvim_buf_get_lines(0, 0, -1, false)")
  assert_equal({
    'model "gpt2.pt2"',
    "input { batch = 8, seq = 64 }",
    "mesh { tp = 2 }",
    "",
    "schedule main(m: GPT2LMHeadModel) {",
    "    m.data_parallel(over: tp)",
    "    m.transformer.h.*.checkpoint()",
    "}",
  }, text, "the text")
end

function scenarios.what_is_under_the_cursor_is_explained()
  show(main_of("    m.transformer.h[0].mlp.c_fc.weight.shard(out, over: tp)"))
  attached()
  press("7G0fcfc:lua vim.lsp.buf.hover()<CR>")
  local text = eventually(
    "a window",
    [[
      for _, window in ipairs(vim.api.nvim_list_wins()) do
        if vim.api.nvim_win_get_config(window).relative ~= "" then
          return table.concat(vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(window), 0, -1, false), "\n")
        end
      end
    ]]
  )
  assert_holds(text, "Conv1D", "the class")
  assert_holds(text, "[64, 256] f32", "the whole")
  assert_holds(text, "[64, 128]", "the part of a rank")
end

function scenarios.a_schedule_is_formatted()
  show(main_of("  m.freeze( )"))
  attached()
  press(":lua if vim.lsp.buf.format then vim.lsp.buf.format() else vim.lsp.buf.formatting_sync() end<CR>")
  eventually("the line", "return vim.fn.getline(7) == '    m.freeze()'")
end

function scenarios.settings_are_flags_of_check()
  show(vim.list_extend({ "use std.parallel.column" }, main_of()))
  eventually("a diagnostic", "return #vim.diagnostic.get(0, { severity = vim.diagnostic.severity.ERROR }) > 0")
  assert_equal({ "S1101 1:18" }, diagnostics(), "the lint that is an error")
end

function scenarios.words_are_highlighted()
  show(main_of("    m.freeze()"))
  local group = lua("return vim.fn.synIDattr(vim.fn.synID(7, 7, 1), 'name')")
  assert_equal("slapoPrimitive", group, "the group of `freeze`")
end

local function run()
  vim.fn.mkdir(folder, "p")
  open({ cmd = { slapoc, "lsp" }, check = { deny = { "unused-import" } } })
  local names = vim.tbl_keys(scenarios)
  table.sort(names)
  for _, name in ipairs(names) do
    local is_good, fault = pcall(scenarios[name])
    press("<Esc><Esc>")
    if not is_good then
      error(("%s: %s"):format(name, fault), 0)
    end
  end
  vim.fn.jobstop(editor)
end

local is_good, fault = pcall(run)
vim.fn.delete(folder, "rf")
if not is_good then
  io.stderr:write(fault .. "\n")
  vim.cmd("cquit")
end
vim.cmd("qall!")
