//! The generated files of /etc.

use std::io::Read;
use std::path::Path;

use crate::error::{FenceError, Step};
use crate::spec::{FenceNetwork, FenceSpec, INNER_HOME, INNER_ID};

/// The largest file taken over from the host.
const MAX_FILE: u64 = 64 * 1024;

const EMPTY_HOSTS: &str = "127.0.0.1 localhost\n::1 localhost\n";
/// One attempt: the listener answers at once that there is no such name.
const OWN_RESOLVER: &str = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n";

/// What the generated files take from the host.
#[derive(Debug)]
pub(super) struct OfHost {
    shell: &'static str,
    // Empty unless the host's network is used.
    resolv_conf: String,
    hosts: String,
}

/// Looks while the host's root is there.
pub(super) fn of_host(spec: &FenceSpec) -> Result<OfHost, FenceError> {
    let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
    let (resolv_conf, hosts) = match spec.network {
        FenceNetwork::Host => (read("/etc/resolv.conf")?, read("/etc/hosts")?),
        FenceNetwork::Gateway | FenceNetwork::GatewayWithEgress | FenceNetwork::Empty => {
            (String::new(), String::new())
        }
    };
    Ok(OfHost { shell, resolv_conf, hosts })
}

fn read(path: &str) -> Result<String, FenceError> {
    let mut text = String::new();
    match std::fs::File::open(path) {
        Ok(file) => {
            file.take(MAX_FILE).read_to_string(&mut text).step_on("read", path)?;
            Ok(text)
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(text),
        Err(e) => Err(e).step_on("open", path),
    }
}

/// Writes the generated files.
pub(super) fn write(spec: &FenceSpec, host: &OfHost) -> Result<(), FenceError> {
    for (name, text) in generated(spec, host) {
        let path = Path::new("/etc").join(name);
        std::fs::write(&path, text).step_on("write", &path)?;
    }
    Ok(())
}

/// The generated files: names and contents.
pub(super) fn generated(spec: &FenceSpec, host: &OfHost) -> [(&'static str, String); 5] {
    let shell = host.shell;
    let passwd = format!(
        "root:x:0:0:root:/:/usr/sbin/nologin\n\
         agent:x:{INNER_ID}:{INNER_ID}:agent:{INNER_HOME}:{shell}\n\
         nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
    );
    let group = format!("root:x:0:\nagent:x:{INNER_ID}:\nnogroup:x:65534:\n");
    let (resolver, hosts) = match spec.network {
        FenceNetwork::Gateway | FenceNetwork::GatewayWithEgress => (OWN_RESOLVER, EMPTY_HOSTS),
        FenceNetwork::Empty => ("", EMPTY_HOSTS),
        FenceNetwork::Host => (host.resolv_conf.as_str(), host.hosts.as_str()),
    };
    [
        ("passwd", passwd),
        ("group", group),
        ("hosts", hosts.to_owned()),
        ("resolv.conf", resolver.to_owned()),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n".to_owned()),
    ]
}
