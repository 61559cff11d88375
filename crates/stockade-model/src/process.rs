//! The scripted model as a process of its own.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;

use tokio::sync::oneshot;

use crate::error::ModelError;
use crate::scenario::Scenario;
use crate::server::{Ready, ServeOptions, serve};

/// What the command line of such a process says.
#[derive(Debug, Clone)]
pub struct ServeArgs {
    /// The scenario file.
    pub scenario: PathBuf,
    /// How to serve it.
    pub options: ServeOptions,
}

/// Serves a scenario until `lifeline` (the standard input, whose other end the parent holds) comes to its end, so
/// that nothing stays behind when the parent dies. Once ready, writes one line of JSON to `announce`:
/// `{"address":"127.0.0.1:PORT","url":"http://127.0.0.1:PORT/v1"}`.
pub fn run_blocking(
    args: ServeArgs,
    lifeline: impl Read + Send + 'static,
    announce: &mut dyn Write,
) -> Result<(), ModelError> {
    let scenario = Scenario::parse(&read_scenario(&args.scenario)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| ModelError::Runtime { source })?;
    let (end, ended) = oneshot::channel::<()>();
    // Not joined: a read cannot be called off. It ends with the process at the latest.
    thread::Builder::new()
        .name("lifeline".to_owned())
        .spawn(move || {
            wait_for_end(lifeline);
            drop(end);
        })
        .map_err(|source| ModelError::Runtime { source })?;

    let mut announced = Ok(());
    let (quit, has_quit) = oneshot::channel::<()>();
    let mut quit = Some(quit);
    let ready = |ready: Ready| {
        announced = announce_address(&ready, announce);
        if announced.is_err() {
            drop(quit.take());
        }
    };
    let stop = async {
        tokio::select! {
            _ = ended => (),
            _ = has_quit => (),
        }
    };
    runtime.block_on(serve(scenario, args.options, ready, stop))?;
    announced.map_err(|source| ModelError::Announce { source })
}

fn read_scenario(path: &Path) -> Result<String, ModelError> {
    let failed = |source| ModelError::ScenarioFile { path: path.to_owned(), source };
    let limit = u64::try_from(Scenario::MAX_BYTES).unwrap_or(u64::MAX);
    let mut text = String::new();
    // One byte more, so that the check of the length sees a file that is too long.
    let mut file = File::open(path).map_err(failed)?.take(limit.saturating_add(1));
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

fn wait_for_end(mut lifeline: impl Read) {
    let mut ignored = [0; 64];
    loop {
        match lifeline.read(&mut ignored) {
            Ok(0) => return,
            Ok(_) => (),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(_) => return,
        }
    }
}

fn announce_address(ready: &Ready, announce: &mut dyn Write) -> io::Result<()> {
    let mut line = serde_json::to_vec(ready)?;
    line.push(b'\n');
    announce.write_all(&line)?;
    announce.flush()
}
