//! The built binary, always of the `ci` profile.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::{repository, shell};

/// The variable that arms a fault point. A binary that knows it has fault points.
const FAULT_POINT_VARIABLE: &str = "STOCKADE_FAULT_POINT";

/// Builds the binary as a release has it: no fault points.
pub(crate) fn build() -> Result<PathBuf> {
    shell::run(repository::cargo("build").args(["--locked", "--profile", "ci", "-p", "stockade"]))?;
    Ok(repository::target().join("ci/stockade"))
}

/// Builds the binary for the tests: with fault points, at a path that other builds leave alone.
pub(crate) fn build_for_tests() -> Result<PathBuf> {
    let mut cargo = repository::cargo("build");
    shell::run(cargo.args(["--locked", "--profile", "ci", "-p", "stockade", "--features", "fault-points"]))?;
    let folder = repository::target().join("test-bin");
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let copy = folder.join("stockade");
    // Removed first: a running copy cannot be written to.
    if copy.exists() {
        std::fs::remove_file(&copy).with_context(|| format!("removing {}", copy.display()))?;
    }
    std::fs::copy(repository::target().join("ci/stockade"), &copy)
        .with_context(|| format!("copying to {}", copy.display()))?;
    Ok(copy)
}

/// Proves that fault points are in the one binary and not in the other.
pub(crate) fn check_fault_points(release: &Path, tests: &Path) -> Result<()> {
    ensure!(knows_fault_points(tests)?, "the binary for the tests has no fault points: nothing is proven");
    ensure!(!knows_fault_points(release)?, "a build without the feature `fault-points` has fault points");
    Ok(())
}

fn knows_fault_points(binary: &Path) -> Result<bool> {
    let bytes = std::fs::read(binary).with_context(|| format!("reading {}", binary.display()))?;
    let needle = FAULT_POINT_VARIABLE.as_bytes();
    Ok(bytes.windows(needle.len()).any(|window| window == needle))
}
