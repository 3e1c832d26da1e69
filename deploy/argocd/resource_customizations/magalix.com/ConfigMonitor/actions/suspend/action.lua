-- Without require, Argo CD has no os.
local os = require("os")
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
-- By this annotation, `kubectl cmon resume --all` finds what was suspended by hand.
obj.metadata.annotations["magalix.com/suspended-at"] = os.date("!%Y-%m-%dT%H:%M:%SZ")
obj.spec.suspend = true
return obj
