//! Small packages as the registry has them.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256, Sha512};
use stockade_pins::PinList;
use tar::{Builder, EntryType, Header};

pub(crate) const VERSION: &str = "1.0.41";

/// One entry of a tarball, under any name and of any type.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: EntryType,
    pub(crate) content: &'a [u8],
}

pub(crate) fn file<'a>(name: &'a str, content: &'a [u8]) -> Entry<'a> {
    Entry { name, kind: EntryType::Regular, content }
}

pub(crate) fn tarball(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for entry in entries {
        let mut header = Header::new_ustar();
        // Set by hand: the builder refuses the names that have to be tried.
        header.as_old_mut().name[..entry.name.len()].copy_from_slice(entry.name.as_bytes());
        header.set_entry_type(entry.kind);
        header.set_mode(0o644);
        if entry.kind == EntryType::Symlink {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_size(entry.content.len() as u64);
        header.set_cksum();
        builder.append(&header, entry.content).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

pub(crate) fn brotli(content: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    brotli::CompressorReader::new(content, 4096, 2, 20).read_to_end(&mut packed).unwrap();
    packed
}

pub(crate) fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// An executable of a quarter of a megabyte that does not compress well.
pub(crate) fn program() -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    b"#!/bin/sh\nexit 0\n".iter().copied().chain(noise.take(1 << 18)).collect()
}

/// A package of one program, and the list of pins that vouches for it.
pub(crate) struct Package {
    pub(crate) program: Vec<u8>,
    pub(crate) tarball: Vec<u8>,
}

impl Package {
    pub(crate) fn new() -> Self {
        let program = program();
        let packed = brotli(&program);
        let tarball = tarball(&[file("package/package.json", b"{}"), file("package/bin/grok.br", &packed)]);
        Self { program, tarball }
    }

    pub(crate) fn pins(&self) -> PinList {
        pins(&self.tarball, "package/bin/grok.br", "brotli", &self.program)
    }
}

pub(crate) fn pins(tarball: &[u8], from: &str, transform: &str, program: &[u8]) -> PinList {
    PinList::parse(&format!(
        r#"
[[pins]]
provider = "grok"
version = "{VERSION}"
package = "@xai-official/grok-linux-x64"
registry_path = "@xai-official/grok-linux-x64/-/grok-linux-x64-{VERSION}.tgz"
integrity = "sha512-{}"
tarball_size = {}
executable = "grok"
[[pins.files]]
from = "{from}"
to = "grok"
transform = "{transform}"
size = {}
sha256 = "{}"
"#,
        STANDARD.encode(Sha512::digest(tarball)),
        tarball.len(),
        program.len(),
        sha256(program),
    ))
    .unwrap()
}
