//! Targets for fuzzing: every reader of what an agent or an endpoint may send, or a caller may write, as plain functions.

use std::str;

use stockade_core::{
    budget::Budget,
    fuzz::{Target, Violation, holds},
    network::{Destination, DestinationError},
};

use crate::{
    Credential, Decision, ModelPolicy, Upstream, decide,
    egress::{self, Allowed, Hello, read_hello},
    names,
    observe::{self, Observer, Seen},
};

/// Every target.
pub const TARGETS: [Target; 6] = [
    Target { name: "proxy-request", run: proxy_request },
    Target { name: "client-hello", run: client_hello },
    Target { name: "allow-list", run: allow_list },
    Target { name: "model-request", run: model_request },
    Target { name: "model-answer", run: model_answer },
    Target { name: "name-question", run: name_question },
];

/// What the list of `proxy-request` has.
const LISTED: [&str; 3] = ["a.example", "b.example:80", "10.1.2.3:8443"];

/// The bytes of one connection to the egress listener: nothing passes but what is listed and was asked for.
pub fn proxy_request(bytes: &[u8]) -> Result<(), Violation> {
    let listed: Vec<Destination> = LISTED.iter().filter_map(|text| Destination::parse(text).ok()).collect();
    let allowed = Allowed::new(listed.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|e| Violation(format!("no runtime: {e}")))?;
    let lower = bytes.to_ascii_lowercase();
    for judged in runtime.block_on(egress::read_connection(&allowed, bytes)) {
        match judged {
            Ok(asked) => {
                holds(listed.contains(&asked.to), || format!("{} passed and is not listed", asked.to))?;
                let host = asked.to.host.to_string();
                let named = lower.windows(host.len()).any(|window| window == host.as_bytes());
                holds(named, || format!("{host} passed and was not asked for"))?;
            }
            Err((target, why)) => {
                let told = format!("{target} {} {:?}", why.message, why.detail);
                let clean = told.bytes().all(|b| (b' '..=b'~').contains(&b)) && !told.contains('@');
                holds(clean, || format!("recorded as sent: {told:?}"))?;
            }
        }
    }
    Ok(())
}

/// The first bytes of a tunnel: the name is the one that is there, and more bytes do not change it.
pub fn client_hello(bytes: &[u8]) -> Result<(), Violation> {
    let whole = read_hello(bytes);
    if let Hello::Named(name) = &whole {
        // In this order, and with nothing between but the headers of records.
        let mut rest = bytes.iter();
        let there = name.bytes().all(|byte| rest.any(|b| *b == byte));
        holds(there && !name.is_empty(), || format!("{name:?} is not in the message"))?;
    }
    for length in [bytes.len() / 2, bytes.len().saturating_sub(1)] {
        let part = read_hello(bytes.get(..length).unwrap_or_default());
        holds(part == Hello::More || part == whole, || format!("{part:?} became {whole:?}"))?;
    }
    Ok(())
}

/// A list of `--allow` values, one a line, and as a configuration holds them.
pub fn allow_list(bytes: &[u8]) -> Result<(), Violation> {
    let Ok(text) = str::from_utf8(bytes) else { return Ok(()) };
    for line in text.lines() {
        match Destination::parse(line) {
            Ok(destination) => {
                let written = destination.to_string();
                holds(Destination::parse(&written) == Ok(destination), || {
                    format!("{written} reads otherwise")
                })?;
                let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.:[]".contains(&b);
                holds(written.bytes().all(plain), || format!("{written} has odd characters"))?;
            }
            Err(DestinationError::UserInfo) => {}
            Err(e) => holds(!line.contains('@'), || format!("a password is told as {e}"))?,
        }
    }
    // As it stands in a file: what is wrong is told, and what is right is right here too.
    if let Ok(listed) = serde_json::from_slice::<Vec<Destination>>(bytes) {
        let known = listed.iter().all(|d| d.port != 0);
        holds(known, || format!("{listed:?} has a port of 0"))?;
    }
    Ok(())
}

