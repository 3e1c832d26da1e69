//! The time from the edit to the first and to the last DELETE: of one Deployment, and of 50 at once.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use testenv::fixture::{Fixture, NAME, share_proxy};
use testenv::{ControlPlane, Operator, Proxy};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::audit::{Audit, Request};
use crate::contestants::{Contestant, Pods, limit};
use crate::floor::floor;
use crate::ground::{
    self, all_ready, all_up_to_date, config_map, control_plane, create_all, edit_all, first_and_last, monitor,
    start_operator,
};
use crate::table::{self, Sample};

/// What is edited, and which pods it concerns.
struct Case {
    title: &'static str,
    deployments: usize,
    replicas: usize,
    one_config_map: bool,
    one_monitor: bool,
    repetitions: usize,
}

/// The first DELETE is compared to a few milliseconds, which takes more repetitions than the last DELETE does.
const CASES: [Case; 4] = [
    ONE_POD,
    Case { title: "10 pods", replicas: 10, repetitions: 21, ..ONE_POD },
    Case { title: "100 pods", replicas: 100, repetitions: 21, ..ONE_POD },
    Case { title: "1000 pods", replicas: 1000, repetitions: 3, ..ONE_POD },
];

const STORM: [Case; 3] = [
    Case { title: "50 Deployments of 2 pods, one ConfigMonitor", one_config_map: true, one_monitor: true, ..OF_EACH },
    Case { title: "50 Deployments of 2 pods, 50 ConfigMonitors", one_config_map: true, ..OF_EACH },
    OF_EACH,
];

const ONE_POD: Case =
    Case { title: "1 pod", deployments: 1, replicas: 1, one_config_map: true, one_monitor: true, repetitions: 11 };

const OF_EACH: Case = Case {
    title: "50 ConfigMaps at once, 2 pods each",
    deployments: 50,
    replicas: 2,
    one_config_map: false,
    one_monitor: false,
    repetitions: 5,
};

const CONTESTANTS: [&str; 3] = ["limit", "floor", "operator"];

/// The times from the edit to the first and to the last DELETE, in milliseconds.
#[derive(Default)]
struct Times {
    first: Sample,
    last: Sample,
}

pub(crate) async fn run() -> Result<()> {
    measure_all(&CASES).await
}

pub(crate) async fn storm() -> Result<()> {
    measure_all(&STORM).await
}

async fn measure_all(cases: &[Case]) -> Result<()> {
    table::title(
        "From the edit to the DELETE of the first and of the last pod, in ms: the median, and where half of them lie",
    );
    table::head(&["", "who", "first", "last", "last ÷ limit", "first − floor", "last ÷ floor"]);
    for case in cases {
        measure(case).await?;
    }
    Ok(())
}

impl Case {
    fn pods(&self) -> usize {
        self.deployments * self.replicas
    }

    fn app(&self, deployment: usize) -> String {
        if self.one_monitor { NAME.to_owned() } else { format!("{NAME}-{deployment}") }
    }

    fn config_map(&self, deployment: usize) -> String {
        if self.one_config_map { NAME.to_owned() } else { format!("{NAME}-{deployment}") }
    }

    fn config_maps(&self) -> Vec<String> {
        let count = if self.one_config_map { 1 } else { self.deployments };
        (0..count).map(|number| self.config_map(number)).collect()
    }

    async fn set_up(&self, fixture: &Fixture) -> Result<()> {
        let config_maps = self.config_maps();
        create_all(fixture, "configmaps", config_maps.iter().map(|name| config_map(name, "0"))).await?;
        for number in 0..self.deployments {
            let labels = json!({"app": self.app(number), "deployment": number.to_string()});
            fixture.create_deployment(&format!("{NAME}-{number}"), self.replicas, &labels).await;
        }
        let monitors = if self.one_monitor { 1 } else { self.deployments };
        let monitors = (0..monitors)
            .map(|number| monitor(&format!("{NAME}-{number}"), &self.config_map(number), &self.app(number)));
        create_all(fixture, "configmonitors", monitors).await?;
        all_ready(fixture, self.pods()).await.map(drop)
    }

