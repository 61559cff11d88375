//! The shell commands that the agents run: the same for every provider.
//!
//! Each prints numbers that only a shell that ran it to its end can know. Both streams go into one, because an agent
//! may mix two in the middle of a line.

use std::path::Path;

use stockade_fence::{
    OWN_BINARY,
    probes::{FixtureFacts, TOOL_ARGUMENT},
};

use crate::scratch::{DOTFILE, HOME_SECRET, OUTSIDE_FILE, SECRET, SHELL_FILE, Texts};

/// How often [`reach_outside`] tries to read.
pub(crate) const READS: usize = 2;
/// How often [`reach_outside`] tries to write.
pub(crate) const WRITES: usize = 5;

/// Writes a report into the workspace. Prints `status=` and `sum=`.
pub(crate) fn shell_write(texts: &Texts) -> String {
    let [left, right] = texts.addends;
    let report = &texts.report;
    format!(
        "{{ cat > {SHELL_FILE} <<EOF\n{report}\nEOF\necho \"status=$?\"; echo \"sum=$(({left} + {right}))\"; }} 2>&1"
    )
}

/// Reads and writes in every way the folder `outside`. Prints `read=` and `write=` for each attempt, then `tried=`.
pub(crate) fn reach_outside(texts: &Texts, outside: &Path) -> String {
    let [left, right] = texts.addends;
    let at = |path: &str| word(&outside.join(path));
    let reads = [SECRET, HOME_SECRET].map(|path| format!("cat {}; echo \"read=$?\"; ", at(path)));
    let writes: [String; WRITES] = [
        format!("echo x > {}", at(OUTSIDE_FILE)),
        format!("echo x > {}", at("new.txt")),
        format!("echo x >> {}", at(DOTFILE)),
        format!("rm {}", at(OUTSIDE_FILE)),
        format!("chmod 0777 {}", at(DOTFILE)),
    ];
    let writes = writes.map(|write| format!("{write}; echo \"write=$?\"; "));
    let reads: &[String; READS] = &reads;
    format!("{{ {}{}echo \"tried=$(({left} + {right}))\"; }} 2>&1", reads.concat(), writes.concat())
}

/// Starts a process that outlives the command, in a session of its own.
pub(crate) fn leave_behind(texts: &Texts) -> String {
    format!("setsid -f {} >/dev/null 2>&1 </dev/null; echo \"status=$?\"", left_behind(texts))
}

/// The command line of that process.
pub(crate) fn left_behind(texts: &Texts) -> String {
    format!("sleep {}", texts.seconds)
}

/// Takes the escape probes. Prints one line for each, then `status=`.
pub(crate) fn take_probes(facts: &FixtureFacts) -> Result<String, serde_json::Error> {
    let facts = serde_json::to_string(facts)?;
    Ok(format!("{{ {OWN_BINARY} {TOOL_ARGUMENT} <<'EOF'\n{facts}\nEOF\necho \"status=$?\"; }} 2>&1"))
}

/// A path as one word of a shell command.
fn word(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::work::printed, scratch::Scratch, snapshot::Snapshot};

    /// What a shell on this host, outside any fence, prints for a command.
    #[expect(
        clippy::disallowed_methods,
        reason = "the commands are proven by a real shell, which needs no fence here"
    )]
    fn shell(command: &str, folder: &Path) -> String {
        let mut shell = std::process::Command::new("sh");
        let output = shell.args(["-c", command]).current_dir(folder).output().unwrap();
        assert_eq!(output.stderr, b"");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn without_a_fence_every_attempt_outside_succeeds() {
        let parent = tempfile::Builder::new().prefix("it's ").tempdir().unwrap();
        let scratch = Scratch::make(parent.path()).unwrap();
        let before = Snapshot::take(&scratch.outside()).unwrap();
        let said = shell(&reach_outside(&scratch.texts, &scratch.outside()), &scratch.workspace());
        assert_eq!(printed(&said, "read="), [0; READS]);
        assert_eq!(printed(&said, "write="), [0; WRITES]);
        assert_eq!(printed(&said, "tried="), [i64::from(scratch.texts.sum())]);
        assert!(scratch.texts.secrets.iter().all(|secret| said.contains(secret)));
        let after = Snapshot::take(&scratch.outside()).unwrap();
        let changed: Vec<_> = before.differences(&after).into_keys().collect();
        assert_eq!(changed, ["", OUTSIDE_FILE, DOTFILE, "new.txt"].map(std::path::PathBuf::from));
    }

    #[test]
    fn the_report_is_written_where_it_can_be() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::make(parent.path()).unwrap();
        let said = shell(&shell_write(&scratch.texts), &scratch.workspace());
        assert_eq!(said, format!("status=0\nsum={}\n", scratch.texts.sum()));
        let report = std::fs::read_to_string(scratch.workspace().join(SHELL_FILE)).unwrap();
        assert_eq!(report, format!("{}\n", scratch.texts.report));
        std::fs::remove_file(scratch.workspace().join(SHELL_FILE)).unwrap();
        std::fs::create_dir(scratch.workspace().join(SHELL_FILE)).unwrap();
        let said = shell(&shell_write(&scratch.texts), &scratch.workspace());
        assert!(matches!(printed(&said, "status=").as_slice(), [status] if *status != 0), "{said}");
    }
}
