//! The first message of a TLS client (RFC 8446, 4.1.2; RFC 6066, 3), read for the name it asks for.

/// A message larger than this is no hello that is waited for; the largest seen, with keys of post-quantum kinds, have two
/// kilobytes.
pub(crate) const HELLO_LIMIT_BYTES: usize = 16 * 1024;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// A second name that only the server can read (RFC 9849).
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
const RECORD_HEADER: usize = 5;
/// The longest record (RFC 8446, 5.1).
const RECORD_LIMIT: usize = 1 << 14;

/// What the first bytes of a connection are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hello {
    /// Not enough yet.
    More,
    /// A hello that asks for this name, as it is written there.
    Named(String),
    /// A hello without a name.
    Unnamed,
    /// A hello with a second, encrypted name.
    Hidden,
    /// No hello of TLS, or a broken one.
    Other,
}

/// Reads the first bytes of a connection.
pub(crate) fn read(bytes: &[u8]) -> Hello {
    match message(bytes) {
        Ok(body) => name(&body).unwrap_or(Hello::Other),
        Err(hello) => hello,
    }
}

/// The body of the handshake message, put together from its records.
fn message(bytes: &[u8]) -> Result<Vec<u8>, Hello> {
    let mut whole = Vec::new();
    let mut rest = bytes;
    loop {
        if let Some((head, body)) = whole.split_at_checked(4) {
            let length = head.iter().skip(1).fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
            if head.first() != Some(&CLIENT_HELLO) || length > HELLO_LIMIT_BYTES {
                return Err(Hello::Other);
            }
            if let Some(body) = body.get(..length) {
                // What follows in records of its own is early data; in the same message it is another one.
                return if whole.len() == length + 4 { Ok(body.to_vec()) } else { Err(Hello::Other) };
            }
        }
        let Some((header, after)) = rest.split_at_checked(RECORD_HEADER) else {
            let possible = rest.first().is_none_or(|kind| *kind == HANDSHAKE)
                && rest.get(1).is_none_or(|major| *major == 3);
            return Err(if possible { Hello::More } else { Hello::Other });
        };
        let &[kind, major, _, high, low] = header else { return Err(Hello::Other) };
        let length = usize::from(high) << 8 | usize::from(low);
        if kind != HANDSHAKE || major != 3 || length == 0 || length > RECORD_LIMIT {
            return Err(Hello::Other);
        }
        let Some((fragment, after)) = after.split_at_checked(length) else { return Err(Hello::More) };
        whole.extend_from_slice(fragment);
        rest = after;
    }
}

/// What a hello asks for; `None`: it is broken.
fn name(body: &[u8]) -> Option<Hello> {
    let mut at = Reader(body);
    at.take(2 + 32)?;
    at.vector8()?;
    at.vector16()?;
    at.vector8()?;
    if at.0.is_empty() {
        return Some(Hello::Unnamed);
    }
    let mut extensions = Reader(at.vector16()?);
    if !at.0.is_empty() {
        return None;
    }
    let (mut found, mut hidden) = (None, false);
    while !extensions.0.is_empty() {
        let kind = extensions.number16()?;
        let content = extensions.vector16()?;
        match kind {
            // Twice is one name for us and another for the server.
            SERVER_NAME if found.is_some() => return None,
            SERVER_NAME => found = Some(server_name(content)?),
            ENCRYPTED_CLIENT_HELLO => hidden = true,
            _ => {}
        }
    }
    Some(match found {
        _ if hidden => Hello::Hidden,
        Some(name) => Hello::Named(name),
        None => Hello::Unnamed,
    })
}

/// The one name of the extension.
fn server_name(content: &[u8]) -> Option<String> {
    let mut at = Reader(content);
    let mut list = Reader(at.vector16()?);
    if !at.0.is_empty() || list.take(1)? != [HOST_NAME] {
        return None;
    }
    let name = list.vector16()?;
    if !list.0.is_empty() || name.is_empty() || !name.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    String::from_utf8(name.to_vec()).ok()
}

/// What is left to read.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    fn vector8(&mut self) -> Option<&'b [u8]> {
        let length = usize::from(*self.take(1)?.first()?);
        self.take(length)
    }

    fn vector16(&mut self) -> Option<&'b [u8]> {
        let length = usize::from(self.number16()?);
        self.take(length)
    }
}

#[cfg(test)]
mod tests;
