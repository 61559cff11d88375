//! The meaning of a profile: what its types cannot say.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path as FilePath},
};

use stockade_core::{
    order::PROMPT_LIMIT_BYTES,
    profile::{Launch, Models, OwnSandbox, PreflightCommand, Profile, PromptDelivery, Stop, Vendor, Wire},
    template,
};

use super::place::Path;

/// The kernel's limit for one argument, its closing NUL included (`MAX_ARG_STRLEN`, 32 pages of 4 KiB).
const ARGUMENT_LIMIT_BYTES: u64 = 131_072;
/// Instructions are a part of every request, so that a file of them has no use for more.
const INSTRUCTIONS_LIMIT_BYTES: u64 = 1024 * 1024;
/// Nothing an agent does on a signal is worth waiting longer for, in milliseconds.
const WAIT_LIMIT_MS: u64 = 60_000;
/// More repeated failures than this are a retry storm in any agent.
const FAILURES_LIMIT: u32 = 10;
/// Signals that ask a program to end.
const POLITE_SIGNALS: [&str; 4] = ["HUP", "INT", "QUIT", "TERM"];

/// Placeholders that have a value in every run.
const ALWAYS: &[&str] = &[
    "home",
    "cwd",
    "cwd_encoded",
    "session",
    "model",
    "base_url",
    "base_origin",
    "placeholder_key",
    "provider",
    "proxy_toml",
];

/// What is wrong, and where.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) path: Path,
    pub(super) message: String,
}

type Checked = Result<(), Problem>;

fn problem(path: Path, message: impl Into<String>) -> Checked {
    Err(Problem { path, message: message.into() })
}

fn require(holds: bool, path: &str, message: impl Into<String>) -> Checked {
    if holds { Ok(()) } else { problem(Path::of(path), message) }
}

/// Checks a whole profile; the first problem ends it.
pub(super) fn profile(p: &Profile) -> Checked {
    let name_ok = !p.name.is_empty()
        && p.name.len() <= 40
        && p.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    require(name_ok, "name", "is not made of lower-case letters, digits and `-`, 40 at most")?;
    require(p.version >= 1, "version", "counts from 1")?;
    require(!p.title.trim().is_empty(), "title", "is empty")?;
    models(&p.models)?;
    vendor(&p.vendor)?;
    launch(&p.launch, &p.models)?;
    instructions(p)?;
    home_files(p)?;
    wire(&p.wire)?;
    if let Some(log) = &p.output.session_log {
        let path = Path::of("output.session_log");
        // No placeholder that may hold a slash.
        placeholders(log, &["cwd_encoded", "session"], &path)?;
        relative(log, &path)?;
        if log.split('/').any(|part| part.matches('*').count() > 1) {
            return problem(path, "has a part with more than one `*`");
        }
    }
    let idle_ok = p.output.idle_cpu_percent.is_none_or(|percent| (1..=50).contains(&percent));
    require(idle_ok, "output.idle_cpu_percent", "is not between 1 and 50")?;
    sandbox(&p.sandbox)?;
    stop(&p.stop)
}

fn models(m: &Models) -> Checked {
    let plain = |s: &str| !s.is_empty() && !s.starts_with('-') && s.bytes().all(|b| b.is_ascii_graphic());
    require(plain(&m.default), "models.default", "is no model name")?;
    for (alias, model) in &m.aliases {
        if !plain(alias) || !plain(model) {
            return problem(Path::of("models.aliases").key(alias), "is no model name");
        }
    }
    let mut seen = BTreeSet::new();
    for (at, effort) in m.efforts.iter().enumerate() {
        if !plain(effort) || !seen.insert(effort) {
            return problem(Path::of("models.efforts").index(at), "is empty, no plain word, or there twice");
        }
    }
    let prompt_ok = (1..=PROMPT_LIMIT_BYTES).contains(&m.prompt_limit_bytes);
    require(prompt_ok, "models.prompt_limit_bytes", format!("is not between 1 and {PROMPT_LIMIT_BYTES}"))?;
    let instructions_ok = m.instructions_limit_bytes <= INSTRUCTIONS_LIMIT_BYTES;
    require(instructions_ok, "models.instructions_limit_bytes", format!("is over {INSTRUCTIONS_LIMIT_BYTES}"))
}

