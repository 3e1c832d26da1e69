//! What a part has measured, as a file of the tree. Its picture is drawn from this file alone.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use testenv::binaries::Binaries;
use testenv::project;

/// Where pictures and data are.
const IMAGES: &str = "docs/images";

/// A picture, and what its data look like.
pub(crate) trait Picture {
    /// The name of both files.
    const NAME: &str;
    /// What holds for all rows.
    type Settings: Serialize + DeserializeOwned;
    type Row: Serialize + DeserializeOwned;

    fn draw(data: &Data<Self>) -> String
    where
        Self: Sized;
}

/// The data of one picture.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Data<P: Picture> {
    pub(crate) run: Run,
    pub(crate) settings: P::Settings,
    pub(crate) rows: Vec<P::Row>,
}

/// When and where it was measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Run {
    date: String,
    machine: String,
    kubernetes: String,
}

impl<P: Picture> Data<P> {
    /// Writes the data into the tree and draws the picture.
    pub(crate) fn publish(&self) -> Result<()> {
        let file = data_file::<P>();
        fs::write(&file, self.text()?).with_context(|| format!("cannot write {}", file.display()))?;
        Self::redraw()
    }

    /// Draws the picture from the data in the tree.
    pub(crate) fn redraw() -> Result<()> {
        let file = picture_file::<P>();
        fs::write(&file, P::draw(&Self::read()?)).with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!("drawn: {IMAGES}/{}.svg", P::NAME);
        Ok(())
    }

    fn read() -> Result<Self> {
        let file = data_file::<P>();
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} has not the data of this picture", file.display()))
    }

    /// Returns JSON with a line for each row.
    fn text(&self) -> Result<String> {
        let rows: Vec<String> = self.rows.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        let (run, settings) = (serde_json::to_string(&self.run)?, serde_json::to_string(&self.settings)?);
        let rows = rows.join(",\n    ");
        Ok(format!("{{\n  \"run\": {run},\n  \"settings\": {settings},\n  \"rows\": [\n    {rows}\n  ]\n}}\n"))
    }
}

impl Run {
    /// Today, on this machine.
    pub(crate) async fn now() -> Result<Self> {
        let output = Command::new(Binaries::prepare().await?.program("kube-apiserver")).arg("--version").output()?;
        let kubernetes = String::from_utf8(output.stdout)?.trim().to_owned();
        Ok(Self { date: Timestamp::now().strftime("%Y-%m-%d").to_string(), machine: machine()?, kubernetes })
    }

    /// Returns a line for the foot of a picture.
    pub(crate) fn line(&self) -> String {
        format!("{}, {}, {}", self.date, self.kubernetes, self.machine)
    }
}

/// Returns the processors of this machine.
pub(crate) fn machine() -> Result<String> {
    let model = fs::read_to_string("/proc/cpuinfo")?;
    let model = model.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let processors = std::thread::available_parallelism()?;
    Ok(format!("{processors} processors, {}", model.trim_start_matches([' ', '\t', ':'])))
}

fn data_file<P: Picture>() -> PathBuf {
    project(&format!("{IMAGES}/data/{}.json", P::NAME))
}

fn picture_file<P: Picture>() -> PathBuf {
    project(&format!("{IMAGES}/{}.svg", P::NAME))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::picture::memory::{self, Memory};
    use crate::picture::restart::Restart;
    use crate::picture::rolling::Rolling;

    #[test]
    fn each_picture_in_the_tree_is_what_its_data_draw() {
        fn check<P: Picture>() {
            let data = Data::<P>::read().unwrap();
            let drawn = fs::read_to_string(picture_file::<P>()).unwrap();
            assert!(P::draw(&data) == drawn, "{}.svg is outdated: run `make bench PART=pictures`", P::NAME);
        }
        check::<Restart>();
        check::<Memory>();
        check::<Rolling>();
    }

    #[test]
    fn memory_is_drawn_against_the_limit_of_the_shipped_manifest() {
        assert_eq!(Data::<Memory>::read().unwrap().settings.limit_mib, memory::shipped_limit().unwrap());
    }
}
