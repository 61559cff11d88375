use proptest::prelude::*;
use stockade_core::event::LINE_LIMIT_BYTES;

use super::*;

fn read(chunks: &[&[u8]]) -> Vec<EventKind> {
    let mut reader = Reader::new(Dialect::GrokMessages);
    let mut out = Vec::new();
    for chunk in chunks {
        reader.push(chunk, &mut out);
    }
    reader.finish(&mut out);
    out
}

fn notes(events: &[EventKind]) -> Vec<(&str, &str)> {
    events
        .iter()
        .filter_map(|e| match e {
            EventKind::Note { code, text } => Some((code.as_str(), text.as_str())),
            _ => None,
        })
        .collect()
}

const RESULT: &str = r#"{"type":"result","subtype":"success","result":"x"}"#;

#[test]
fn noise_is_noted_and_blank_lines_are_not() {
    let long = "é".repeat(150);
    let text =
        format!("warning: hello\n\n  \r\n{long}\n{{\"type\":\"stream_event\"}}\n[1]\n{{\"type\":7}}\n");
    let read = read(&[text.as_bytes()]);
    assert_eq!(
        notes(&read),
        [
            (note_code::STDOUT_NOISE, "warning: hello"),
            (note_code::STDOUT_NOISE, format!("{}…", "é".repeat(100)).as_str()),
            (note_code::UNKNOWN_EVENT, "stream_event"),
            (note_code::STDOUT_NOISE, "[1]"),
            (note_code::STDOUT_NOISE, "{\"type\":7}"),
        ]
    );
    assert_eq!(read.len(), 5);
}

#[test]
fn a_last_line_counts_without_its_end_if_it_is_whole() {
    assert!(matches!(read(&[RESULT.as_bytes()]).as_slice(), [EventKind::TurnEnded { .. }]));
    let cut = &RESULT[..RESULT.len() - 1];
    assert_eq!(notes(&read(&[cut.as_bytes()])), [(note_code::STDOUT_UNTERMINATED, cut)]);
}

#[test]
fn a_line_separator_inside_a_line_is_text() {
    let message =
        "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"a\u{2028}b\"}]}}\n";
    let EventKind::Message { text, .. } = &read(&[message.as_bytes()])[0] else { panic!("no message") };
    assert_eq!(text, "a\u{2028}b");
}

#[test]
fn a_line_over_the_limit_is_marked_and_the_next_one_is_read() {
    let mut long = vec![b'x'; LINE_LIMIT_BYTES + 1];
    long.push(b'\n');
    long.extend_from_slice(RESULT.as_bytes());
    let read = read(&[&long]);
    let says = format!("a line of {} bytes was left out", LINE_LIMIT_BYTES + 1);
    assert_eq!(notes(&read), [(note_code::LINE_TOO_LONG, says.as_str())]);
    assert!(matches!(read[1], EventKind::TurnEnded { .. }));
}

#[test]
fn a_flood_of_noise_is_counted() {
    let flood = "?\n".repeat(5_000);
    let read = read(&[flood.as_bytes()]);
    assert_eq!(read.len(), 1_001);
    assert_eq!(notes(&read)[1_000], (note_code::STDOUT_NOISE, "4000 more lines of this kind"));
}

proptest! {
    #[test]
    fn any_split_of_a_stream_gives_the_same_events(
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        junk in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut data = include_bytes!("../../testdata/grok/perm_cancelled_shell.jsonl").to_vec();
        data.extend_from_slice(&junk);
        data.extend_from_slice(include_bytes!("../../testdata/grok/our_read_only.jsonl"));
        let mut at: Vec<usize> = cuts.iter().map(|c| c.index(data.len())).collect();
        at.extend([0, data.len()]);
        at.sort_unstable();
        let chunks: Vec<&[u8]> = at.windows(2).map(|w| &data[w[0]..w[1]]).collect();
        prop_assert_eq!(read(&chunks), read(&[&data]));
    }

    #[test]
    fn no_bytes_are_too_odd(data in proptest::collection::vec(any::<u8>(), 0..400)) {
        read(&[&data]);
    }

    #[test]
    fn no_json_is_too_odd(kind in "assistant|user|system|result", rest in r#"[\[\]{}",:a-z0-9]{0,60}"#) {
        read(&[format!("{{\"type\":\"{kind}\",\"message\":{rest}}}\n").as_bytes()]);
        read(&[format!("{{\"type\":\"{kind}\",{rest}}}\n").as_bytes()]);
    }
}
