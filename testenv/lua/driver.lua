-- Runs a script of Argo CD on an object, and prints what it returns as JSON: glua driver.lua SCRIPT OBJECT, where OBJECT is a file with a Lua table.

local function json(value)
  if type(value) == "string" then
    return '"' .. value:gsub('[%c"\\]', function(byte) return ("\\u%04x"):format(byte:byte()) end) .. '"'
  elseif type(value) ~= "table" then
    return tostring(value)
  end
  local parts = {}
  if value[1] ~= nil then
    for i, item in ipairs(value) do parts[i] = json(item) end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  for key, item in pairs(value) do table.insert(parts, json(key) .. ":" .. json(item)) end
  table.sort(parts)
  return "{" .. table.concat(parts, ",") .. "}"
end

local file = assert(io.open(arg[2]))
obj = assert(loadstring("return " .. file:read("*a")))()
-- Argo CD opens only the basic library and `table`, and has two functions of `os`, for those who require it.
package.loaded.os = {time = os.time, date = os.date}
local strings, methods = getmetatable(""), getmetatable("").__index
channel, coroutine, debug, io, math, os, string, strings.__index = nil
local result = dofile(arg[1])
strings.__index = methods
assert(type(result) == "table", "the script returns no table")
print(json(result))