fn vendor(v: &Vendor) -> Checked {
    let endpoint_ok = v.endpoint.strip_prefix("https://").is_some_and(|rest| {
        !rest.is_empty() && !rest.starts_with('/') && !rest.contains(['@', ' ']) && !rest.ends_with('/')
    });
    require(endpoint_ok, "vendor.endpoint", "is no https URL without user, password and slash at its end")?;
    require(!v.apis.is_empty(), "vendor.apis", "names no API")?;
    require(!v.key_hint.trim().is_empty(), "vendor.key_hint", "is empty")
}

fn launch(l: &Launch, m: &Models) -> Checked {
    relative(&l.executable, &Path::of("launch.executable"))?;
    let with_prompt: Vec<&str> = match &l.prompt {
        PromptDelivery::File { path } => {
            relative(path, &Path::of("launch.prompt.path"))?;
            ALWAYS.iter().copied().chain(["prompt_file"]).collect()
        }
        PromptDelivery::Stdin => ALWAYS.to_vec(),
    };
    let lists = [
        ("argv", &l.argv),
        ("read_only_argv", &l.read_only_argv),
        ("isolated_write_argv", &l.isolated_write_argv),
        ("keep_read_only_argv", &l.keep_read_only_argv),
        ("keep_isolated_write_argv", &l.keep_isolated_write_argv),
        ("replace_argv", &l.replace_argv),
    ];
    for (name, list) in lists {
        arguments(list, &with_prompt, name)?;
    }
    let with = |more: &'static str| ALWAYS.iter().copied().chain([more]).collect::<Vec<_>>();
    arguments(&l.effort_argv, &with("effort"), "effort_argv")?;
    if matches!(l.prompt, PromptDelivery::File { .. }) {
        let named = l.argv.iter().any(|a| a.contains("{prompt_file}"));
        require(named, "launch.argv", "does not name `{prompt_file}`, so the agent would have no prompt")?;
    }
    let effort_named = m.efforts.is_empty() || l.effort_argv.iter().any(|a| a.contains("{effort}"));
    require(effort_named, "launch.effort_argv", "does not name `{effort}`")?;
    for (at, command) in l.prompt_commands.iter().enumerate() {
        if command.is_empty() || command.contains(char::is_whitespace) {
            return problem(Path::of("launch.prompt_commands").index(at), "is not one word");
        }
    }
    for (at, name) in l.workspace_settings.iter().enumerate() {
        relative(name, &Path::of("launch.workspace_settings").index(at))?;
    }
    if let Some(command) = &l.preflight {
        preflight(command)?;
    }
    for (name, value) in &l.env {
        let path = Path::of("launch.env").key(name);
        let name_ok = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
        if !name_ok {
            return problem(path, "is no name of a variable");
        }
        placeholders(value, ALWAYS, &path)?;
        no_nul(value, &path)?;
    }
    Ok(())
}

fn preflight(p: &PreflightCommand) -> Checked {
    let path = |key: &str| Path::of("launch.preflight").key(key);
    require(!p.argv.is_empty(), "launch.preflight.argv", "asks nothing")?;
    for (at, argument) in p.argv.iter().enumerate() {
        placeholders(argument, ALWAYS, &path("argv").index(at))?;
        no_nul(argument, &path("argv").index(at))?;
    }
    for (at, text) in p.unauthenticated.iter().enumerate() {
        if text.trim().is_empty() {
            return problem(path("unauthenticated").index(at), "is empty, and would be in every answer");
        }
    }
    for (at, word) in p.words.iter().enumerate() {
        placeholders(word, ALWAYS, &path("words").index(at))?;
        if word.is_empty() || word.contains(char::is_whitespace) {
            return problem(path("words").index(at), "is not one word");
        }
    }
    let wait_ok = p.retry_after_ms.is_none_or(|ms| ms <= WAIT_LIMIT_MS);
    require(wait_ok, "launch.preflight.retry_after_ms", format!("is over {WAIT_LIMIT_MS}"))
}

