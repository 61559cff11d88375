//! What every process in a fence is denied beside what it cannot see: privileges, system calls, and with Landlock
//! every write outside the writable folders once more.

mod bpf;
pub(crate) mod landlock;
pub(crate) mod privileges;
pub(crate) mod seccomp;
