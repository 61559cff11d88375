//! What was found changed from outside.

use std::fmt;
use std::path::PathBuf;

/// One thing that should not be as it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Damage {
    /// A file was made.
    Added(PathBuf),
    /// A file is gone.
    Removed(PathBuf),
    /// Content, owner, mode or times of a file changed.
    Changed(PathBuf),
    /// A file gives privileges to whoever runs it.
    Privileged(PathBuf),
    /// Something was left in a folder that everybody shares.
    Leaked(PathBuf),
    /// Something is mounted there.
    Mounted(PathBuf),
    /// A setting of the machine changed.
    Setting(&'static str),
    /// The victim ended, or this fact about it changed.
    Victim(&'static str),
    /// A service was reached.
    Contacted(String),
    /// A process that a probe started lives on.
    Survived(i32),
    /// The kernel does not say that the whole tree has ended.
    Unended,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(path) => write!(f, "`{}` was made", path.display()),
            Self::Removed(path) => write!(f, "`{}` is gone", path.display()),
            Self::Changed(path) => write!(f, "`{}` was changed", path.display()),
            Self::Privileged(path) => write!(f, "`{}` gives privileges", path.display()),
            Self::Leaked(path) => write!(f, "`{}` was left on the host", path.display()),
            Self::Mounted(path) => write!(f, "something is mounted on `{}`", path.display()),
            Self::Setting(name) => write!(f, "{name} was changed"),
            Self::Victim(fact) => write!(f, "the victim's {fact} changed"),
            Self::Contacted(service) => write!(f, "{service} was reached"),
            Self::Survived(pid) => write!(f, "process {pid} lives on"),
            Self::Unended => write!(f, "the tree has not ended"),
        }
    }
}
