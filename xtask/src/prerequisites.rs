//! What the tests need of the machine, beside Rust.

use anyhow::{Result, bail};

use crate::shell;

/// A program and the Debian package that brings it.
struct Need {
    program: &'static str,
    package: &'static str,
    why: &'static str,
}

const NEEDS: [Need; 5] = [
    Need { program: "curl", package: "curl", why: "what a tool reaches through the egress listener" },
    Need { program: "git", package: "git", why: "sample repositories and linked worktrees" },
    Need { program: "bwrap", package: "bubblewrap", why: "the host class with everything on" },
    Need { program: "socat", package: "socat", why: "Claude Code's own sandbox, which is kept in a test" },
    Need { program: "ip", package: "iproute2", why: "the network in which every connection is seen" },
];

/// Installs what is missing where that is possible. On CI a missing part is an error; elsewhere it is told, and the
/// tests that need it fail by name.
pub(crate) fn install() -> Result<()> {
    let missing: Vec<&Need> = NEEDS.iter().filter(|n| shell::find_on_path(n.program).is_none()).collect();
    if !missing.is_empty() && is_root() && shell::find_on_path("apt-get").is_some() {
        let packages = missing.iter().map(|n| n.package);
        let mut update = shell::command("apt-get");
        shell::run(update.args(["-qq", "update"]))?;
        let mut install = shell::command("apt-get");
        install.args(["-qq", "install", "-y", "--no-install-recommends"]).args(packages);
        shell::run(install.env("DEBIAN_FRONTEND", "noninteractive"))?;
    }
    let mut problems = Vec::new();
    for need in NEEDS.iter().filter(|n| shell::find_on_path(n.program).is_none()) {
        problems.push(format!("`{}` is missing ({}): install `{}`", need.program, need.why, need.package));
    }
    if !is_root() {
        problems.push("not root: tests that become other users or map ids cannot run".to_owned());
    }
    if is_ci() && !problems.is_empty() {
        bail!("{}", problems.join("; "));
    }
    for problem in problems {
        eprintln!("warning: {problem}; the tests that need it will fail");
    }
    Ok(())
}

/// Whether this is a continuous integration run, by the variable that all of them set.
pub(crate) fn is_ci() -> bool {
    shell::variable("CI").is_some_and(|value| value != "false")
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
