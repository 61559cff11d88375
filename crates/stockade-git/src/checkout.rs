//! The files of a commit, written by this program with an index that knows them.
//!
//! Git makes one file after the other and then reads them all again before it believes its index. Here several threads
//! make them from what `git cat-file` gives in the caller's repository, each file as it is kept; where git would convert
//! or refuse any of them, it is left to git. Nothing but these files is opened, relative to a folder that only the caller
//! can write, and nothing that is there is followed or overwritten.

mod conversion;
mod index;
mod listing;
mod writer;

use std::{
    io::Write as _,
    os::fd::OwnedFd,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::fs::{CWD, Mode, OFlags, Timespec};

pub use index::Owner;

use self::{
    index::{Naming, Seen},
    listing::{Item, Listing},
    writer::Writer,
};
use crate::{error::GitError, files, host::Host, layout::Repository};

/// To git a file that is as old as the index may have changed since, and it reads it anew each time. These are made so
/// many seconds older.
const OLDER_S: i64 = 10;
/// A thread for so many files: with fewer its start takes longer than it saves.
const FILES_OF_A_THREAD: usize = 500;
/// More threads only wait for the file system.
const MOST_THREADS: usize = 4;
/// Lists of patterns.
const ATTRIBUTES_LIMIT_BYTES: usize = 16 * 1024 * 1024;

/// The files of a commit, all of which can be written as they are kept.
#[derive(Debug)]
pub struct Checkout {
    host: Host,
    listing: Listing,
    naming: Naming,
}

impl Checkout {
    /// Looks at a commit. `None`: git has to write it.
    pub fn of(host: &Host, repository: &Repository, commit: &str) -> Result<Option<Self>, GitError> {
        if !conversion::is_off(repository) {
            return Ok(None);
        }
        let Some(listing) = Listing::read(&host.list(commit)?) else { return Ok(None) };
        let own = repository.common.join("info/attributes");
        let own = files::read(&own, ATTRIBUTES_LIMIT_BYTES).map_err(|e| GitError::kernel("read", &own, e))?;
        let kept: Vec<&str> = listing.attributes().map(|item| &*item.object).collect();
        let harmless = conversion::is_harmless(&own.unwrap_or_default())
            && (kept.is_empty() || conversion::is_harmless(&host.contents(&kept)?));
        let naming = match repository.setting("extensions", "objectformat") {
            Some("sha256") => Naming::Sha256,
            _ => Naming::Sha1,
        };
        Ok(harmless.then(|| Self { host: host.clone(), listing, naming }))
    }

    /// Writes the files into a folder that holds none of them, and an index where there is none. `owner` is whom they
    /// belong to where the index is used. Ends early once `stop` is set, which a failure does as well; then some of the
    /// files may be there.
    pub fn write(&self, tree: &Path, index: &Path, owner: Owner, stop: &AtomicBool) -> Result<(), GitError> {
        let fail = |e| GitError::kernel("open", tree, e);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let top = rustix::fs::openat(CWD, tree, flags, Mode::empty()).map_err(fail)?;
        // The file system's own clock: the folder was made a moment ago.
        let now = rustix::fs::fstat(&top).map_err(fail)?.st_mtime;
        let time = Timespec { tv_sec: now.saturating_sub(OLDER_S), tv_nsec: 0 };
        let seen = self.write_files(&top, time, stop)?;
        let bytes = index::write(&self.listing, &seen, owner, self.naming);
        let bytes = bytes.ok_or_else(|| GitError::new("write", index, "git named an object oddly"))?;
        files::create(index)?.write_all(&bytes).map_err(|e| GitError::io("write", index, &e))
    }

    fn write_files(&self, top: &OwnedFd, time: Timespec, stop: &AtomicBool) -> Result<Vec<Seen>, GitError> {
        let items = &*self.listing.items;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = processors.min(MOST_THREADS).min(items.len() / FILES_OF_A_THREAD).max(1);
        let part = items.len().div_ceil(threads).max(1);
        let parts = std::thread::scope(|scope| {
            let begun: Vec<_> = items
                .chunks(part)
                .map(|part| scope.spawn(move || self.write_part(part, top, time, stop)))
                .collect();
            begun.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
        });
        let mut seen = Vec::with_capacity(items.len());
        for part in parts {
            let broke = |_| GitError::new("write", self.host.common(), "a thread broke");
            seen.extend(part.map_err(broke)??);
        }
        Ok(seen)
    }

    fn write_part(
        &self,
        items: &[Item],
        top: &OwnedFd,
        time: Timespec,
        stop: &AtomicBool,
    ) -> Result<Vec<Seen>, GitError> {
        let writer = Writer::new(items, top, time, stop);
        let written = self.host.read(items.iter().map(|item| &*item.object), writer).and_then(|writer| {
            let missing = || GitError::new("cat-file", self.host.common(), "git did not give every file");
            writer.finish().ok_or_else(missing)
        });
        if written.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        written
    }
}

#[cfg(test)]
mod tests;
