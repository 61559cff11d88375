//! `pstack-runner status`: how lanes stand, from their receipts and progress files. A receipt is the only authority on an
//! end; quiet is not failure.

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::Read as _,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::Value;
use stockade_core::status::exit_code;

use super::{
    progress::{FileRef, KIND, Snapshot},
    start_time, usage,
};
use crate::render;

/// A receipt has at most so many bytes.
const RECEIPT_LIMIT_BYTES: u64 = 262_144;
/// A progress file has at most so many.
const PROGRESS_LIMIT_BYTES: u64 = 8_192;

/// How one lane stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Standing {
    lane: usize,
    view: &'static str,
    reason: Option<&'static str>,
    provider: Option<String>,
    attempt_id: Option<String>,
    phase: Option<String>,
    status: Option<String>,
    exit_code: Option<i64>,
    /// What is known of the agent: `running`, `gone` or `none`.
    child: &'static str,
    updated_at: Option<String>,
    /// Changes when there is something new to tell, and not with every byte.
    change_key: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    schema_version: u32,
    lanes: &'a [Standing],
    note: &'static str,
}

const NOTE: &str =
    "quiet is not failure; descendants end with the runner, which the receipt's stockade.treeGone confirms";

/// Tells how the lanes named by pairs of `--progress` and `--receipt` stand.
pub(super) fn run(arguments: &[OsString]) -> u8 {
    let (pairs, json) = match read(arguments) {
        Ok(read) => read,
        Err(mistake) => return usage(&mistake),
    };
    let lanes: Vec<Standing> =
        pairs.iter().enumerate().map(|(i, (progress, receipt))| look(i + 1, progress, receipt)).collect();
    let text = if json {
        let report = Report { schema_version: 1, lanes: &lanes, note: NOTE };
        serde_json::to_string(&report).unwrap_or_default() + "\n"
    } else {
        lanes.iter().map(line).collect::<String>() + NOTE + "\n"
    };
    match render::out(&text) {
        Ok(()) => exit_code::OK,
        Err(e) => {
            render::error(&e, json);
            e.exit
        }
    }
}

type Pairs = Vec<(PathBuf, PathBuf)>;

fn read(arguments: &[OsString]) -> Result<(Pairs, bool), String> {
    let (mut progress, mut receipts, mut json) = (Vec::new(), Vec::new(), false);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let list = match argument.to_str() {
            Some("--json") => {
                json = true;
                continue;
            }
            Some("--progress") => &mut progress,
            Some("--receipt") => &mut receipts,
            _ => return Err(format!("status does not know `{}`", argument.to_string_lossy().escape_debug())),
        };
        let value = rest.next().filter(|v| !v.is_empty() && !v.as_encoded_bytes().starts_with(b"--"));
        list.push(PathBuf::from(value.ok_or_else(|| "status: a flag has no value".to_owned())?));
    }
    if progress.is_empty() || progress.len() != receipts.len() {
        return Err("status needs as many --progress as --receipt, and at least one".to_owned());
    }
    Ok((progress.into_iter().zip(receipts).collect(), json))
}

enum Content {
    Missing,
    NotAFile,
    TooLarge,
    Bytes(Vec<u8>, FileRef),
}

fn content(path: &Path, limit: u64) -> Content {
    // O_NOFOLLOW, and O_NONBLOCK so that a pipe at the path holds nobody up.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Content::Missing,
        Err(_) => return Content::NotAFile,
    };
    let Ok(meta) = file.metadata() else { return Content::NotAFile };
    if !meta.is_file() {
        return Content::NotAFile;
    }
    let mut bytes = Vec::new();
    match file.take(limit + 1).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() as u64 > limit => Content::TooLarge,
        Ok(_) => Content::Bytes(bytes, FileRef { dev: meta.dev(), ino: meta.ino() }),
        Err(_) => Content::NotAFile,
    }
}

