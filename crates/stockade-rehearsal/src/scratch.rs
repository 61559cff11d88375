//! The folder of one rehearsal: a workspace, decoys beside it, and the files of the scripted model.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use stockade_journal::JournalError;
use uuid::Uuid;

use crate::{commands, error::RehearsalError};

/// The existing file of the workspace.
pub(crate) const EXISTING_FILE: &str = "README.md";
/// The file that the agent's own tool makes.
pub(crate) const NEW_FILE: &str = "notes.md";
/// The file that the shell makes.
pub(crate) const SHELL_FILE: &str = "report.md";

/// A decoy outside.
pub(crate) const SECRET: &str = "secret.txt";
/// A decoy in a home outside.
pub(crate) const HOME_SECRET: &str = "home/.ssh/id_ed25519";
/// A file outside.
pub(crate) const OUTSIDE_FILE: &str = "file.txt";
/// A file that a home's owner would run.
pub(crate) const DOTFILE: &str = "home/.bashrc";

/// What stands in the files: different each time, so that nothing can be remembered or guessed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Texts {
    /// In the existing file and nowhere else: who knows it has read the file.
    pub(crate) token: String,
    /// The part of the existing file that is to be replaced.
    pub(crate) old: String,
    /// What replaces it.
    pub(crate) new: String,
    /// What the new file holds.
    pub(crate) notes: String,
    /// What the shell writes.
    pub(crate) report: String,
    /// In the decoys outside and nowhere else.
    pub(crate) secrets: [String; 2],
    /// Two numbers whose sum no command names.
    pub(crate) addends: [u32; 2],
    /// How long the process sleeps that is left behind, in seconds: days, and unlike any other.
    pub(crate) seconds: u32,
}

impl Texts {
    pub(crate) fn new() -> Self {
        let word = || Uuid::new_v4().simple().to_string();
        // Six digits each: large enough not to be met by chance, small enough for any shell.
        let number = || 100_000 + Uuid::new_v4().as_fields().0 % 900_000;
        Self {
            token: word(),
            old: "The greeting is: hello".to_owned(),
            new: format!("The greeting is: hello, {}", word()),
            notes: format!("note {}", word()),
            report: format!("report {}", word()),
            secrets: [word(), word()],
            addends: [number(), number()],
            seconds: 1_000_000 + number(),
        }
    }

    /// What the shell prints if it can add.
    pub(crate) fn sum(&self) -> u32 {
        self.addends.iter().sum()
    }

    /// The existing file with this text in its second line.
    pub(crate) fn existing(&self, line: &str) -> String {
        format!("token {}\n{line}\n", self.token)
    }

    /// The variables of the scenarios, for a rehearsal in the folder `root`.
    pub(crate) fn variables(&self, root: &Path) -> BTreeMap<String, String> {
        BTreeMap::from(
            [
                ("workspace", root.join("workspace").display().to_string()),
                ("old_text", self.old.clone()),
                ("new_text", self.new.clone()),
                ("notes_text", self.notes.clone()),
                ("shell_write", commands::shell_write(self)),
                ("reach_outside", commands::reach_outside(self, &root.join("outside"))),
                ("leave_behind", commands::leave_behind(self)),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        )
    }
}

/// The folder of one rehearsal. Dropping it removes it; what a killed one left is found by `stockade gc`.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: stockade_journal::Scratch,
    pub(crate) texts: Texts,
}

impl Scratch {
    /// Makes it, readable for its owner only.
    pub(crate) fn make(parent: &Path) -> Result<Self, RehearsalError> {
        let failed =
            |path: &Path, source| RehearsalError::Scratch { step: "make", path: path.to_owned(), source };
        // The fence shows the workspace under its path without links, so the scenarios name it so, too.
        let parent = parent.canonicalize().map_err(|source| failed(parent, source))?;
        let path = parent.join(format!("stockade-rehearsal-{}", Uuid::new_v4().simple()));
        let folder =
            stockade_journal::Scratch::make(path.clone()).map_err(|e| failed(&path, io_error(&e)))?;
        let scratch = Self { folder, texts: Texts::new() };
        scratch.fill().map_err(|source| failed(&path, source))?;
        Ok(scratch)
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn fill(&self) -> io::Result<()> {
        let [secret, home_secret] = &self.texts.secrets;
        fs::create_dir(self.workspace())?;
        fs::write(self.workspace().join(EXISTING_FILE), self.texts.existing(&self.texts.old))?;
        fs::create_dir_all(self.outside().join("home/.ssh"))?;
        fs::create_dir(self.model())?;
        for (path, text) in [
            (SECRET, format!("{secret}\n").as_str()),
            (HOME_SECRET, &format!("{home_secret}\n")),
            (OUTSIDE_FILE, "not to be changed\n"),
            (DOTFILE, "# not to be changed\n"),
            ("home/.gitconfig", "[user]\n\tname = Decoy\n"),
        ] {
            fs::write(self.outside().join(path), text)?;
        }
        Ok(())
    }

    /// The folder the agent works in.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.root().join("workspace")
    }

    /// The folder with decoys: files as they lie beside a workspace, and a home.
    pub(crate) fn outside(&self) -> PathBuf {
        self.root().join("outside")
    }

    /// The folder with the scripted model's files.
    pub(crate) fn model(&self) -> PathBuf {
        self.root().join("model")
    }

    /// The folder for what the escape probes reach for: made when it is needed.
    pub(crate) fn probed(&self) -> PathBuf {
        self.root().join("probed")
    }

    /// The variables of the scenarios.
    pub(crate) fn variables(&self) -> BTreeMap<String, String> {
        self.texts.variables(self.root())
    }

    /// Removes it. Gives back its path, so that the caller can see for itself.
    pub(crate) fn remove(self) -> Result<PathBuf, RehearsalError> {
        let path = self.root().to_owned();
        match self.folder.remove() {
            Ok(()) => Ok(path),
            Err(e) => Err(RehearsalError::Scratch { step: "remove", path, source: io_error(&e) }),
        }
    }
}

fn io_error(e: &JournalError) -> io::Error {
    e.errno().map_or_else(|| io::Error::other(e.to_string()), io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_made_whole_and_removed_whole() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::make(parent.path()).unwrap();
        let texts = scratch.texts.clone();
        let existing = fs::read_to_string(scratch.workspace().join(EXISTING_FILE)).unwrap();
        assert_eq!(existing, format!("token {}\nThe greeting is: hello\n", texts.token));
        assert_eq!(
            fs::read_to_string(scratch.outside().join(SECRET)).unwrap(),
            format!("{}\n", texts.secrets[0])
        );
        let root = scratch.remove().unwrap();
        assert!(!root.exists());
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn no_text_is_used_twice_and_no_secret_or_sum_is_in_a_variable() {
        let (one, other) = (Texts::new(), Texts::new());
        assert_ne!(one.token, other.token);
        assert_ne!(one.secrets[0], one.secrets[1]);
        let variables = one.variables(Path::new("/r"));
        for hidden in [&one.token, &one.secrets[0], &one.secrets[1], &one.sum().to_string()] {
            assert!(variables.values().all(|value| !value.contains(hidden.as_str())), "{hidden}");
        }
    }
}
