//! Starting the binary, and what came of it.

use std::{
    ffi::OsString,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
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
    stdin: Input,
    through: Vec<String>,
}

/// What a call gets on standard input.
#[derive(Debug)]
enum Input {
    /// These bytes, then the end.
    Bytes(Vec<u8>),
    /// A pipe on which nothing ever comes, not even the end.
    NeverEnds,
}

/// A call under way.
#[derive(Debug)]
pub struct Started {
    child: Guarded,
    /// Held open on purpose.
    _stdin: Option<ChildStdin>,
    at: Instant,
    stdout: std::thread::JoinHandle<Vec<u8>>,
    stderr: std::thread::JoinHandle<Vec<u8>>,
}

/// A process that does not outlive a test that failed while it ran.
#[derive(Debug)]
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        // It has ended already where the test went well.
        drop(self.0.kill());
        drop(self.0.wait());
    }
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
            stdin: Input::Bytes(Vec::new()),
            through: Vec::new(),
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

    /// Takes the prompt of [`World::run`] from elsewhere.
    #[must_use]
    pub fn with_prompt(mut self, prompt: &Path) -> Self {
        let at = self.args.iter().position(|a| a == "--prompt").expect("the call has a prompt");
        prompt.to_str().unwrap().clone_into(&mut self.args[at + 1]);
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
        cwd.clone_into(&mut self.cwd);
        self
    }

    /// Gives it standard input.
    #[must_use]
    pub fn stdin(mut self, bytes: &[u8]) -> Self {
        self.stdin = Input::Bytes(bytes.to_vec());
        self
    }

    /// Gives it a pipe as standard input that stays open and empty while it runs.
    #[must_use]
    pub fn stdin_that_never_ends(mut self) -> Self {
        self.stdin = Input::NeverEnds;
        self
    }

    /// Starts it by a program that ends in running the rest of its arguments, such as `nsenter`.
    #[must_use]
    pub fn through(mut self, program: &[String]) -> Self {
        self.through = program.to_vec();
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
        let mut words: Vec<OsString> = self.through.iter().map(OsString::from).collect();
        if !classes.is_empty() {
            words.push(world::helper_binary("host-class").into());
            words.extend(classes.into_iter().map(OsString::from));
            words.push("--".into());
        }
        words.push(world::binary().into());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
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
        let held = match self.stdin {
            Input::NeverEnds => Some(stdin),
            Input::Bytes(input) => {
                std::thread::spawn(move || {
                    // A binary that ends before it reads all is what some tests are about.
                    let _unread = stdin.write_all(&input);
                });
                None
            }
        };
        let stdout = slurp(child.stdout.take().unwrap());
        let stderr = slurp(child.stderr.take().unwrap());
        Started { child: Guarded(child), _stdin: held, at, stdout, stderr }
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
        self.child.0.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.0.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.0.try_wait().unwrap().is_some()
    }

    /// Waits for its end; panics after `limit`.
    pub fn wait(mut self, limit: Duration) -> Ended {
        let status = loop {
            if let Some(status) = self.child.0.try_wait().unwrap() {
                break status;
            }
            if self.at.elapsed() > limit {
                drop(self.child.0.kill());
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
