//! Fuzzing on a stable compiler: replays the corpus of every target, then mutates it for some seconds.
//!
//! `fuzz --corpus FOLDER [--seconds N] [--seed N]`. All targets run at once. Blind mutation finds less than libFuzzer
//! (`cargo xtask fuzz`) and needs nothing.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a tool that talks to whoever started it")]

use std::{
    fs,
    io::{Error, Result},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use stockade_core::fuzz::Target;

/// The readers of every crate.
fn targets() -> impl Iterator<Item = Target> {
    stockade_gateway::fuzz::TARGETS.into_iter().chain(stockade_providers::fuzz::TARGETS)
}

/// The longest input, in bytes.
const LENGTH_LIMIT: usize = 4096;
/// How long an input may take before its reader counts as stuck.
const STUCK: Duration = Duration::from_secs(20);
/// Bytes that mean something to one of the readers.
const WORDS: [&[u8]; 37] = [
    b"\r\n",
    b"\r\n\r\n",
    b" ",
    b":",
    b"@",
    b"/",
    b"%",
    b"[",
    b"]",
    b"::",
    b"\0",
    b".",
    b"http://",
    b"https://",
    b"CONNECT ",
    b"GET ",
    b"a.example",
    b"b.example",
    b"10.1.2.3",
    b"host: ",
    b"content-length: ",
    b"transfer-encoding: chunked\r\n",
    b"\x16\x03\x01",
    b"\xff\xff",
    b"\"model\":",
    b"\"tools\":",
    b"0x7f",
    b"xn--",
    b"\n",
    b"\\u0000",
    b"{\"type\":\"",
    b"\"item\":{",
    b"\"payload\":{",
    b"null",
    b"\ndata: {",
    b"\"usage\":{",
    b"\"error\":{\"code\":",
];

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(broken) => {
            eprintln!("{broken} target(s) broken");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<usize> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let value = |flag: &str| words.iter().position(|w| w == flag).and_then(|at| words.get(at + 1)).cloned();
    let number = |flag: &str| value(flag).map(|text| text.parse::<u64>().map_err(Error::other)).transpose();
    let corpus = PathBuf::from(value("--corpus").ok_or_else(|| Error::other("--corpus FOLDER is needed"))?);
    let seconds = Duration::from_secs(number("--seconds")?.unwrap_or(10));
    let seed = match number("--seed")? {
        Some(seed) => seed,
        None => fresh_seed(),
    };
    println!("seed {seed}");
    let (sender, results) = mpsc::channel();
    let mut left: Vec<&str> = targets().map(|target| target.name).collect();
    for target in targets() {
        let inputs = inputs(&corpus.join(target.name))?;
        let sender = sender.clone();
        thread::spawn(move || sender.send((target.name, fuzz(&target, &inputs, seconds, seed))));
    }
    drop(sender);
    let mut broken = 0;
    while !left.is_empty() {
        let Ok((name, outcome)) = results.recv_timeout(seconds + STUCK) else {
            println!("stuck: {}", left.join(", "));
            return Ok(broken + left.len());
        };
        left.retain(|other| *other != name);
        match outcome {
            Ok(told) => println!("{name}: {told}"),
            Err(why) => {
                broken += 1;
                println!("{name}: BROKEN: {why}");
            }
        }
    }
    Ok(broken)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a seed that differs from run to run, printed to be used again"
)]
fn fresh_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |since| u64::from(since.subsec_nanos()) ^ since.as_secs())
}

/// The corpus of a target in the order of its names. One without a corpus is a mistake.
fn inputs(folder: &Path) -> Result<Vec<Vec<u8>>> {
    let mut paths = fs::read_dir(folder)
        .map_err(|e| Error::other(format!("{}: {e}", folder.display())))?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.sort();
    if paths.is_empty() {
        return Err(Error::other(format!("{} is empty", folder.display())));
    }
    paths.iter().map(fs::read).collect()
}

fn fuzz(
    target: &Target,
    corpus: &[Vec<u8>],
    seconds: Duration,
    seed: u64,
) -> std::result::Result<String, String> {
    for input in corpus {
        attempt(target, input)?;
    }
    let mut random = Random(seed);
    let end = Instant::now() + seconds;
    let mut count = 0_u64;
    while Instant::now() < end {
        let mut input = random.one_of(corpus).cloned().unwrap_or_default();
        for _ in 0..=random.below(6) {
            mutate(&mut input, corpus, &mut random);
        }
        input.truncate(LENGTH_LIMIT);
        attempt(target, &input)?;
        count += 1;
    }
    Ok(format!("{} of the corpus and {count} mutated", corpus.len()))
}

fn attempt(target: &Target, input: &[u8]) -> std::result::Result<(), String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let why = match outcome {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(violation)) => violation.to_string(),
        Err(_) => "a panic".to_owned(),
    };
    Err(format!("{why}\n  input: {}", input.escape_ascii()))
}

fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let until = (at + random.below(16)).min(input.len());
    match random.below(8) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = random.byte();
            }
        }
        2 => input.insert(at, random.byte()),
        3 => drop(input.drain(at..until)),
        4 => {
            let word = random.one_of(&WORDS).copied().unwrap_or_default();
            drop(input.splice(at..at, word.iter().copied()));
        }
        5 => {
            let word = random.one_of(&WORDS).copied().unwrap_or_default();
            drop(input.splice(at..until, word.iter().copied()));
        }
        6 => {
            let piece: Vec<u8> = input.get(at..until).unwrap_or_default().to_vec();
            drop(input.splice(at..at, piece));
        }
        _ => {
            let other = random.one_of(corpus).cloned().unwrap_or_default();
            let from = random.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(other.get(from..).unwrap_or_default());
        }
    }
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// A number below `limit`; 0 where that is 0.
    fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % limit).unwrap_or(0)
    }

    fn one_of<'l, T>(&mut self, list: &'l [T]) -> Option<&'l T> {
        list.get(self.below(list.len()))
    }
}
