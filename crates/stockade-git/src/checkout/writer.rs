//! Files made from a stream of objects, relative to an open folder, and what the kernel then says of each.

use std::{
    fs::File,
    io::Write as _,
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, Stat, Timespec, Timestamps},
    io::Errno,
};

use super::{
    index::Seen,
    listing::{Item, Kind},
};
use crate::batch::Objects;

/// What a link may hold: the kernel takes less than a page.
const LINK_LIMIT_BYTES: usize = 4095;

const FOLDER_MODE: u32 = 0o755;

/// Makes the files of a part of a listing, in its order.
#[derive(Debug)]
pub(super) struct Writer<'w> {
    items: std::slice::Iter<'w, Item>,
    top: &'w OwnedFd,
    /// The folders that the last file lies in, by their paths.
    open: Vec<(Vec<u8>, OwnedFd)>,
    current: Option<(&'w Item, Content)>,
    times: Timestamps,
    stop: &'w AtomicBool,
    seen: Vec<Seen>,
}

#[derive(Debug)]
enum Content {
    File(File),
    Link(Vec<u8>),
}

impl<'w> Writer<'w> {
    /// Everything it makes gets this time.
    pub(super) fn new(items: &'w [Item], top: &'w OwnedFd, time: Timespec, stop: &'w AtomicBool) -> Self {
        Self {
            items: items.iter(),
            top,
            open: Vec::new(),
            current: None,
            times: Timestamps { last_access: time, last_modification: time },
            stop,
            seen: Vec::with_capacity(items.len()),
        }
    }

    /// What the kernel says of each; `None`: not all were made.
    pub(super) fn finish(self) -> Option<Vec<Seen>> {
        (self.items.len() == 0 && self.current.is_none()).then_some(self.seen)
    }

    /// Goes to the folder of a path, makes what is missing on the way, and gives the last name.
    fn enter(&mut self, path: &'w [u8]) -> Result<&'w [u8], Errno> {
        let Some(slash) = path.iter().rposition(|b| *b == b'/') else {
            self.open.clear();
            return Ok(path);
        };
        let (folder, name) =
            (path.get(..slash).unwrap_or_default(), path.get(slash + 1..).unwrap_or_default());
        let holds = |outer: &[u8]| {
            folder.strip_prefix(outer).is_some_and(|rest| matches!(rest.first(), None | Some(&b'/')))
        };
        while self.open.pop_if(|(outer, _)| !holds(outer)).is_some() {}
        let mut at = self.open.last().map_or(0, |(outer, _)| outer.len() + 1);
        while let Some(rest) = folder.get(at..).filter(|rest| !rest.is_empty()) {
            let part = rest.split(|b| *b == b'/').next().unwrap_or_default();
            let made = make_folder(self.folder(), part)?;
            at += part.len();
            self.open.push((folder.get(..at).unwrap_or_default().to_vec(), made));
            at += 1;
        }
        Ok(name)
    }

    fn folder(&self) -> &OwnedFd {
        self.open.last().map_or(self.top, |(_, folder)| folder)
    }

    fn make(&mut self, item: &'w Item) -> Result<Content, Errno> {
        let name = self.enter(&item.path)?;
        let mode = match item.kind {
            Kind::File => 0o644,
            Kind::Executable => 0o755,
            Kind::Link => return Ok(Content::Link(Vec::new())),
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(self.folder(), name, flags, Mode::from_raw_mode(mode))
            .map(|f| Content::File(f.into()))
    }

    fn complete(&self, item: &Item, content: Content) -> Result<Seen, Errno> {
        match content {
            Content::File(file) => {
                rustix::fs::futimens(&file, &self.times)?;
                let stat = rustix::fs::fstat(&file)?;
                let mode = if item.kind == Kind::Executable { 0o755 } else { 0o644 };
                if stat.st_mode & 0o777 == mode {
                    return Ok(seen(&stat));
                }
                // The umask took bits away.
                rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
                rustix::fs::fstat(&file).map(|stat| seen(&stat))
            }
            Content::Link(target) => {
                let name = item.path.rsplit(|b| *b == b'/').next().unwrap_or_default();
                rustix::fs::symlinkat(&target, self.folder(), name)?;
                rustix::fs::utimensat(self.folder(), name, &self.times, AtFlags::SYMLINK_NOFOLLOW)?;
                rustix::fs::statat(self.folder(), name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| seen(&stat))
            }
        }
    }
}

impl Objects for Writer<'_> {
    fn begin(&mut self, object: &str, kind: &str, _: u64) -> Result<(), String> {
        if self.stop.load(Ordering::Relaxed) {
            return Err("it was stopped".to_owned());
        }
        let item = self.items.next().filter(|item| item.object == object && kind == "blob");
        let item = item.ok_or_else(|| format!("git gave the {kind} {object} that was not asked for"))?;
        let content = self.make(item).map_err(|e| failed(item, e))?;
        self.current = Some((item, content));
        Ok(())
    }

    fn content(&mut self, part: &[u8]) -> Result<(), String> {
        match &mut self.current {
            Some((item, Content::File(file))) => {
                file.write_all(part).map_err(|e| failed(item, Errno::from_io_error(&e).unwrap_or(Errno::IO)))
            }
            Some((item, Content::Link(target))) => {
                target.extend_from_slice(part);
                if target.len() > LINK_LIMIT_BYTES { Err(failed(item, Errno::NAMETOOLONG)) } else { Ok(()) }
            }
            None => Ok(()),
        }
    }

    fn end(&mut self) -> Result<(), String> {
        let Some((item, content)) = self.current.take() else { return Ok(()) };
        self.seen.push(self.complete(item, content).map_err(|e| failed(item, e))?);
        Ok(())
    }
}

/// A folder that may be there already: the other writer came first.
fn make_folder(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let mode = Mode::from_raw_mode(FOLDER_MODE);
    let made = match rustix::fs::mkdirat(parent, name, mode) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(e) => return Err(e),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    if made && rustix::fs::fstat(&folder)?.st_mode & 0o777 != FOLDER_MODE {
        // The umask took bits away.
        rustix::fs::fchmod(&folder, mode)?;
    }
    Ok(folder)
}

fn failed(item: &Item, e: Errno) -> String {
    format!("`{}`: {}", String::from_utf8_lossy(&item.path), std::io::Error::from(e))
}

/// As an index keeps it: the lower half of each number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index has room for the lower half"
)]
fn seen(stat: &Stat) -> Seen {
    Seen {
        changed: (stat.st_ctime as u32, stat.st_ctime_nsec as u32),
        modified: (stat.st_mtime as u32, stat.st_mtime_nsec as u32),
        device: stat.st_dev as u32,
        inode: stat.st_ino as u32,
        bytes: match stat.st_size as u32 {
            // To git a file without bytes is an empty one.
            0 if stat.st_size > 0 => 1 << 31,
            bytes => bytes,
        },
    }
}
