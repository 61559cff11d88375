//! System calls as typed functions: the only place of this crate (with `probes` and `confine`) that needs `unsafe`.
//!
//! Every failure is a [`FenceError`](crate::FenceError) that names its step. Nothing here panics.

#[cfg(test)]
pub(crate) mod child;
pub(crate) mod files;
pub(crate) mod machine;
pub(crate) mod mounts;
pub(crate) mod net;
pub(crate) mod process;
pub(crate) mod slow_ends;
pub(crate) mod trusted;
pub(crate) mod userns;
