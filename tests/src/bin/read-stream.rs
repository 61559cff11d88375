//! Measures the reader of a dialect on what its agent printed: `read-stream DIALECT RECORDING MEGABYTES`.
//!
//! Prints how many milliseconds of one core that many megabytes take, read as one recording after the other, and by how
//! many kilobytes the process grew at its peak while one reader took as much again, then a line that does not end, and then
//! the longest line that is read.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a measuring tool with a process of its own: what fails ends it"
)]

use std::{fs, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use stockade_core::{
    event::{EventKind, LINE_LIMIT_BYTES},
    profile::Dialect,
};
use stockade_providers::Reader;

/// As much as the runner takes from a pipe at once.
const PIECE_BYTES: usize = 64 * 1024;

fn main() {
    let [dialect, recording, megabytes] =
        std::env::args().skip(1).collect::<Vec<_>>().try_into().expect("DIALECT RECORDING MEGABYTES");
    let dialect: Dialect = serde_json::from_value(dialect.into()).expect("a dialect as profiles name it");
    let recording = fs::read(recording).expect("a recording");
    let bytes = megabytes.parse::<usize>().expect("a number") * 1_000_000;

    let times = bytes.div_ceil(recording.len());
    let mut out = Vec::new();
    let start = computed();
    for _ in 0..times {
        let mut reader = Reader::new(dialect);
        let events = read(&mut reader, &recording, &mut out);
        assert_ne!(events, 0, "nothing was read");
        reader.finish(&mut out);
        out.clear();
    }
    let milliseconds = computed().saturating_sub(start).as_secs_f64() * 1_000.0;

    let piece = vec![b'x'; PIECE_BYTES];
    let mut longest = br#"{"type":""#.to_vec();
    longest.resize(LINE_LIMIT_BYTES - 2, b'x');
    longest.extend_from_slice(b"\"}\n");
    let before = peak_kilobytes();
    let mut reader = Reader::new(dialect);
    for _ in 0..times {
        read(&mut reader, &recording, &mut out);
    }
    for _ in 0..bytes / PIECE_BYTES {
        read(&mut reader, &piece, &mut out);
    }
    read(&mut reader, b"\n", &mut out);
    read(&mut reader, &longest, &mut out);
    println!("{milliseconds:.1} {}", peak_kilobytes() - before);
}

/// Reads bytes in pieces, and forgets what they said but for how many events it was.
fn read(reader: &mut Reader, bytes: &[u8], out: &mut Vec<EventKind>) -> usize {
    let mut events = 0;
    for piece in bytes.chunks(PIECE_BYTES) {
        reader.push(piece, out);
        events += out.len();
        out.clear();
    }
    events
}

/// How long this process has computed: what else the machine does is not counted.
fn computed() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().expect("time goes forward")
}

/// The high-water mark of this process's resident set.
fn peak_kilobytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
