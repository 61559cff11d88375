//! X and P20: what an honest tool needs. A fence that denies everything proves nothing.

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use stockade_core::guarantee::Guarantee::{Network, Privileges, WorkspaceReadonly, WriteConfinement};

use super::acts::{Denial, Outcome, create, worked};
use super::raw;
use super::table::{Expected, Probe};
use crate::sys::process::{self, Side, Wait};

const NEEDED: Expected = Expected::Needed("every honest tool needs it");

pub(super) const PROBES: &[Probe] = &[
    Probe::new("P20", Privileges, "ask how many bytes a pipe holds", |_| {
        let (reader, _writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionread(reader)?;
        Ok(())
    })
    .expecting(NEEDED),
    Probe {
        isolated_write: Expected::Needed("the workspace is writable in this mode"),
        ..Probe::new("X01", WorkspaceReadonly, "write a file of the workspace", |f| {
            create(f.in_workspace("ok.txt"))
        })
    },
    Probe::new("X02", WriteConfinement, "write the private temporary folder", |f| {
        let path = f.temp.join(&f.token);
        create(&path)?;
        super::acts::clean_up(path);
        Ok(())
    })
    .expecting(NEEDED),
    Probe::new("X03", Privileges, "run a program", |_| run_true()).expecting(NEEDED),
    Probe::new("X04", Network, "make a pair of sockets", |_| {
        worked(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None))
    })
    .expecting(NEEDED),
];

fn run_true() -> Outcome {
    let path = raw::path("/bin/true")?;
    // SAFETY: the child replaces itself or ends.
    let child = match unsafe { process::fork() }.map_err(|error| Denial::new(error.errno()))? {
        Side::Child => {
            let errno = process::exec(&path, std::slice::from_ref(&path), &[]);
            process::exit_now(errno.raw_os_error())
        }
        Side::Parent(child) => child,
    };
    match process::reap(Some(child), Wait::Block)?.and_then(|ended| ended.code) {
        Some(0) => Ok(()),
        Some(errno) => Err(Denial::new(errno)),
        None => Err(Denial::new(0)),
    }
}