/// A request to the model listener, `METHOD PATH` in its first line and the body after it: only planned calls leave.
pub fn model_request(bytes: &[u8]) -> Result<(), Violation> {
    let end = bytes.iter().position(|b| *b == b'\n').unwrap_or(bytes.len());
    let (line, body) = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
    let line = String::from_utf8_lossy(line);
    let (method, path) = line.split_once(' ').unwrap_or((&line, ""));
    let policy = model_policy()?;
    if let Decision::ModelCall(call) = decide(&policy, method, path, body) {
        let planned = method == "POST" && policy.model_paths.iter().any(|p| p == path);
        holds(planned && policy.models.contains(&call.model), || format!("{method} {path} leaves"))?;
        let class = policy.classes.get(call.class).map(|(_, tools)| tools);
        let same = class.is_some_and(|tools| call.tools.iter().all(|tool| tools.contains(tool)));
        holds(same, || format!("tools {:?} leave", call.tools))?;
    }
    Ok(())
}

fn model_policy() -> Result<ModelPolicy, Violation> {
    let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    Ok(ModelPolicy {
        upstream: Upstream::parse("http://127.0.0.1:1/v1").map_err(|e| Violation(e.to_string()))?,
        base_path: "/v1".to_owned(),
        credential: None::<Credential>,
        extra_ca_pem: None,
        model_paths: names(&["/v1/chat/completions"]),
        models: names(&["m-1"]),
        classes: vec![
            ("turn".to_owned(), names(&["read_file", "grep"])),
            ("title".to_owned(), names(&["session_title"])),
        ],
        side_requests: Vec::new(),
        failures_before_stop: 1,
        stop_header: None,
        stop_status: None,
        budget: Budget::default(),
        placeholder_key: None,
    })
}

/// An answer of an endpoint, `STATUS CONTENT-TYPE` in its first line and the body after it: any split of the body says the
/// same, and nothing that is kept of it is longer than it may be.
pub fn model_answer(bytes: &[u8]) -> Result<(), Violation> {
    let end = bytes.iter().position(|b| *b == b'\n').unwrap_or(bytes.len());
    let (line, body) = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
    let body = body.get(1..).unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let (status, content_type) = line.split_once(' ').unwrap_or((&line, ""));
    let status = status.parse().unwrap_or(200);
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut observer = Observer::new(status, Some(content_type).filter(|t| !t.is_empty()));
        pieces.for_each(|piece| observer.read(piece));
        (observer.finished(), observer.end())
    };
    let whole = read(&mut [body].into_iter());
    for at in [body.len() / 3, body.len() / 2, body.len().saturating_sub(1)] {
        let (head, tail) = body.split_at_checked(at).unwrap_or((body, &[]));
        let split = read(&mut [head, tail].into_iter());
        holds(split == whole, || format!("split at {at} {whole:?} becomes {split:?}"))?;
    }
    let each = read(&mut body.chunks(1));
    holds(each == whole, || format!("byte by byte {whole:?} becomes {each:?}"))?;
    let Seen { served_model, finish_reason, error, stated, .. } = whole.1;
    let words = [served_model, finish_reason, stated.kind, stated.code];
    let longest = words.iter().flatten().map(String::len).max().unwrap_or_default();
    holds(longest <= observe::WORD_BYTES, || format!("a word of {longest} bytes"))?;
    let error = error.map_or(0, |error| error.len());
    holds(error <= observe::ERROR_BYTES, || format!("{error} bytes of an error"))
}

/// A datagram to the name listener: an answer says "no such name" and is no longer than the question.
pub fn name_question(bytes: &[u8]) -> Result<(), Violation> {
    let Some((name, reply)) = names::answer(bytes) else { return Ok(()) };
    holds(name.bytes().all(|b| b.is_ascii_graphic()), || format!("recorded as {name:?}"))?;
    let refused = reply.get(3).is_some_and(|flags| flags & 0x0f == 3);
    holds(refused && reply.len() <= bytes.len(), || format!("answered {reply:x?}"))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::TARGETS;

    #[test]
    fn every_target_has_a_corpus_that_passes() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        for target in TARGETS {
            let mut inputs = 0;
            for entry in fs::read_dir(corpus.join(target.name)).unwrap() {
                let path = entry.unwrap().path();
                assert_eq!((target.run)(&fs::read(&path).unwrap()), Ok(()), "{}", path.display());
                inputs += 1;
            }
            assert!(inputs > 0, "{} has no corpus", target.name);
        }
    }
}