/// Instructions travel in an argument, in a file that one names, or in another file of the home.
fn instructions(p: &Profile) -> Checked {
    let (l, limit) = (&p.launch, p.models.instructions_limit_bytes);
    let with = |more: &'static str| ALWAYS.iter().copied().chain([more]).collect::<Vec<_>>();
    if let Some(file) = &l.instructions_file {
        relative(file, &Path::of("launch.instructions_file"))?;
        return arguments(&l.instructions_argv, &with("instructions_file"), "instructions_argv");
    }
    arguments(&l.instructions_argv, &with("instructions"), "instructions_argv")?;
    let fit = match l.instructions_argv.iter().find(|a| a.contains("{instructions}")) {
        None => limit == 0 || p.home_files.iter().any(|f| f.content.contains("{instructions_toml}")),
        Some(carrier) => {
            let rest = carrier.replace("{instructions}", "").len() as u64;
            limit + rest < ARGUMENT_LIMIT_BYTES
        }
    };
    let message = "cannot carry instructions of `models.instructions_limit_bytes`";
    require(fit, "launch.instructions_argv", message)
}

fn arguments(list: &[String], known: &[&str], name: &str) -> Checked {
    for (at, argument) in list.iter().enumerate() {
        let path = Path::of("launch").key(name).index(at);
        placeholders(argument, known, &path)?;
        no_nul(argument, &path)?;
    }
    Ok(())
}

fn home_files(p: &Profile) -> Checked {
    let prompt = match &p.launch.prompt {
        PromptDelivery::File { path } => Some(path.as_str()),
        PromptDelivery::Stdin => None,
    };
    let mut seen: BTreeSet<&str> = prompt.into_iter().collect();
    if let Some(file) = &p.launch.instructions_file
        && !seen.insert(file)
    {
        return problem(Path::of("launch.instructions_file"), "is there twice");
    }
    for (at, file) in p.home_files.iter().enumerate() {
        let path = Path::of("home_files").index(at);
        relative(&file.path, &path.clone().key("path"))?;
        if !seen.insert(&file.path) {
            return problem(path.key("path"), "is there twice");
        }
        let known: Vec<&str> = ALWAYS.iter().copied().chain(["instructions_toml"]).collect();
        placeholders(&file.content, &known, &path.key("content"))?;
    }
    Ok(())
}

fn wire(w: &Wire) -> Checked {
    require(!w.model_paths.is_empty(), "wire.model_paths", "names no path")?;
    for (at, path) in w.model_paths.iter().enumerate() {
        request_path(path, Path::of("wire.model_paths").index(at))?;
    }
    require(!w.classes.is_empty(), "wire.classes", "names no kind of model call")?;
    let mut seen = BTreeSet::new();
    for (at, class) in w.classes.iter().enumerate() {
        let path = Path::of("wire.classes").index(at);
        if class.name.is_empty() {
            return problem(path.key("name"), "is empty");
        }
        if !seen.insert((&class.name, &class.read_only_tools, &class.isolated_write_tools)) {
            return problem(path, "is there twice");
        }
        for (key, tools) in [
            ("read_only_tools", &class.read_only_tools),
            ("isolated_write_tools", &class.isolated_write_tools),
        ] {
            let distinct: BTreeSet<_> = tools.iter().filter(|t| !t.is_empty()).collect();
            if distinct.len() != tools.len() {
                return problem(path.key(key), "holds an empty name or one twice");
            }
        }
    }
    for (at, side) in w.side_requests.iter().enumerate() {
        let path = Path::of("wire.side_requests").index(at);
        if side.method.is_empty() || !side.method.bytes().all(|b| b.is_ascii_uppercase()) {
            return problem(path.key("method"), "is no method in capital letters");
        }
        request_path(&side.path, path.clone().key("path"))?;
        if side.method == "POST" && w.model_paths.contains(&side.path) {
            return problem(path.key("path"), "is a path of model calls");
        }
        if !(200..=599).contains(&side.status) {
            return problem(path.key("status"), "is not between 200 and 599");
        }
    }
    let failures_ok = (1..=FAILURES_LIMIT).contains(&w.failures_before_stop);
    require(failures_ok, "wire.failures_before_stop", format!("is not between 1 and {FAILURES_LIMIT}"))?;
    if let Some((name, value)) = &w.stop_header {
        let name_ok = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let value_ok = value.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
        require(name_ok && value_ok, "wire.stop_header", "is no header")?;
    }
    let status_ok = w.stop_status.is_none_or(|status| (400..=499).contains(&status));
    require(status_ok, "wire.stop_status", "is not between 400 and 499")?;
    Ok(())
}

