//! Messages over a stream socket: a length of four bytes (little-endian), JSON, and descriptors beside it.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{FenceError, FenceErrorKind, Step};
use crate::message::Carries;

/// The largest message.
pub(crate) const MAX_MESSAGE: usize = 1 << 20;
/// How long the peer may take to make room.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Most descriptors a peer may have sent without a message that explains them.
const MAX_DESCRIPTORS: usize = 16;
const HEADER: usize = 4;

/// One end of the control socket.
#[derive(Debug)]
pub(crate) struct Frames {
    socket: OwnedFd,
    bytes: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
}

/// What a read gave.
#[derive(Debug)]
pub(crate) enum Received<T> {
    /// A message with its descriptors.
    Message(T, Vec<OwnedFd>),
    /// No whole message yet.
    Nothing,
    /// The peer is gone.
    End,
}

impl Frames {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, bytes: Vec::new(), descriptors: VecDeque::new() }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends one message; the descriptors go with its first byte.
    pub(crate) fn send<T: Serialize>(
        &self,
        message: &T,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), FenceError> {
        let frame = frame(message)?;
        let mut rest = frame.as_slice();
        let mut descriptors = descriptors;
        while !rest.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
                return Err(FenceError::new(FenceErrorKind::Request, "sendmsg", Errno::TOOMANYREFS));
            }
            let sent =
                rustix::net::sendmsg(&self.socket, &[IoSlice::new(rest)], &mut control, SendFlags::NOSIGNAL);
            match sent {
                Ok(n) => {
                    rest = rest.get(n..).unwrap_or_default();
                    descriptors = &[];
                }
                Err(Errno::INTR) => {}
                // A caller's reactor may have made the socket non-blocking: the flag belongs to both descriptors.
                Err(Errno::AGAIN) => wait_writable(self.socket.as_fd())?,
                Err(e) => return Err(e).step("sendmsg").map_err(|e| e.of_kind(FenceErrorKind::Helper)),
            }
        }
        Ok(())
    }

    /// Takes the next message if it has come. Never blocks.
    pub(crate) fn poll<T: DeserializeOwned + Carries>(&mut self) -> Result<Received<T>, FenceError> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(message);
            }
            match self.read() {
                Ok(0) | Err(Errno::CONNRESET) => return Ok(Received::End),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(e) => return Err(e).step("recvmsg").map_err(|e| e.of_kind(FenceErrorKind::Helper)),
            }
        }
    }

    /// Waits for the next message until `end`.
    pub(crate) fn wait<T: DeserializeOwned + Carries>(
        &mut self,
        end: Instant,
    ) -> Result<Received<T>, FenceError> {
        loop {
            match self.poll()? {
                Received::Nothing => {}
                other => return Ok(other),
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Received::Nothing);
            }
            wait_readable(self.socket.as_fd(), left)?;
        }
    }

    fn take<T: DeserializeOwned + Carries>(&mut self) -> Result<Option<Received<T>>, FenceError> {
        let Some((header, body)) = self.bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*header)).unwrap_or(usize::MAX);
        if length > MAX_MESSAGE {
            return Err(garbled("a message of more than 1 MiB"));
        }
        let Some(body) = body.get(..length) else { return Ok(None) };
        let message: T =
            serde_json::from_slice(body).map_err(|_| garbled("a message that is not understood"))?;
        self.bytes.drain(..HEADER + length);
        let wanted = message.descriptors();
        if wanted > self.descriptors.len() {
            return Err(garbled("a message without its descriptors"));
        }
        let descriptors = self.descriptors.drain(..wanted).collect();
        Ok(Some(Received::Message(message, descriptors)))
    }

    fn read(&mut self) -> Result<usize, Errno> {
        let mut chunk = [0; 16 * 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received =
            rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(&mut chunk)], &mut control, flags)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        // More than any message explains: the surplus is closed, and the message that lacks its own is refused.
        self.descriptors.truncate(MAX_DESCRIPTORS);
        self.bytes.extend(chunk.iter().take(received.bytes));
        Ok(received.bytes)
    }
}

