local annotations = obj.metadata.annotations
if annotations ~= nil then
  annotations["magalix.com/suspended-at"] = nil
  -- Older versions of Argo CD restore a table that has become empty.
  if next(annotations) == nil then
    obj.metadata.annotations = nil
  end
end
obj.spec.suspend = nil
return obj
