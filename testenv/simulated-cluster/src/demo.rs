//! The cluster of the demo, served over HTTP, and what its users send: GET and PATCH of ConfigMaps and ConfigMonitors.

use std::time::SystemTime;

use configmonitor_operator::monitor::spec::Spec;
use serde_json::{Value, json};

use crate::api::{Answer, Request};
use crate::content::{CONFIG_MAPS, KEYS, letter};
use crate::ledger::Life;
use crate::network::Network;
use crate::state::{ClusterState, Owners, Pace, References, Setting};

/// The delays of the demo, in milliseconds.
const PACE: Pace = Pace { creation: 100, readiness: 300, termination: 100 };

impl ClusterState {
    /// Creates the cluster of the demo at the present time: its ConfigMap, its Deployment of three pods, and these
    /// ConfigMonitors.
    pub fn demo(specs: Vec<Spec>) -> Self {
        let now = SystemTime::UNIX_EPOCH.elapsed().expect("the epoch has begun").as_millis();
        let beginning = u64::try_from(now).expect("a time of this age");
        let setting = Setting { beginning, references: References::ByOwner, ..Setting::of(Owners::Demo, PACE) };
        let mut state = Self::new(specs, setting, Network::new(0, 500, 32));
        state.set_content(CONFIG_MAPS[0], Some([Some('a'), None]));
        state
    }

    /// Serves a request that does not come from the operator: a GET of what is there now, or a PATCH.
    pub(crate) fn serve_user(&mut self, life: Life, request: &Request) -> Answer {
        let path: Vec<&str> = request.url.path_segments().expect("an HTTP URL").collect();
        let is_plain = request.url.query_pairs().all(|(name, _)| name == "labelSelector");
        match (request.method.as_str(), &path[..]) {
            ("GET", _) if is_plain => {
                let caller = self.ledger.caller(life, None, (0, self.ms));
                self.serve(&caller, request)
            }
            ("PATCH", [.., plural @ ("configmaps" | "configmonitors"), name]) => {
                let Ok(patch) = serde_norway::from_slice(&request.body) else {
                    return Answer::status(400, "BadRequest", "the patch is neither JSON nor YAML", "");
                };
                if *plural == "configmaps" {
                    self.patch_config_map(name, &patch)
                } else {
                    self.apply_monitor(name, &patch)
                }
            }
            _ => Answer::status(405, "MethodNotAllowed", "the simulated cluster does not serve this to users", ""),
        }
    }

    fn patch_config_map(&mut self, name: &str, patch: &Value) -> Answer {
        let Some(name) = CONFIG_MAPS.into_iter().find(|known| *known == name) else { return Answer::not_found() };
        let mut content = self.config_maps.get(name).map(|stored| stored.content).unwrap_or_default();
        for (key, value) in KEYS.iter().zip(&mut content) {
            match &patch["data"][key] {
                Value::String(text) => *value = Some(letter(text)),
                Value::Null if patch["data"].get(key).is_some() => *value = None,
                _ => {}
            }
        }
        self.set_content(name, Some(content));
        self.get_config_map(false, name)
    }

    /// Creates a ConfigMonitor, or patches the spec and the request of the one that exists.
    fn apply_monitor(&mut self, name: &str, patch: &Value) -> Answer {
        let known = self.monitor_by_name(name);
        let mut object = json!({"spec": known.map_or(json!({}), |known| json!(self.monitors[known].spec))});
        merge(&mut object, patch);
        let spec: Spec = match serde_json::from_value(object["spec"].take()) {
            Ok(spec) => spec,
            Err(error) => return Answer::status(422, "Invalid", &error.to_string().replace('"', "'"), ""),
        };
        match known {
            Some(known) => self.set_spec(known, |edited| *edited = spec),
            None => self.create_monitor(name.into(), spec),
        }
        let request = &object["metadata"]["annotations"]["magalix.com/restart-requested-at"];
        if let (Some(known), Some(value)) = (self.monitor_by_name(name), request.as_str()) {
            self.ask(known, letter(value));
        }
        self.get_monitor(name)
    }
}

/// Applies a merge patch (RFC 7386).
fn merge(value: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else { return value.clone_from(patch) };
    if !value.is_object() {
        *value = json!({});
    }
    for (key, its) in fields {
        match its {
            Value::Null => _ = value.as_object_mut().and_then(|value| value.remove(key)),
            _ => merge(&mut value[key], its),
        }
    }
}
