//! Children whose work is done but whose end is slow: the kernel takes their namespaces down first. Nobody has to wait
//! for that, so they are reaped when a fence ends, by which time they are long gone.

use std::sync::{Mutex, PoisonError};

use rustix::process::Pid;

use crate::sys::process::{self, Wait};

/// Every child that was left to be reaped.
static LEFT: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Leaves a child that has nothing more to do, or was killed, to be reaped later.
pub(crate) fn leave(pid: Pid) {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
}

/// Reaps those that have ended.
pub(crate) fn collect() {
    // An error: somebody else in this process has reaped it.
    LEFT.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .retain(|pid| matches!(process::reap(Some(*pid), Wait::Poll), Ok(None)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::process::Side;

    #[test]
    fn what_was_left_is_reaped_once_it_has_ended() {
        // SAFETY: the child only ends.
        let pid = match unsafe { process::clone_child(0) }.unwrap() {
            Side::Child => process::exit_now(0),
            Side::Parent((pid, _)) => pid,
        };
        leave(pid);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
        loop {
            collect();
            if !LEFT.lock().unwrap().contains(&pid) {
                return;
            }
            assert!(std::time::Instant::now() < end, "the child was not reaped");
        }
    }
}
