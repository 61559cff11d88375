//! The stream of `git cat-file --batch`: one object after the other, however the stream is cut.

/// A header is an object's name, its kind and its size.
const HEADER_LIMIT_BYTES: usize = 256;

/// Who takes the objects. An error ends the stream.
pub(crate) trait Objects {
    /// An object begins.
    fn begin(&mut self, object: &str, kind: &str, bytes: u64) -> Result<(), String>;
    /// The next piece of its content.
    fn content(&mut self, part: &[u8]) -> Result<(), String>;
    /// It was whole.
    fn end(&mut self) -> Result<(), String>;
}

/// Reads the stream piece by piece.
#[derive(Debug)]
pub(crate) struct BatchReader<O> {
    header: Vec<u8>,
    /// Bytes of the current object that are still to come.
    left: Option<u64>,
    objects: O,
}

impl<O: Objects> BatchReader<O> {
    pub(crate) fn new(objects: O) -> Self {
        Self { header: Vec::new(), left: None, objects }
    }

    pub(crate) fn into_objects(self) -> O {
        self.objects
    }

    /// Takes the next piece.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            bytes = match self.left {
                None => self.head(bytes)?,
                Some(left) => self.content(left, bytes)?,
            };
        }
        Ok(())
    }

    fn head<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], String> {
        let end = bytes.iter().position(|b| *b == b'\n');
        let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        self.header.extend_from_slice(line);
        if self.header.len() > HEADER_LIMIT_BYTES {
            return Err("git cat-file said something else than objects".to_owned());
        }
        if end.is_none() {
            return Ok(rest);
        }
        let header = std::mem::take(&mut self.header);
        let header = String::from_utf8_lossy(&header);
        let mut words = header.split(' ');
        // The newline after a content stands before the next header, and what is missing has no size.
        if let (Some(object), Some(kind), Some(size)) = (words.next(), words.next(), words.next()) {
            let bytes = size.parse().map_err(|_| "git cat-file named no size".to_owned())?;
            self.objects.begin(object, kind, bytes)?;
            self.left = Some(bytes);
            if bytes == 0 {
                self.finish()?;
            }
        }
        Ok(rest.get(1..).unwrap_or_default())
    }

    fn content<'b>(&mut self, left: u64, bytes: &'b [u8]) -> Result<&'b [u8], String> {
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let (part, rest) = bytes.split_at(take);
        self.objects.content(part)?;
        let left = left - take as u64;
        self.left = Some(left);
        if left == 0 {
            self.finish()?;
        }
        Ok(rest)
    }

    fn finish(&mut self) -> Result<(), String> {
        self.left = None;
        self.objects.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Kept(Vec<(String, String, Vec<u8>)>);

    impl Objects for Kept {
        fn begin(&mut self, object: &str, kind: &str, _: u64) -> Result<(), String> {
            self.0.push((object.to_owned(), kind.to_owned(), Vec::new()));
            Ok(())
        }

        fn content(&mut self, part: &[u8]) -> Result<(), String> {
            self.0.last_mut().unwrap().2.extend_from_slice(part);
            Ok(())
        }

        fn end(&mut self) -> Result<(), String> {
            self.0.last_mut().unwrap().1.push('.');
            Ok(())
        }
    }

    #[test]
    fn objects_are_whole_however_the_stream_is_cut() {
        let stream = b"aa blob 3\nabc\nbb tree 0\n\ncc missing\ndd blob 1\n\n\n";
        let of = |object: &str, kind: &str, text: &[u8]| (object.to_owned(), kind.to_owned(), text.to_vec());
        let expected = [of("aa", "blob.", b"abc"), of("bb", "tree.", b""), of("dd", "blob.", b"\n")];
        for size in 1..=stream.len() {
            let mut reader = BatchReader::new(Kept::default());
            for part in stream.chunks(size) {
                reader.read(part).unwrap();
            }
            assert_eq!(reader.into_objects().0, expected, "pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_such_stream_is_refused() {
        for stream in ["a".repeat(300), "aa blob x\n".to_owned()] {
            assert!(BatchReader::new(Kept::default()).read(stream.as_bytes()).is_err(), "{stream}");
        }
    }
}
