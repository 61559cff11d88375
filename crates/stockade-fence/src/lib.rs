//! The fence: kernel survey, namespaces, canaries, PID 1 and the process tree.

#[cfg(not(target_os = "linux"))]
compile_error!("the fence is Linux only");

mod errno;
mod error;
pub mod probes;
pub mod survey;
mod sys;

pub use errno::errno_name;
pub use error::{FenceError, FenceErrorKind};
