//! `cargo xtask try`: the real agent at work in a sample repository, from an empty clone, without an account.

mod lane;
mod sample;

use std::{path::PathBuf, process::Command, time::Instant};

use anyhow::{Context, Result};

use crate::{binary, repository, shell};
use lane::Lane;
use sample::Sample;

const PROVIDER: &str = "grok@1.0.41";

/// Everything the lanes of this task share.
struct Demo {
    binary: PathBuf,
    folder: PathBuf,
}

impl Demo {
    /// The binary, with its state below the build folder: nothing outside the repository is touched.
    fn stockade(&self) -> Command {
        let mut command = shell::command(&self.binary);
        command.env("XDG_STATE_HOME", self.folder.join("state"));
        command
    }
}

pub(crate) fn run() -> Result<()> {
    let start = Instant::now();
    headline("build");
    let demo = Demo { binary: binary::build()?, folder: repository::target().join("try") };
    std::fs::create_dir_all(&demo.folder).with_context(|| format!("making {}", demo.folder.display()))?;

    headline(&format!("provision {PROVIDER}: against its pin, once"));
    shell::run(demo.stockade().args(["provision", PROVIDER]))?;

    headline("doctor: what this host can hold");
    shell::run(demo.stockade().args(["doctor", "--provider", "grok", "--provider-sandbox", "replace"]))?;

    headline("rehearse: the real agent on a scripted model, every check from outside");
    shell::run(demo.stockade().args(["rehearse", "--provider", "grok", "--provider-sandbox", "replace"]))?;

    let sample = Sample::make(&demo.folder.join("sample"))?;
    for lane in [Lane::read_only(), Lane::isolated_write()] {
        headline(&format!("a lane in {}", lane.mode));
        lane.run(&demo, &sample)?;
    }
    println!(
        "\nEverything above is in {}. Took {:.1} s.",
        demo.folder.display(),
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn headline(text: &str) {
    println!("\n=== {text}");
}
