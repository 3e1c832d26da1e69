-- Without require, Argo CD has no os.
local os = require("os")
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
-- Any new value requests a restart.
obj.metadata.annotations["magalix.com/restart-requested-at"] = os.date("!%Y-%m-%dT%H:%M:%SZ")
return obj
