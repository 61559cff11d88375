//! Server-sent events: lines in, the data of each event out.

use memchr::memchr2;

/// The longest data of one event that is read; longer ones pass unread. The last event of a response repeats all of its
/// output.
const DATA_LIMIT_BYTES: usize = 8 * 1024 * 1024;
/// The field that is read.
const FIELD: &[u8] = b"data:";

/// The reader's state between two pieces of a stream.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// The beginning of the line, as long as it may be that of the field.
    name: Vec<u8>,
    line: Line,
    /// The data of the event so far.
    data: Vec<u8>,
    /// How many lines of data it has.
    lines: usize,
    overlong: bool,
    after_return: bool,
}

/// What is known of the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    /// Its beginning is that of the field, as far as it goes.
    #[default]
    Begun,
    /// It is data; the first byte is still to come, and left out if it is a space.
    DataBegun,
    /// It is data.
    Data,
    /// It is something else.
    Other,
}

impl Events {
    /// Reads bytes, cut anywhere; `each` gets the data of every event that is complete.
    pub(super) fn read(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while let Some(end) = memchr2(b'\n', b'\r', rest) {
            let (line, after) = rest.split_at(end);
            self.extend(line);
            // "\r\n" is one end of line.
            let is_second = self.after_return && line.is_empty() && after.first() == Some(&b'\n');
            if !is_second {
                self.end_line(&mut each);
            }
            self.after_return = after.first() == Some(&b'\r');
            rest = after.get(1..).unwrap_or_default();
        }
        if !rest.is_empty() {
            self.after_return = false;
            self.extend(rest);
        }
    }

    /// The stream is over. An event without its blank line counts: nothing of it can be missing but the end.
    pub(super) fn end(&mut self, mut each: impl FnMut(&[u8])) {
        self.end_line(&mut each);
        self.end_event(&mut each);
    }

    /// More of a line.
    fn extend(&mut self, mut bytes: &[u8]) {
        if self.line == Line::Begun && !bytes.is_empty() {
            let missing = FIELD.len() - self.name.len();
            let (name, after) = bytes.split_at(missing.min(bytes.len()));
            self.name.extend_from_slice(name);
            bytes = after;
            if !FIELD.starts_with(&self.name) {
                self.line = Line::Other;
            } else if self.name.len() == FIELD.len() {
                self.line = Line::DataBegun;
                if self.lines > 0 {
                    self.keep(b"\n");
                }
                self.lines += 1;
            }
        }
        if self.line == Line::DataBegun && !bytes.is_empty() {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
            self.line = Line::Data;
        }
        if self.line == Line::Data {
            self.keep(bytes);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.data.len() + bytes.len() < DATA_LIMIT_BYTES {
            self.data.extend_from_slice(bytes);
        } else {
            self.overlong = true;
        }
    }

    fn end_line(&mut self, each: &mut impl FnMut(&[u8])) {
        if self.line == Line::Begun && self.name.is_empty() {
            self.end_event(each);
        }
        self.name.clear();
        self.line = Line::Begun;
    }

    fn end_event(&mut self, each: &mut impl FnMut(&[u8])) {
        if !self.overlong && !self.data.is_empty() {
            each(&self.data);
        }
        self.overlong = false;
        self.lines = 0;
        self.data.clear();
    }
}
