//! The rules of the house, checked from cargo's metadata and the text of the files.

mod bans;
mod features;
mod generated;
mod layers;
mod licences;
mod lints;
mod profiles;
mod sizes;
mod unsafety;
mod words;

use std::path::Path;

use anyhow::{Result, bail};
use cargo_metadata::{Metadata, MetadataCommand};

use crate::{repository, shell};
pub(crate) use generated::Generated;

/// What every check looks at.
struct House {
    files: Vec<String>,
    metadata: Metadata,
}

impl House {
    /// The Rust files.
    fn sources(&self) -> impl Iterator<Item = &String> {
        self.files.iter().filter(|f| Path::new(f).extension().is_some_and(|e| e == "rs"))
    }
}

/// What is not as it should be, one line each.
#[derive(Debug, Default)]
struct Findings(Vec<String>);

impl Findings {
    fn add(&mut self, finding: impl Into<String>) {
        self.0.push(finding.into());
    }
}

pub(crate) fn run(generated: Generated) -> Result<()> {
    let metadata = MetadataCommand::new()
        .manifest_path(repository::root().join("Cargo.toml"))
        .other_options(["--locked", "--filter-platform", "x86_64-unknown-linux-gnu"].map(str::to_owned))
        .exec()?;
    let house = House { files: repository::files()?, metadata };
    let mut findings = Findings::default();
    layers::check(&house, &mut findings);
    bans::check(&house, &mut findings)?;
    licences::check(&house, &mut findings)?;
    features::check(&house, &mut findings)?;
    lints::check(&house, &mut findings)?;
    sizes::check(&house, &mut findings)?;
    unsafety::check(&house, &mut findings)?;
    words::check(&house, &mut findings)?;
    profiles::check(&mut findings)?;
    generated::check(generated, &mut findings)?;
    if shell::run(repository::cargo("fmt").args(["--all", "--check", "--", "--files-with-diff"])).is_err() {
        findings.add("not formatted: run `cargo fmt`");
    }
    if findings.0.is_empty() {
        return Ok(());
    }
    for finding in &findings.0 {
        eprintln!("tidy: {finding}");
    }
    bail!("{} finding(s)", findings.0.len())
}
