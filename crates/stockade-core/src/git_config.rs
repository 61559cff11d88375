//! The grammar of git-config(1): sections with subsections, quotes, escapes, comments, continued lines. Nothing is
//! included, looked up or interpreted.

use std::iter::Peekable;
use std::str::Chars;

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The section, in lower case.
    pub section: String,
    /// The subsection, as written.
    pub subsection: Option<String>,
    /// The key, in lower case.
    pub key: String,
    /// The value without quotes and escapes; empty where there is none.
    pub value: String,
}

/// The settings of a file, in order. Malformed lines are skipped.
pub fn settings(text: &str) -> impl Iterator<Item = Setting> + '_ {
    // A byte order mark may stand at the beginning.
    Parser {
        chars: text.trim_start_matches('\u{feff}').chars().peekable(),
        section: String::new(),
        subsection: None,
    }
}

struct Parser<'t> {
    chars: Peekable<Chars<'t>>,
    section: String,
    subsection: Option<String>,
}

impl Iterator for Parser<'_> {
    type Item = Setting;

    fn next(&mut self) -> Option<Setting> {
        loop {
            match *self.chars.peek()? {
                c if c.is_whitespace() => {
                    self.chars.next();
                }
                '#' | ';' => self.skip_line(),
                '[' => {
                    self.chars.next();
                    self.header();
                }
                c if c.is_ascii_alphabetic() => return Some(self.setting()),
                _ => self.skip_line(),
            }
        }
    }
}

impl Parser<'_> {
    fn skip_line(&mut self) {
        for c in self.chars.by_ref() {
            if c == '\n' {
                break;
            }
        }
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let mut text = String::new();
        while let Some(c) = self.chars.next_if(|c| wanted(*c)) {
            text.push(c);
        }
        text
    }

    /// `[section]`, `[section "subsection"]`, or the old `[section.subsection]`.
    fn header(&mut self) {
        let name =
            self.take_while(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.').to_ascii_lowercase();
        self.take_while(|c| c == ' ' || c == '\t');
        (self.section, self.subsection) = match name.split_once('.') {
            Some((section, sub)) => (section.to_owned(), Some(sub.to_owned())),
            None => (name, None),
        };
        if self.chars.next_if_eq(&'"').is_some() {
            self.subsection = Some(self.quoted_subsection());
        }
        // Whatever stands before the bracket is malformed, and so is a header without one.
        self.take_while(|c| c != ']' && c != '\n');
        self.chars.next_if_eq(&']');
    }

    fn quoted_subsection(&mut self) -> String {
        let mut text = String::new();
        while let Some(c) = self.chars.next_if(|c| *c != '\n') {
            match c {
                '"' => break,
                '\\' => text.extend(self.chars.next_if(|c| *c != '\n')),
                c => text.push(c),
            }
        }
        text
    }

    fn setting(&mut self) -> Setting {
        let key = self.take_while(|c| c.is_ascii_alphanumeric() || c == '-').to_ascii_lowercase();
        self.take_while(|c| c == ' ' || c == '\t');
        let value = if self.chars.next_if_eq(&'=').is_some() {
            self.value()
        } else {
            self.skip_line();
            String::new()
        };
        Setting { section: self.section.clone(), subsection: self.subsection.clone(), key, value }
    }

    fn value(&mut self) -> String {
        let mut value = String::new();
        // Blanks count only when something follows them, or in quotes.
        let mut blanks = String::new();
        let mut quoted = false;
        while let Some(c) = self.chars.next() {
            match c {
                '\n' => break,
                '"' => quoted = !quoted,
                '#' | ';' if !quoted => {
                    self.skip_line();
                    break;
                }
                '\r' if self.chars.peek() == Some(&'\n') => {}
                c if c.is_whitespace() && !quoted => {
                    if !value.is_empty() {
                        blanks.push(c);
                    }
                }
                c => {
                    value.push_str(&blanks);
                    blanks.clear();
                    if c == '\\' { value.extend(self.escape()) } else { value.push(c) }
                }
            }
        }
        value
    }

    /// What a backslash and the character after it stand for; nothing at a continued line.
    fn escape(&mut self) -> Option<char> {
        match self.chars.next()? {
            '\n' => None,
            '\r' => {
                self.chars.next_if_eq(&'\n');
                None
            }
            'n' => Some('\n'),
            't' => Some('\t'),
            'b' => Some('\u{8}'),
            c => Some(c),
        }
    }
}
