//! An index as git keeps it, written with what the kernel says of each file: git then knows every file without reading it.
//!
//! Version 2, with the names of the folders' trees. See gitformat-index(5).

use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::listing::{Item, Kind, Listing};

/// Who every file belongs to, seen from where the index is used.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// What the kernel says of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Seconds and nanoseconds.
    pub(super) changed: (u32, u32),
    pub(super) modified: (u32, u32),
    pub(super) device: u32,
    pub(super) inode: u32,
    pub(super) bytes: u32,
}

/// By what objects are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    Sha1,
    Sha256,
}

impl Naming {
    fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha1 => Sha1::digest(bytes).to_vec(),
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
        }
    }

    /// The bytes of a name.
    fn bytes(self, name: &str) -> Option<Vec<u8>> {
        let expected = match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        };
        let digit = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let pairs = name.as_bytes().chunks_exact(2);
        let bytes: Option<Vec<u8>> =
            pairs.map(|p| Some(digit(*p.first()?)? << 4 | digit(*p.get(1)?)?)).collect();
        bytes.filter(|b| b.len() == expected && name.len() == 2 * expected)
    }
}

/// The index of a listing whose items were seen so, one after the other. `None`: a name in it is none of this naming, or
/// not every item was seen.
pub(super) fn write(listing: &Listing, seen: &[Seen], owner: Owner, naming: Naming) -> Option<Vec<u8>> {
    if listing.items.len() != seen.len() {
        return None;
    }
    let mut out = Vec::with_capacity(listing.items.len().saturating_mul(128));
    out.extend_from_slice(b"DIRC");
    out.extend_from_slice(&2_u32.to_be_bytes());
    out.extend_from_slice(&u32::try_from(seen.len()).ok()?.to_be_bytes());
    for (item, seen) in listing.items.iter().zip(seen) {
        entry(&mut out, item, seen, owner, &naming.bytes(&item.object)?);
    }
    let trees = trees(listing, naming)?;
    out.extend_from_slice(b"TREE");
    out.extend_from_slice(&u32::try_from(trees.len()).ok()?.to_be_bytes());
    out.extend_from_slice(&trees);
    let digest = naming.digest(&out);
    out.extend_from_slice(&digest);
    Some(out)
}

fn entry(out: &mut Vec<u8>, item: &Item, seen: &Seen, owner: Owner, object: &[u8]) {
    let start = out.len();
    let mode = match item.kind {
        Kind::File => 0o100_644,
        Kind::Executable => 0o100_755,
        Kind::Link => 0o120_000,
    };
    let numbers = [
        seen.changed.0,
        seen.changed.1,
        seen.modified.0,
        seen.modified.1,
        seen.device,
        seen.inode,
        mode,
        owner.uid,
        owner.gid,
        seen.bytes,
    ];
    for number in numbers {
        out.extend_from_slice(&number.to_be_bytes());
    }
    out.extend_from_slice(object);
    // Longer names end at their NUL.
    let length = u16::try_from(item.path.len()).unwrap_or(u16::MAX).min(0xFFF);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&item.path);
    // One to eight NULs, up to a multiple of eight.
    let padded = (out.len() - start + 8) & !7;
    out.resize(start + padded, 0);
}

/// The names of the folders' trees, which spares git making them. That of the top is left open: the listing does not name
/// it.
fn trees(listing: &Listing, naming: Naming) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let subfolders = subfolders(listing);
    out.extend_from_slice(format!("\0-1 {}\n", subfolders.first()?).as_bytes());
    for (folder, subfolders) in listing.folders.iter().zip(subfolders.get(1..)?) {
        // What is in a folder stands between its path with a slash and its path with the character after that.
        let before = |end: u8| {
            let bound = [&folder.path, &[end][..]].concat();
            listing.items.partition_point(|item| *item.path < *bound)
        };
        let files = before(b'/' + 1) - before(b'/');
        out.extend_from_slice(folder.path.rsplit(|b| *b == b'/').next().unwrap_or_default());
        out.extend_from_slice(format!("\0{files} {subfolders}\n").as_bytes());
        out.extend_from_slice(&naming.bytes(&folder.object)?);
    }
    Some(out)
}

/// How many folders lie directly in the top, and in each folder.
fn subfolders(listing: &Listing) -> Vec<usize> {
    let mut counts = vec![0; listing.folders.len() + 1];
    // Those that the current one lies in, with their place among the counts.
    let mut around: Vec<(&[u8], usize)> = Vec::new();
    for (number, folder) in listing.folders.iter().enumerate() {
        let lies_in =
            |outer: &[u8]| folder.path.strip_prefix(outer).is_some_and(|rest| rest.first() == Some(&b'/'));
        while around.pop_if(|(outer, _)| !lies_in(outer)).is_some() {}
        let parent = around.last().map_or(0, |(_, place)| *place);
        if let Some(count) = counts.get_mut(parent) {
            *count += 1;
        }
        around.push((&folder.path, number + 1));
    }
    counts
}
