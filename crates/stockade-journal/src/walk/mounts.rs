//! Mount points below a folder, by the kernel's own list: those are found that lie beyond the walker's bounds, too.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::CWD;

use crate::files;

/// Hosts with ten thousand mounts write about this much.
const MOUNTINFO_LIMIT_BYTES: usize = 4 * 1024 * 1024;

/// Mount points strictly below `root`, relative to it, in the kernel's order. Empty where the list cannot be read: the
/// walk itself recognises those it meets.
pub(super) fn below(root: &Path) -> Vec<PathBuf> {
    files::read_at(CWD, "/proc/self/mountinfo", MOUNTINFO_LIMIT_BYTES)
        .map(|bytes| parse(&bytes, root))
        .unwrap_or_default()
}

fn parse(mountinfo: &[u8], root: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = mountinfo
        .split(|b| *b == b'\n')
        // proc(5): the fifth field is the mount point.
        .filter_map(|line| line.split(|b| *b == b' ').nth(4))
        .map(unescape)
        .filter_map(|path| path.strip_prefix(root).map(Path::to_owned).ok())
        .filter(|rest| !rest.as_os_str().is_empty())
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Blanks, tabs, newlines and backslashes are written as a backslash with three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, later)) = rest.split_first() {
        let code = match later {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if *first == b'\\' => {
                Some((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
            }
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { later.get(3..).unwrap_or_default() } else { later };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_strictly_below_are_named() {
        let info = b"22 1 0:21 / / rw - tmpfs tmpfs rw\n\
            23 22 0:22 / /work rw - tmpfs t rw\n\
            24 23 0:22 /x /work/a\\040b/c\\134d rw shared:1 - tmpfs t rw\n\
            25 23 0:22 / /workshop rw - tmpfs t rw\n";
        assert_eq!(parse(info, Path::new("/work")), [PathBuf::from("a b/c\\d")]);
    }
}
