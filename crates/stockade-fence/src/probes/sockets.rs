//! U: local sockets of other programs, by path and by abstract name.
//!
//! A socket in the workspace would be shared (U06): no mount stops a connection. A lane therefore refuses a workspace
//! that has one, and the probe shows that there is none.

use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::Path;
use std::time::Duration;

use stockade_core::guarantee::Guarantee::Network;

use super::acts::Outcome;
use super::table::Probe;

pub(super) const PROBES: &[Probe] = &[
    Probe::new("U01", Network, "connect to a container engine in /run", |f| {
        connect(f.at("run/docker.sock"), f.patience())
    }),
    Probe::new("U02", Network, "connect to a container engine in the home", |f| {
        connect(f.at("home/.docker/run/docker.sock"), f.patience())
    }),
    Probe::new("U03", Network, "connect to an SSH agent in /tmp", |f| {
        connect(f.at("tmp/ssh-x/agent.1"), f.patience())
    }),
    Probe::new("U04", Network, "connect to an abstract stream socket", |f| {
        hello(UnixStream::connect_addr(&SocketAddr::from_abstract_name(&f.token)?)?, f.patience())
    }),
    Probe::new("U05", Network, "connect to an abstract datagram socket", |f| {
        let address = SocketAddr::from_abstract_name(f.datagram_name())?;
        Ok(UnixDatagram::unbound()?.connect_addr(&address)?)
    }),
    Probe::new("U06", Network, "connect to a listener inside the workspace", |f| {
        connect(f.in_workspace("host.sock"), f.patience())
    }),
    Probe::new("U07", Network, "connect to the session bus, which starts any program", |f| {
        connect(f.at("run/user/bus"), f.patience())
    }),
    Probe::new("U08", Network, "connect to a terminal server in /tmp", |f| {
        connect(f.at("tmp/tmux-x/default"), f.patience())
    }),
];

fn connect(path: impl AsRef<Path>, patience: Duration) -> Outcome {
    hello(UnixStream::connect(path)?, patience)
}

fn hello(mut stream: UnixStream, patience: Duration) -> Outcome {
    stream.set_read_timeout(Some(patience))?;
    let mut word = [0_u8; 5];
    Ok(stream.read_exact(&mut word)?)
}