fn frame<T: Serialize>(message: &T) -> Result<Vec<u8>, FenceError> {
    let mut frame = vec![0; HEADER];
    serde_json::to_writer(&mut frame, message).map_err(|_| {
        FenceError::new(FenceErrorKind::Request, "write a message (is every path UTF-8?)", Errno::INVAL)
    })?;
    let length = frame.len() - HEADER;
    if length > MAX_MESSAGE {
        return Err(FenceError::new(FenceErrorKind::Request, "send more than 1 MiB", Errno::TOOBIG));
    }
    let header = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    for (to, from) in frame.iter_mut().zip(header) {
        *to = from;
    }
    Ok(frame)
}

fn garbled(what: &'static str) -> FenceError {
    FenceError::new(FenceErrorKind::Helper, what, Errno::PROTO)
}

/// Waits until the peer has taken what was sent before. It always reads, so that a long wait means it is no more.
fn wait_writable(fd: BorrowedFd<'_>) -> Result<(), FenceError> {
    let timeout = Timespec::try_from(SEND_TIMEOUT).ok();
    match rustix::event::poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], timeout.as_ref()) {
        Ok(0) => Err(FenceError::new(FenceErrorKind::Helper, "sendmsg", Errno::TIMEDOUT)),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e).step("poll"),
    }
}

/// Waits until a descriptor is readable or closed at the other end. Returns early after a signal.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, limit: Duration) -> Result<(), FenceError> {
    let timeout = Timespec::try_from(limit).ok();
    match rustix::event::poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e).step("poll"),
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Note {
        text: String,
        fds: usize,
    }

    impl Carries for Note {
        fn descriptors(&self) -> usize {
            self.fds
        }
    }

    fn pair() -> (Frames, Frames) {
        let (a, b) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        (Frames::new(a), Frames::new(b))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[test]
    fn messages_keep_their_order_and_their_descriptors() {
        let (a, mut b) = pair();
        let null = std::fs::File::open("/dev/null").unwrap();
        let zero = std::fs::File::open("/dev/zero").unwrap();
        a.send(&Note { text: "none".into(), fds: 0 }, &[]).unwrap();
        a.send(&Note { text: "one".into(), fds: 1 }, &[null.as_fd()]).unwrap();
        a.send(&Note { text: "two".into(), fds: 2 }, &[zero.as_fd(), null.as_fd()]).unwrap();
        for (text, fds) in [("none", 0), ("one", 1), ("two", 2)] {
            let Received::Message(note, descriptors) = b.wait::<Note>(soon()).unwrap() else {
                panic!("{text}")
            };
            assert_eq!((note.text.as_str(), descriptors.len()), (text, fds));
        }
        assert!(matches!(b.poll::<Note>().unwrap(), Received::Nothing));
        drop(a);
        assert!(matches!(b.poll::<Note>().unwrap(), Received::End));
    }

    #[test]
    fn a_large_message_arrives_whole_and_a_too_large_one_is_not_sent() {
        let (a, mut b) = pair();
        let text = "x".repeat(MAX_MESSAGE - 100);
        let sender = std::thread::spawn(move || {
            a.send(&Note { text, fds: 0 }, &[]).unwrap();
            a.send(&Note { text: "y".repeat(MAX_MESSAGE), fds: 0 }, &[]).unwrap_err()
        });
        let Received::Message(note, _) = b.wait::<Note>(soon()).unwrap() else { panic!("nothing came") };
        assert_eq!(note.text.len(), MAX_MESSAGE - 100);
        assert_eq!(sender.join().unwrap().errno(), libc::E2BIG);
    }

    #[test]
    fn a_peer_that_talks_nonsense_is_an_error() {
        for bytes in [&b"\xff\xff\xff\xff"[..], b"\x02\0\0\0{]"] {
            let (a, mut b) = pair();
            rustix::io::write(a.socket(), bytes).unwrap();
            assert_eq!(b.wait::<Note>(soon()).unwrap_err().kind(), FenceErrorKind::Helper);
        }
        let (a, mut b) = pair();
        a.send(&Note { text: "where are they".into(), fds: 2 }, &[]).unwrap();
        assert!(b.wait::<Note>(soon()).is_err());
    }
}