fn request_path(path: &str, at: Path) -> Checked {
    if path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic()) && !path.contains(['?', '#']) {
        Ok(())
    } else {
        problem(at, "is no absolute path without query")
    }
}

fn sandbox(s: &OwnSandbox) -> Checked {
    require(s.name.is_some() || s.needs.is_empty(), "sandbox.needs", "needs something without a sandbox")?;
    for (key, probe) in
        [("read_only_probe", &s.read_only_probe), ("isolated_write_probe", &s.isolated_write_probe)]
    {
        let path = Path::of("sandbox").key(key);
        if s.name.is_none() && !probe.is_empty() {
            return problem(path, "asks for a sandbox that is not there");
        }
        for (at, argument) in probe.iter().enumerate() {
            placeholders(argument, ALWAYS, &path.clone().index(at))?;
            no_nul(argument, &path.clone().index(at))?;
        }
    }
    require(s.name.is_some() || s.residue.is_empty(), "sandbox.residue", "is left without a sandbox")?;
    for (at, path) in s.residue.iter().enumerate() {
        relative(path, &Path::of("sandbox.residue").index(at))?;
    }
    Ok(())
}

fn stop(s: &Stop) -> Checked {
    require(!s.signals.is_empty(), "stop.signals", "names no signal")?;
    for (at, signal) in s.signals.iter().enumerate() {
        if !POLITE_SIGNALS.contains(&signal.as_str()) {
            let message = format!("is none of {}", POLITE_SIGNALS.join(", "));
            return problem(Path::of("stop.signals").index(at), message);
        }
    }
    let range = format!("is over {WAIT_LIMIT_MS}");
    require(s.grace_ms <= WAIT_LIMIT_MS, "stop.grace_ms", range.clone())?;
    require(s.linger_ms <= WAIT_LIMIT_MS, "stop.linger_ms", range)
}

fn placeholders(text: &str, known: &[&str], path: &Path) -> Checked {
    let values: BTreeMap<&str, String> = known.iter().map(|name| (*name, String::new())).collect();
    match template::fill(text, &values) {
        Ok(_) => Ok(()),
        Err(e) => problem(path.clone(), format!("{e} here; known: {}", known.join(", "))),
    }
}

fn no_nul(text: &str, path: &Path) -> Checked {
    if text.contains('\0') { problem(path.clone(), "holds a NUL") } else { Ok(()) }
}

/// A path below a folder: relative, every part a plain name.
fn relative(text: &str, path: &Path) -> Checked {
    let parts_ok = FilePath::new(text).components().all(|c| matches!(c, Component::Normal(_)));
    if text.is_empty() || text.ends_with('/') || text.contains(['\0', '\n']) || !parts_ok {
        return problem(path.clone(), "is no relative path without `..`");
    }
    Ok(())
}
