//! Server-sent events: lines in, the data of each event out.

/// The longest data of one event that is read; longer ones pass unread.
const DATA_LIMIT_BYTES: usize = 1024 * 1024;

/// The reader's state between two pieces of a stream.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    overlong: bool,
    after_return: bool,
}

impl Events {
    /// Reads bytes, cut anywhere; `each` gets the data of every event that is complete.
    pub(super) fn read(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for byte in bytes {
            match byte {
                // "\r\n" is one end of line.
                b'\n' if self.after_return => {}
                b'\n' | b'\r' => self.end_line(&mut each),
                _ if self.line.len() < DATA_LIMIT_BYTES => self.line.push(*byte),
                _ => self.overlong = true,
            }
            self.after_return = *byte == b'\r';
        }
    }

    /// The stream is over. An event without its blank line counts: nothing of it can be missing but the end.
    pub(super) fn end(&mut self, mut each: impl FnMut(&[u8])) {
        self.end_line(&mut each);
        self.end_event(&mut each);
    }

    fn end_line(&mut self, each: &mut impl FnMut(&[u8])) {
        if self.line.is_empty() {
            self.end_event(each);
        } else if let Some(value) = self.line.strip_prefix(b"data:") {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            if self.data.len() + value.len() < DATA_LIMIT_BYTES {
                if !self.data.is_empty() {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            } else {
                self.overlong = true;
            }
        }
        self.line.clear();
    }

    fn end_event(&mut self, each: &mut impl FnMut(&[u8])) {
        if !self.overlong && !self.data.is_empty() {
            each(&self.data);
        }
        self.overlong = false;
        self.data.clear();
    }
}
