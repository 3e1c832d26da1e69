-- docs/reference.md of the operator lists the reasons and the conditions.
local hs = {status = "Progressing", message = "waiting for the operator"}
-- A status of an earlier generation says nothing about the current spec.
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return hs
end
local conditions = {}
for _, condition in ipairs(obj.status.conditions or {}) do
  conditions[condition.type] = condition
end
local ready, reconciling, stalled = conditions["Ready"], conditions["Reconciling"], conditions["Stalled"]
if ready == nil then
  return hs
end
hs.message = ready.message
if stalled ~= nil and stalled.status == "True" then
  hs.status = "Degraded"
  hs.message = stalled.message
elseif ready.reason == "Suspended" then
  hs.status = "Suspended"
elseif ready.status == "True" then
  hs.status = "Healthy"
elseif reconciling ~= nil and reconciling.status == "True" then
  hs.message = reconciling.message
end
return hs
