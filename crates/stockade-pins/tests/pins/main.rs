//! Provisioning and verification from outside: real tarballs, real sockets, real file systems.
//!
//! Some tests mount a small tmpfs or give a file to another user, and fail where they may not: they need root, as in CI.

#[cfg(test)]
mod disk;
#[cfg(test)]
mod files;
#[cfg(test)]
mod network;
#[cfg(test)]
mod package;
#[cfg(test)]
mod provision;
#[cfg(test)]
mod server;
#[cfg(test)]
mod tampering;
#[cfg(test)]
mod world;
