//! The scripted model, started and ended.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde::Deserialize;
use stockade_core::text;
use stockade_model::{LogLine, read_log};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::unix::pipe,
};

use crate::error::RehearsalError;

/// How long the model may take until it announces its address.
const READY_WAIT: Duration = Duration::from_secs(5);
/// Longer than any announcement, in bytes.
const MAX_READY_BYTES: u64 = 4096;
/// How much of its complaints is passed on, in bytes.
const MAX_COMPLAINT_BYTES: u64 = 2000;

/// What a model is to serve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Serving<'s> {
    /// The program.
    pub(crate) program: &'s Path,
    /// The scenario's text.
    pub(crate) scenario: &'s str,
    /// The values of its variables.
    pub(crate) variables: &'s BTreeMap<String, String>,
    /// An existing folder for its files.
    pub(crate) folder: &'s Path,
    /// What its files are called.
    pub(crate) name: &'s str,
}

/// A scripted model that runs. Dropping it kills it and waits for its end.
#[derive(Debug)]
pub(crate) struct ModelProcess {
    child: Child,
    log: PathBuf,
    url: String,
}

/// What the model prints once it serves.
#[derive(Deserialize)]
struct Announcement {
    url: String,
}

impl ModelProcess {
    /// Starts it and waits until it serves.
    pub(crate) async fn start(serving: &Serving<'_>) -> Result<Self, RehearsalError> {
        let file = |ending: &str| serving.folder.join(format!("{}.{ending}", serving.name));
        let (scenario, log, complaints) = (file("json"), file("log"), file("stderr"));
        let failed =
            |path: &Path, source| RehearsalError::Scratch { step: "make", path: path.to_owned(), source };
        fs::write(&scenario, serving.scenario).map_err(|source| failed(&scenario, source))?;
        let stderr = File::create(&complaints).map_err(|source| failed(&complaints, source))?;

        let program = |source: &io::Error| RehearsalError::Model {
            problem: format!("`{}`: {source}", serving.program.display()),
        };
        let mut child = command(serving, &scenario, &log).stderr(stderr).spawn().map_err(|e| program(&e))?;
        let announced = child.stdout.take().map(OwnedFd::from);
        // From here on the process ends with this value.
        let mut model = Self { child, log, url: String::new() };
        model.url = match announcement(announced).await {
            Ok(announcement) => announcement.url,
            Err(problem) => {
                let said = head_of(&complaints);
                drop(model);
                return Err(RehearsalError::Model {
                    problem: format!("{problem}; it says: {}", said.trim()),
                });
            }
        };
        Ok(model)
    }

    /// The base URL of the endpoint.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has seen so far.
    pub(crate) fn log(&self) -> Result<Vec<LogLine>, RehearsalError> {
        Ok(read_log(&self.log)?)
    }
}

impl Drop for ModelProcess {
    fn drop(&mut self) {
        // Has it ended already, there is nothing to kill, and waiting gives back what it left.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the scripted model is a process of its own, outside the fence, as a real endpoint would be"
)]
fn command(serving: &Serving<'_>, scenario: &Path, log: &Path) -> Command {
    let mut command = Command::new(serving.program);
    command.arg("scripted-model").arg("--scenario").arg(scenario).args(["--listen", "127.0.0.1:0"]);
    command.arg("--log").arg(log);
    for (name, value) in serving.variables {
        command.arg("--var").arg(format!("{name}={value}"));
    }
    // Its standard input is its lifeline: it ends when this process does, however that ends. A group of its own keeps
    // the terminal's signals, which mean the rehearsal, away from it.
    command.env_clear().current_dir("/").process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

async fn announcement(stdout: Option<OwnedFd>) -> Result<Announcement, String> {
    let stdout = stdout.ok_or("it has no standard output")?;
    let stdout =
        pipe::Receiver::from_owned_fd(stdout).map_err(|e| format!("its output cannot be read: {e}"))?;
    let mut line = String::new();
    let mut reader = BufReader::new(stdout.take(MAX_READY_BYTES));
    match tokio::time::timeout(READY_WAIT, reader.read_line(&mut line)).await {
        Err(_) => Err(format!("no address within {} s", READY_WAIT.as_secs())),
        Ok(Err(e)) => Err(format!("its output cannot be read: {e}")),
        Ok(Ok(0)) => Err("it ended before it served".to_owned()),
        Ok(Ok(_)) => serde_json::from_str(&line)
            .map_err(|_| format!("it announced `{}`", text::head(line.trim(), 200))),
    }
}

fn head_of(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        // Whatever can be read is better than nothing.
        drop(file.take(MAX_COMPLAINT_BYTES).read_to_end(&mut bytes));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::fs::PermissionsExt, time::Instant};

    /// A program that is still open for writing cannot be started, and a test that starts one at the same time would
    /// hold on to it for a moment.
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    fn program(folder: &Path, script: &str) -> PathBuf {
        let path = folder.join("program");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    async fn start(script: &str) -> (Result<ModelProcess, RehearsalError>, tempfile::TempDir) {
        let _alone = ALONE.lock().await;
        let folder = tempfile::tempdir().unwrap();
        let program = program(folder.path(), script);
        let variables = BTreeMap::from([("a".to_owned(), "b c".to_owned())]);
        let serving = Serving {
            program: &program,
            scenario: "{}",
            variables: &variables,
            folder: folder.path(),
            name: "work",
        };
        (ModelProcess::start(&serving).await, folder)
    }

    #[tokio::test]
    async fn is_asked_as_documented_and_killed_with_its_value() {
        let script = r#"printf '%s\n' "$@" > "${7%.log}.args"
            env > "${7%.log}.env"
            echo '{"address":"127.0.0.1:9","url":"http://127.0.0.1:9/v1"}'
            read -r wait"#;
        let (model, folder) = start(script).await;
        let model = model.unwrap();
        assert_eq!(model.url(), "http://127.0.0.1:9/v1");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let args = fs::read_to_string(path("work.args")).unwrap();
        let (scenario, log) = (path("work.json"), path("work.log"));
        let expected = [
            "scripted-model",
            "--scenario",
            &scenario,
            "--listen",
            "127.0.0.1:0",
            "--log",
            &log,
            "--var",
            "a=b c",
        ];
        assert_eq!(args.lines().collect::<Vec<_>>(), expected);
        let environment = fs::read_to_string(path("work.env")).unwrap();
        assert!(!environment.contains("CARGO"), "{environment}");

        let process = format!("/proc/{}", model.pid());
        assert!(Path::new(&process).exists());
        let begun = Instant::now();
        drop(model);
        assert!(!Path::new(&process).exists());
        assert!(begun.elapsed() < Duration::from_secs(2));
    }

    #[tokio::test]
    async fn one_that_ends_at_once_is_quoted() {
        let (model, _folder) = start("echo no such scenario >&2; exit 64").await;
        let message = model.unwrap_err().to_string();
        assert_eq!(message, "start the scripted model: it ended before it served; it says: no such scenario");
    }

    #[tokio::test]
    async fn one_that_says_something_else_is_quoted() {
        let (model, _folder) = start("echo hello; read -r wait").await;
        assert!(model.unwrap_err().to_string().contains("it announced `hello`"));
    }
}
