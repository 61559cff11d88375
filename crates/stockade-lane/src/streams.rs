//! The agent's streams: prompt in, transcript and readings out.

use std::{collections::VecDeque, io, os::fd::OwnedFd, time::Instant};

use stockade_core::{
    event::{EventKind, Source},
    judge::note_code,
    profile::Dialect,
};
use stockade_fence::stdio::CallerEnds;
use stockade_journal::Transcript;
use stockade_providers::Reader;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixStream, unix::pipe},
};

use crate::{pace::Pace, recorder::Recorder};

/// How much is read at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// How much of the end of standard error is told as an event; the transcript has all of it.
const TAIL_BYTES: usize = 2_000;

/// The agent's output streams, read as they come.
#[derive(Debug)]
pub(crate) struct Streams {
    stdout: Option<UnixStream>,
    stderr: Option<pipe::Receiver>,
    reader: Reader,
    stdout_transcript: Transcript,
    stderr_transcript: Transcript,
    /// The end of standard error.
    stderr_tail: VecDeque<u8>,
    out_chunk: Vec<u8>,
    err_chunk: Vec<u8>,
    /// How fast each is read; `None`: as fast as can be.
    paces: Option<[Pace; 2]>,
}

/// What came over a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// So many bytes of standard output.
    Stdout(usize),
    /// So many bytes of standard error.
    Stderr(usize),
}

impl Streams {
    /// Takes over the caller's ends; gives back the end that writes the agent's standard input.
    pub(crate) fn open(
        ends: CallerEnds,
        dialect: Dialect,
        stdout_transcript: Transcript,
        stderr_transcript: Transcript,
        bytes_per_s: u64,
    ) -> io::Result<(Self, OwnedFd)> {
        let CallerEnds { stdin, stdout, stderr } = ends;
        let stdout = std::os::unix::net::UnixStream::from(stdout);
        stdout.set_nonblocking(true)?;
        let streams = Self {
            stdout: Some(UnixStream::from_std(stdout)?),
            stderr: Some(pipe::Receiver::from_owned_fd(stderr)?),
            reader: Reader::new(dialect),
            stdout_transcript,
            stderr_transcript,
            out_chunk: vec![0; CHUNK_BYTES],
            err_chunk: vec![0; CHUNK_BYTES],
            stderr_tail: VecDeque::new(),
            paces: Some([Pace::new(bytes_per_s, Instant::now()), Pace::new(bytes_per_s, Instant::now())]),
        };
        Ok((streams, stdin))
    }

    /// Waits for the next bytes of either stream, and until there is room for them. Never ends once both are closed.
    pub(crate) async fn next(&mut self) -> io::Result<Read> {
        let [out_pace, err_pace] = match &self.paces {
            Some([out, err]) => [Some(out), Some(err)],
            None => [None, None],
        };
        let out = async {
            match &mut self.stdout {
                Some(s) => {
                    wait_for(out_pace).await;
                    s.read(&mut self.out_chunk).await
                }
                None => std::future::pending().await,
            }
        };
        let err = async {
            match &mut self.stderr {
                Some(s) => {
                    wait_for(err_pace).await;
                    s.read(&mut self.err_chunk).await
                }
                None => std::future::pending().await,
            }
        };
        let read = tokio::select! {
            n = out => Read::Stdout(n?),
            n = err => Read::Stderr(n?),
        };
        if let Some([out, err]) = &mut self.paces {
            match read {
                Read::Stdout(n) => out.took(n as u64, Instant::now()),
                Read::Stderr(n) => err.took(n as u64, Instant::now()),
            }
        }
        Ok(read)
    }

    /// From now on everything is read as fast as it comes: nobody writes any more.
    pub(crate) fn hurry(&mut self) {
        self.paces = None;
    }

    /// The stream that has written most, and how much.
    pub(crate) fn most_written(&self) -> (&'static str, u64) {
        let (out, err) = (self.stdout_transcript.bytes_seen(), self.stderr_transcript.bytes_seen());
        if out >= err { ("stdout", out) } else { ("stderr", err) }
    }

    /// Whether both streams have ended.
    pub(crate) fn are_closed(&self) -> bool {
        self.stdout.is_none() && self.stderr.is_none()
    }

    /// Takes what [`Streams::next`] has read: into the transcript, and through the dialect to the recorder.
    pub(crate) fn take(&mut self, read: Read, recorder: &mut Recorder<'_>) -> Vec<EventKind> {
        match read {
            Read::Stdout(0) => {
                self.stdout = None;
                self.readings(recorder, Reader::finish)
            }
            Read::Stdout(n) => {
                let bytes = self.out_chunk.get(..n).unwrap_or_default().to_vec();
                if let Err(e) = self.stdout_transcript.write(&bytes) {
                    recorder.storage_failed(e);
                }
                self.readings(recorder, |reader, out| reader.push(&bytes, out))
            }
            Read::Stderr(0) => {
                self.stderr = None;
                Vec::new()
            }
            Read::Stderr(n) => {
                let bytes = self.err_chunk.get(..n).unwrap_or_default();
                if let Err(e) = self.stderr_transcript.write(bytes) {
                    recorder.storage_failed(e);
                }
                self.stderr_tail.extend(bytes);
                let before = self.stderr_tail.len().saturating_sub(TAIL_BYTES);
                drop(self.stderr_tail.drain(..before));
                Vec::new()
            }
        }
    }

    /// What the agent said last on standard error, for the judge; `None`: nothing.
    pub(crate) fn last_words(&self) -> Option<EventKind> {
        let bytes: Vec<u8> = self.stderr_tail.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then(|| EventKind::Note { code: note_code::STDERR_TAIL.to_owned(), text })
    }

    fn readings(
        &mut self,
        recorder: &mut Recorder<'_>,
        read: impl FnOnce(&mut Reader, &mut Vec<EventKind>),
    ) -> Vec<EventKind> {
        let mut out = Vec::new();
        read(&mut self.reader, &mut out);
        for kind in &out {
            recorder.record(Source::Agent, kind.clone());
        }
        out
    }

    /// Ends both transcripts.
    pub(crate) fn finish(self, recorder: &mut Recorder<'_>) {
        for (name, transcript) in [("stdout", self.stdout_transcript), ("stderr", self.stderr_transcript)] {
            let kept = transcript.finish();
            if kept.cut {
                recorder.record(
                    Source::Stockade,
                    EventKind::Note {
                        code: "transcript-cut".to_owned(),
                        text: format!("{name}: {} of {} bytes kept", kept.bytes_kept, kept.bytes_seen),
                    },
                );
            }
        }
    }
}

async fn wait_for(pace: Option<&Pace>) {
    let Some(at) = pace.map(|p| p.ready_at(CHUNK_BYTES as u64)) else { return };
    // Without a look at the clock every read would cost a timer.
    if at > Instant::now() {
        tokio::time::sleep_until(at.into()).await;
    }
}

/// Writes the prompt to the agent's standard input, then closes it.
pub(crate) async fn feed(stdin: OwnedFd, prompt: Vec<u8>) -> io::Result<()> {
    let stdin = std::os::unix::net::UnixStream::from(stdin);
    stdin.set_nonblocking(true)?;
    let mut stdin = UnixStream::from_std(stdin)?;
    stdin.write_all(&prompt).await?;
    stdin.shutdown().await
}