    fn by_config_map(&self, pods: &[Value]) -> Pods {
        let mut names = Pods::new();
        for pod in pods {
            let (name, labels) = (&pod["metadata"]["name"], &pod["metadata"]["labels"]);
            let number = labels["deployment"].as_str().and_then(|number| number.parse().ok()).unwrap_or_default();
            names.entry(self.config_map(number)).or_default().extend(name.as_str().map(str::to_owned));
        }
        names
    }
}

/// What exists during all turns of a case.
struct Field<'a> {
    case: &'a Case,
    _proxy: Proxy,
    fixtures: [Fixture; CONTESTANTS.len()],
    audit: Audit,
    pods: watch::Sender<Pods>,
    contestants: Vec<Contestant>,
    _operator: Operator,
    _control_plane: ControlPlane,
}

impl<'a> Field<'a> {
    async fn new(case: &'a Case) -> Result<Self> {
        let control_plane = control_plane().await?;
        let fixtures = [
            Fixture::new(&control_plane).await,
            Fixture::new(&control_plane).await,
            Fixture::new(&control_plane).await,
        ];
        let proxy = share_proxy(&control_plane, &fixtures).await;
        for fixture in &fixtures {
            case.set_up(fixture).await?;
        }
        let (pods, known) = watch::channel(Pods::new());
        let [of_limit, of_floor, of_operator] = &fixtures;
        let contestants = vec![limit(&proxy.url(), of_limit, known).await?, floor(&proxy.url(), of_floor).await?];
        let operator = start_operator(&proxy.url(), of_operator, &[])?;
        all_up_to_date(of_operator).await?;
        let audit = ground::audit(&control_plane)?;
        Ok(Self {
            case,
            _proxy: proxy,
            fixtures,
            audit,
            pods,
            contestants,
            _operator: operator,
            _control_plane: control_plane,
        })
    }

    /// Edits once. Returns the requests in the namespace of this contestant until everything is at rest again.
    async fn turn(&mut self, contestant: usize, content: &str) -> Result<Vec<Request>> {
        let (case, fixture) = (self.case, &self.fixtures[contestant]);
        self.pods.send_replace(case.by_config_map(&all_ready(fixture, case.pods()).await?));
        let requests = edit_all(&mut self.audit, fixture, &case.config_maps(), content, case.pods()).await;
        for contestant in std::mem::take(&mut self.contestants) {
            self.contestants.push(contestant.check()?);
        }
        let mut requests = requests?;
        all_ready(fixture, case.pods()).await?;
        if CONTESTANTS[contestant] == "operator" {
            all_up_to_date(fixture).await?;
            sleep(Duration::from_millis(500)).await;
        }
        requests.extend(self.audit.news(&fixture.namespace)?);
        Ok(requests)
    }
}

/// Measures all contestants in turns.
async fn measure(case: &Case) -> Result<()> {
    let mut field = Field::new(case).await?;
    let mut times: [Times; CONTESTANTS.len()] = Default::default();
    // The first repetition warms up.
    for repetition in 0..=case.repetitions {
        for turn in 0..CONTESTANTS.len() {
            let contestant = (repetition + turn) % CONTESTANTS.len();
            let times = &mut times[contestant];
            let requests = field.turn(contestant, &format!("content {}", repetition + 1)).await?;
            if repetition > 0 {
                let (first, last) = first_and_last(&requests).context("no deletion")?;
                times.first.add(first);
                times.last.add(last);
            }
        }
    }
    let [limit, floor, ..] = &times;
    for (name, of) in CONTESTANTS.iter().zip(&times) {
        table::row(&[
            case.title.to_owned(),
            (*name).to_owned(),
            of.first.to_string(),
            of.last.to_string(),
            format!("{:.2}", of.last.median() / limit.last.median()),
            format!("{:+.1}", of.first.median() - floor.first.median()),
            format!("{:.2}", of.last.median() / floor.last.median()),
        ]);
    }
    Ok(())
}