fn look(lane: usize, progress: &Path, receipt: &Path) -> Standing {
    let told = content(progress, PROGRESS_LIMIT_BYTES);
    let snapshot = match &told {
        Content::Bytes(bytes, _) => serde_json::from_slice::<Snapshot>(bytes).ok().filter(|s| s.kind == KIND),
        _ => None,
    };
    let reserved = snapshot.as_ref().and_then(|s| s.receipt_ref);
    let ended = match content(receipt, RECEIPT_LIMIT_BYTES) {
        Content::Bytes(bytes, file) if reserved.is_none_or(|r| r == file) => {
            serde_json::from_slice::<Value>(&bytes).ok().filter(|v| v["status"].is_string())
        }
        _ => None,
    };
    let mut view = blank(lane, snapshot.as_ref());
    if let Some(receipt) = ended {
        view.view = "terminal";
        view.status = receipt["status"].as_str().map(str::to_owned);
        view.exit_code = receipt["exitCode"].as_i64();
        view.provider = receipt["provider"].as_str().map(str::to_owned).or(view.provider);
        view.child = if receipt["processStarted"].as_bool() == Some(true) { "gone" } else { "none" };
    } else {
        (view.view, view.reason) = match (&snapshot, &told) {
            (Some(s), _) => standing(s),
            (None, Content::Missing) => ("unknown", Some("missing")),
            (None, Content::NotAFile) => ("unknown", Some("not-regular-file")),
            (None, Content::TooLarge) => ("unknown", Some("oversize")),
            (None, Content::Bytes(bytes, _)) if bytes.is_empty() => ("unknown", Some("not-started")),
            (None, Content::Bytes(..)) => ("unknown", Some("undecodable")),
        };
        let had_agent = snapshot.is_some_and(|s| s.activity.is_some());
        view.child = match (view.view, had_agent) {
            ("active", true) => "running",
            // The fence ends with the process that built it.
            (_, true) => "gone",
            (_, false) => "none",
        };
    }
    let parts = [Some(view.view), view.reason, view.phase.as_deref(), view.status.as_deref()];
    view.change_key = parts.into_iter().flatten().collect::<Vec<_>>().join(":");
    view
}

/// How a lane without a receipt stands.
fn standing(snapshot: &Snapshot) -> (&'static str, Option<&'static str>) {
    if snapshot.phase == "terminal" {
        return ("unknown", Some("terminal-without-receipt"));
    }
    match (start_time::of(snapshot.runner.pid), &snapshot.runner.start_token) {
        (None, _) => ("interrupted", Some("launcher-gone")),
        (Some(now), Some(then)) if now == *then => ("active", None),
        (Some(_), Some(_)) => ("interrupted", Some("pid-reused")),
        (Some(_), None) => ("unknown", Some("launcher-unverified")),
    }
}

fn blank(lane: usize, snapshot: Option<&Snapshot>) -> Standing {
    Standing {
        lane,
        view: "unknown",
        reason: None,
        provider: snapshot.map(|s| s.provider.clone()),
        attempt_id: snapshot.map(|s| s.attempt_id.clone()),
        phase: snapshot.map(|s| s.phase.clone()),
        status: None,
        exit_code: None,
        child: "none",
        updated_at: snapshot.map(|s| s.updated_at.clone()),
        change_key: String::new(),
    }
}

fn line(view: &Standing) -> String {
    let provider = view.provider.as_deref().unwrap_or("?");
    let attempt: String = view.attempt_id.as_deref().unwrap_or("?").chars().take(8).collect();
    let more = [view.reason, view.status.as_deref(), view.phase.as_deref().filter(|_| view.status.is_none())];
    let head = format!("L{} {provider}:{attempt}", view.lane);
    let child = format!("child={}", view.child);
    let words = [Some(head.as_str()), Some(view.view)].into_iter().chain(more).chain([Some(child.as_str())]);
    words.flatten().collect::<Vec<_>>().join(" ") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn pairs_are_needed() {
        let (pairs, json) = read(&words("--progress a --receipt b --json --receipt d --progress c")).unwrap();
        assert_eq!((pairs, json), (vec![("a".into(), "b".into()), ("c".into(), "d".into())], true));
        for wrong in ["", "--json", "--progress a", "--progress --receipt b", "--progress a --receipt b more"]
        {
            assert!(read(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_unknown_and_says_why() {
        let t = tempfile::tempdir().unwrap();
        let (progress, receipt) = (t.path().join("p"), t.path().join("r"));
        let reason = || look(1, &progress, &receipt).reason;
        assert_eq!(reason(), Some("missing"));
        std::fs::write(&progress, "").unwrap();
        assert_eq!(reason(), Some("not-started"));
        std::fs::write(&progress, "{}").unwrap();
        assert_eq!(reason(), Some("undecodable"));
        std::fs::write(&progress, vec![b' '; 9000]).unwrap();
        assert_eq!(reason(), Some("oversize"));
        std::fs::remove_file(&progress).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &progress).unwrap();
        assert_eq!(reason(), Some("not-regular-file"));
    }
}
