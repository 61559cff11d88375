//! What the egress listener costs: connections and a transfer to a server on this machine, direct and from a fence.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::Stdio,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{
    measure::{Cost, median},
    report::Row,
    setting::Setting,
};
use crate::shell;

const CONNECTION_BUDGET_MS: f64 = 1.0;
/// 400 MB/s.
const TRANSFER_BUDGET_MS: f64 = 2_500.0;
const TRANSFER_BYTES: usize = 1_000_000_000;
/// Length of the hello that the client begins with.
const HELLO_BYTES: usize = 52;
const PAIRS: usize = 5;

pub(super) fn measure(setting: &Setting) -> Result<Vec<Row>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let target = listener.local_addr()?.to_string();
    std::thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            // A client that went away is measured by nobody.
            std::thread::spawn(move || serve(tcp).is_ok());
        }
    });
    let (mut bare, mut fenced) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        bare.push(direct(setting, &target)?);
        fenced.push(through(setting, &target, pair)?);
    }
    let differences = fenced.iter().zip(&bare).map(|(f, b)| f.0 - b.0).collect();
    let middle = |of: &[(f64, f64)], pick: fn(&(f64, f64)) -> f64| median(of.iter().map(pick).collect());
    let connection =
        Cost { bare: middle(&bare, |m| m.0), fenced: middle(&fenced, |m| m.0), added: median(differences) };
    let carried = middle(&fenced, |m| m.1);
    let transfer = Cost { bare: middle(&bare, |m| m.1), fenced: carried, added: carried };
    Ok(vec![
        Row::added("a connection through the egress listener", &connection, CONNECTION_BUDGET_MS),
        Row::added("a gigabyte through the egress listener, in all", &transfer, TRANSFER_BUDGET_MS),
    ])
}

/// Answers with one byte, or with all of them.
fn serve(mut tcp: TcpStream) -> std::io::Result<()> {
    tcp.set_nodelay(true)?;
    let mut asked = [0; HELLO_BYTES + 1];
    tcp.read_exact(&mut asked)?;
    if asked.last() == Some(&b'1') {
        return tcp.write_all(b"!");
    }
    let piece = vec![0; 1 << 20];
    let mut left = TRANSFER_BYTES;
    while left > 0 {
        let now = piece.get(..left.min(piece.len())).unwrap_or_default();
        tcp.write_all(now)?;
        left -= now.len();
    }
    Ok(())
}

fn direct(setting: &Setting, target: &str) -> Result<(f64, f64)> {
    let mut client = shell::command(&setting.egress_client);
    let line = shell::output(client.env_clear().env("EGRESS_TARGET", target).stdin(Stdio::null()))?;
    let told: Value = serde_json::from_str(&line)?;
    numbers(told.get("result").and_then(Value::as_str).unwrap_or_default())
}

fn through(setting: &Setting, target: &str, pair: usize) -> Result<(f64, f64)> {
    let name = format!("egress-{pair}");
    let mut command = setting.run(&setting.egress_subject(), "replace", &name);
    command.args(["--allow", target, "--env", "EGRESS_TARGET"]).env("EGRESS_TARGET", target);
    let status = command.status().with_context(|| shell::shown(&command))?;
    ensure!(status.success(), "{} ended with {status}", shell::shown(&command));
    numbers(&std::fs::read_to_string(setting.folder.join(format!("{name}.md")))?)
}

fn numbers(text: &str) -> Result<(f64, f64)> {
    let (connection, transfer) =
        text.trim().split_once(' ').with_context(|| format!("the client said `{text}`"))?;
    Ok((connection.parse()?, transfer.parse()?))
}
