//! What runs on this host, as far as it belongs to a rehearsal.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// How much of a command line or an environment is searched, in bytes.
const MAX_SEARCHED_BYTES: u64 = 256 * 1024;
/// The most processes that are listed.
const MAX_LISTED: usize = 64;

/// By what a process is known to belong to a rehearsal.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    /// Words in its command line or environment.
    pub(crate) words: Vec<String>,
    /// Device and inode of folders it works in, runs from or has as its root.
    pub(crate) folders: Vec<(u64, u64)>,
    /// Processes that carry such marks and do not belong to the run.
    pub(crate) except: Vec<u32>,
}

impl Marks {
    /// The marks of whatever works in a folder.
    pub(crate) fn of_folder(folder: &Path) -> io::Result<Self> {
        let meta = fs::metadata(folder)?;
        Ok(Self {
            words: vec![folder.display().to_string()],
            folders: vec![(meta.dev(), meta.ino())],
            except: vec![std::process::id()],
        })
    }
}

/// A process that belongs to the rehearsal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) pid: u32,
    /// Its command line, with spaces between the arguments.
    pub(crate) command: String,
}

/// A look at all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// How many there are.
    pub(crate) processes: usize,
    /// Those with a mark, a few dozen at most.
    pub(crate) found: Vec<Found>,
}

/// Looks through every process of the host. One that ends meanwhile is passed over.
pub(crate) fn look(marks: &Marks) -> io::Result<Look> {
    let mut look = Look::default();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        look.processes = look.processes.saturating_add(1);
        if marks.except.contains(&pid) || look.found.len() >= MAX_LISTED {
            continue;
        }
        let folder = entry.path();
        let command = searched(folder.join("cmdline"));
        if carries(marks, &command)
            || carries(marks, &searched(folder.join("environ")))
            || is_in(marks, &folder)
        {
            let command = String::from_utf8_lossy(&command).trim_end_matches('\0').replace('\0', " ");
            look.found.push(Found { pid, command });
        }
    }
    Ok(look)
}

/// Empty where there is nothing to read: the process has ended, or belongs to somebody else.
fn searched(path: PathBuf) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        // What was read before an error is searched all the same.
        drop(file.take(MAX_SEARCHED_BYTES).read_to_end(&mut bytes));
    }
    bytes
}

fn carries(marks: &Marks, bytes: &[u8]) -> bool {
    let within = |word: &[u8]| !word.is_empty() && bytes.windows(word.len()).any(|window| window == word);
    marks.words.iter().any(|word| within(word.as_bytes()))
}

fn is_in(marks: &Marks, process: &Path) -> bool {
    ["cwd", "exe", "root"].iter().any(|link| {
        // These links lead into the process's own mounts, so that paths could mislead; device and inode do not.
        fs::metadata(process.join(link)).is_ok_and(|meta| marks.folders.contains(&(meta.dev(), meta.ino())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_process_by_word_and_by_folder_and_leaves_out_exceptions() {
        let pid = std::process::id();
        let own = fs::canonicalize("/proc/self/cwd").unwrap();
        let name = std::env::current_exe().unwrap().display().to_string();
        let has = |marks: &Marks| look(marks).unwrap().found.iter().any(|found| found.pid == pid);

        let mut marks = Marks::of_folder(&own).unwrap();
        assert!(!has(&marks), "the own process is left out");
        marks.except.clear();
        marks.words.clear();
        assert!(has(&marks), "by folder");
        marks.folders.clear();
        assert!(!has(&marks), "without marks");
        marks.words.push(name);
        assert!(has(&marks), "by word");
        assert!(look(&marks).unwrap().processes > 1);
    }
}
