local suspended = obj.spec.suspend == true
local actions = {}
-- A request made while the ConfigMonitor is suspended restarts all pods later, once it is resumed.
actions["restart"] = {["disabled"] = suspended, ["iconClass"] = "fa fa-fw fa-redo"}
actions["suspend"] = {["disabled"] = suspended, ["iconClass"] = "fa fa-fw fa-pause-circle"}
actions["resume"] = {["disabled"] = not suspended, ["iconClass"] = "fa fa-fw fa-play-circle"}
return actions
