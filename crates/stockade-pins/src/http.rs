//! One download, in a thread of its own so that a wish to cancel never waits for the network.

use std::error::Error as StdError;
use std::io::{self, Read as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use ureq::Agent;

use crate::CHUNK_BYTES;
use crate::MAX_TARBALL_BYTES;
use crate::error::{PinError, PinErrorKind, Step};
use crate::progress::{Phase, Watch};

/// Chunks under way between the network and the disk.
const CHUNKS_UNDER_WAY: usize = 4;
/// How often the caller is asked whether to go on while nothing arrives.
const ASK_EVERY: Duration = Duration::from_millis(100);

enum Message {
    Answer { length: Option<u64> },
    Chunk(Vec<u8>),
    End,
    Failed(PinError),
}

/// Downloads `url` into `write`. `expected` is the pinned length; a longer answer is refused while it arrives, a shorter one
/// counts as cut off.
pub(crate) fn download(
    agent: Agent,
    url: &str,
    expected: Option<u64>,
    watch: &mut Watch<'_>,
    write: &mut dyn FnMut(&[u8]) -> Result<(), PinError>,
) -> Result<(), PinError> {
    watch.report(Step::Connect, Phase::Connecting, 0, None)?;
    let (sender, receiver) = sync_channel(CHUNKS_UNDER_WAY);
    let address = url.to_owned();
    // On a cancel the thread is left to itself: it ends at its next send, or at the read timeout.
    thread::Builder::new()
        .name("stockade-fetch".to_owned())
        .spawn(move || fetch(&agent, &address, &sender))
        .map_err(|error| {
            unreachable_at(Step::Connect, url, &error.to_string()).with_errno(error.raw_os_error())
        })?;
    receive(&receiver, url, expected, watch, write)
}

fn receive(
    receiver: &Receiver<Message>,
    url: &str,
    expected: Option<u64>,
    watch: &mut Watch<'_>,
    write: &mut dyn FnMut(&[u8]) -> Result<(), PinError>,
) -> Result<(), PinError> {
    let limit = expected.unwrap_or(MAX_TARBALL_BYTES);
    let (mut phase, mut step) = (Phase::Connecting, Step::Connect);
    let (mut done, mut length) = (0_u64, None);
    loop {
        match receiver.recv_timeout(ASK_EVERY) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(unreachable_at(step, url, "the download ended without a reason"));
            }
            Ok(Message::Failed(error)) => return Err(error),
            Ok(Message::Answer { length: announced }) => {
                (phase, step, length) = (Phase::Downloading, Step::Download, announced);
                refuse_longer(announced.unwrap_or(0), limit, url)?;
            }
            Ok(Message::Chunk(chunk)) => {
                done = done.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
                refuse_longer(done, limit, url)?;
                write(&chunk)?;
            }
            Ok(Message::End) => {
                let whole = length.or(expected).unwrap_or(done);
                if done < whole {
                    return Err(cut(url, done, Some(whole)));
                }
                return watch.report(step, phase, done, Some(done));
            }
        }
        watch.report(step, phase, done, length.or(expected))?;
    }
}

fn fetch(agent: &Agent, url: &str, sender: &SyncSender<Message>) {
    let last = match transfer(agent, url, sender) {
        Ok(()) => Message::End,
        Err(error) => Message::Failed(error),
    };
    // Nobody listens any more after a cancel.
    let _cancelled = sender.send(last);
}

fn transfer(agent: &Agent, url: &str, sender: &SyncSender<Message>) -> Result<(), PinError> {
    let response = agent
        .get(url)
        .header("accept-encoding", "identity")
        .call()
        .map_err(|error| from_client(url, error))?;
    let status = response.status();
    if !status.is_success() {
        let error = unreachable_at(Step::Connect, url, &format!("the registry answered {status}"));
        return Err(match status.as_u16() {
            404 | 410 => error.hinted("the registry has no such version; check the version's number"),
            401 | 403 | 407 => error.hinted("the registry or a proxy on the way asks for permission"),
            _ => error,
        });
    }
    let body = response.into_body();
    let length = body.content_length();
    let mut reader = body.into_with_config().limit(u64::MAX).reader();
    let mut done = 0_u64;
    if sender.send(Message::Answer { length }).is_err() {
        return Ok(());
    }
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        let count = match reader.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(cut(url, done, length)),
            Err(error) => {
                let errno = error.raw_os_error();
                let detail = format!("{error} after {done} bytes");
                return Err(unreachable_at(Step::Download, url, &detail).with_errno(errno).caused_by(error));
            }
        };
        chunk.truncate(count);
        done = done.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        if sender.send(Message::Chunk(chunk)).is_err() {
            return Ok(());
        }
    }
}

fn from_client(url: &str, error: ureq::Error) -> PinError {
    let errno = match &error {
        ureq::Error::Io(io) => io.raw_os_error(),
        _ => None,
    };
    let hint = if is_tls(&error) {
        "behind a proxy that opens TLS, name its certificates in SSL_CERT_FILE"
    } else {
        "set HTTPS_PROXY where a proxy is needed, or bring the package along and use `--from FILE`"
    };
    unreachable_at(Step::Connect, url, &error.to_string()).hinted(hint).with_errno(errno).caused_by(error)
}

/// Whether TLS was refused; during the handshake the reason comes wrapped as an error of the socket.
fn is_tls(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) => true,
        ureq::Error::Io(io) => io.get_ref().is_some_and(<dyn StdError + Send + Sync>::is::<rustls::Error>),
        _ => false,
    }
}

fn refuse_longer(length: u64, limit: u64, url: &str) -> Result<(), PinError> {
    if length <= limit {
        return Ok(());
    }
    let detail = format!("{url} is larger than the {limit} bytes it may have");
    Err(PinError::new(PinErrorKind::VerificationFailed, Step::Download, detail))
}

fn cut(url: &str, done: u64, whole: Option<u64>) -> PinError {
    let detail = match whole {
        Some(whole) => format!("the connection was cut after {done} of {whole} bytes"),
        None => format!("the connection was cut after {done} bytes"),
    };
    unreachable_at(Step::Download, url, &detail).hinted("try again")
}

fn unreachable_at(step: Step, url: &str, detail: &str) -> PinError {
    PinError::new(PinErrorKind::Unreachable, step, format!("{url}: {detail}"))
}
