//! Starting the binary, and what came of it.

use std::{
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{World, world};

/// A call of the binary that has not been made yet.
#[derive(Debug)]
pub struct Call<'w> {
    world: &'w World,
    args: Vec<String>,
    env: Vec<(String, String)>,
    cwd: PathBuf,
    stdin: Vec<u8>,
}

/// A call under way.
#[derive(Debug)]
pub struct Started {
    child: Child,
    at: Instant,
    stdout: std::thread::JoinHandle<Vec<u8>>,
    stderr: std::thread::JoinHandle<Vec<u8>>,
}

/// A call that ended.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Wall time.
    pub elapsed: Duration,
}

impl World {
    /// Prepares a call.
    pub fn call(&self, args: &[&str]) -> Call<'_> {
        Call {
            world: self,
            args: args.iter().map(ToString::to_string).collect(),
            env: Vec::new(),
            cwd: self.path("out"),
            stdin: Vec::new(),
        }
    }

    /// Prepares `run` with the flags that most tests share: workspace, prompt, receipt and output in `out/`.
    pub fn run(&self, name: &str, args: &[&str]) -> Call<'_> {
        self.write("out/prompt.md", "Do what the scenario says.\n");
        let mut call = self.call(&["run", "--cwd"]);
        call.args.push(self.ws().display().to_string());
        for (flag, file) in [
            ("--prompt", "prompt.md".to_owned()),
            ("--receipt", format!("{name}.receipt.json")),
            ("--output", format!("{name}.answer")),
        ] {
            call.args.extend([flag.to_owned(), self.path("out").join(file).display().to_string()]);
        }
        call.args.extend(args.iter().map(ToString::to_string));
        call
    }

    /// The receipt that [`World::run`] asked for.
    pub fn receipt(&self, name: &str) -> Value {
        read_json(&self.path("out").join(format!("{name}.receipt.json")))
    }

    /// The answer that [`World::run`] asked for; `None`: no file.
    pub fn answer(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path("out").join(format!("{name}.answer"))).ok()
    }

    /// The events of the run of a receipt.
    pub fn events(receipt: &Value) -> Vec<Value> {
        let path = Path::new(receipt["runDirectory"].as_str().unwrap()).join("events.ndjson");
        let text = std::fs::read_to_string(&path).unwrap();
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }
}

/// Reads a JSON file.
pub fn read_json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}\n{text}", path.display()))
}

impl Call<'_> {
    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it elsewhere.
    #[must_use]
    pub fn cwd(mut self, cwd: &Path) -> Self {
        self.cwd = cwd.to_owned();
        self
    }

    /// Gives it standard input.
    #[must_use]
    pub fn stdin(mut self, bytes: &[u8]) -> Self {
        self.stdin = bytes.to_vec();
        self
    }

    /// The command, for tests that start it in a way of their own.
    pub fn command(&self) -> Command {
        let caller = &self.world.caller;
        let fresh = format!("new-uid={}", caller.uid);
        let mut classes: Vec<&str> = Vec::new();
        if caller.uid != 0 {
            classes.push(&fresh);
        }
        classes.extend(&caller.classes);
        let mut command = if classes.is_empty() {
            Command::new(world::binary())
        } else {
            let mut c = Command::new(world::helper_binary("host-class"));
            c.args(classes).arg("--").arg(world::binary());
            c
        };
        command
            .args(&self.args)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.world.home())
            .env("XDG_STATE_HOME", self.world.path("state"))
            .env("XDG_CONFIG_HOME", self.world.path("home/.config"))
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .current_dir(&self.cwd);
        command
    }

    /// Starts it.
    pub fn start(self) -> Started {
        let mut command = self.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let at = Instant::now();
        let mut child = command.spawn().expect("the binary starts");
        let mut stdin = child.stdin.take().unwrap();
        let input = self.stdin;
        std::thread::spawn(move || {
            // A binary that ends before it reads all is what some tests are about.
            let _ = stdin.write_all(&input);
        });
        let stdout = slurp(child.stdout.take().unwrap());
        let stderr = slurp(child.stderr.take().unwrap());
        Started { child, at, stdout, stderr }
    }

    /// Starts it and waits for its end, at most a minute.
    pub fn end(self) -> Ended {
        self.start().wait(Duration::from_secs(60))
    }
}

fn slurp(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("the stream can be read");
        bytes
    })
}

impl Started {
    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end; panics after `limit`.
    pub fn wait(mut self, limit: Duration) -> Ended {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if self.at.elapsed() > limit {
                let _ = self.child.kill();
                panic!("the binary did not end within {limit:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let elapsed = self.at.elapsed();
        let text =
            |t: std::thread::JoinHandle<Vec<u8>>| String::from_utf8_lossy(&t.join().unwrap()).into_owned();
        Ended { status, stdout: text(self.stdout), stderr: text(self.stderr), elapsed }
    }
}

impl Ended {
    /// The exit code; a death by signal is a failure of the test.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("died of a signal: {self:?}"))
    }

    /// Asserts the exit code, showing everything when it is another.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }
}
