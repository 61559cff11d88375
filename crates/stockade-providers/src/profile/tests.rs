use super::*;
use crate::find;

fn grok() -> &'static str {
    find("grok").unwrap().text
}

fn broken(from: &str, to: &str) -> ProfileError {
    assert!(grok().contains(from), "{from}");
    parse(&grok().replacen(from, to, 1)).expect_err(to)
}

fn line_of(text: &str, needle: &str) -> usize {
    text.lines().position(|l| l.contains(needle)).unwrap() + 1
}

#[test]
fn the_digest_is_that_of_the_bytes() {
    let loaded = parse(grok()).unwrap();
    assert_eq!(loaded.digest.len(), 64);
    assert_ne!(loaded.digest, parse(&format!("{}\n", grok())).unwrap().digest);
    assert_eq!(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_column() {
    let e = broken("title = ", "  titel = ");
    assert_eq!((e.line(), e.column(), e.key()), (line_of(grok(), "title ="), 3, "titel"));
    assert!(e.message().contains("unknown field `titel`"), "{e}");
    let e = broken("executable = \"grok\"", "executable = \"grok\"\nshell = true");
    assert_eq!((e.line(), e.key()), (line_of(grok(), "executable =") + 1, "launch.shell"));
}

#[test]
fn a_wrong_type_and_a_broken_text_have_a_place() {
    let e = broken("grace_ms = 1000", "grace_ms = \"1s\"");
    assert_eq!((e.line(), e.key()), (line_of(grok(), "grace_ms"), "stop.grace_ms"));
    let e = broken("version = ", "version = x");
    assert_eq!((e.line(), e.key()), (line_of(grok(), "version ="), ""));
    assert_eq!(parse("").unwrap_err().line(), 1);
    assert!(
        parse(&"#".repeat(PROFILE_LIMIT_BYTES + 1))
            .unwrap_err()
            .to_string()
            .starts_with("line 1, column 1: the")
    );
}

#[test]
fn what_the_types_cannot_say_is_checked() {
    for (from, to, key, says) in [
        ("name = \"grok\"", "name = \"Grok!\"", "name", "lower-case"),
        ("version = 4", "version = 0", "version", "counts from 1"),
        ("\"{cwd}\"", "\"{cwdd}\"", "launch.argv[10]", "unknown placeholder `{cwdd}`"),
        ("\"{prompt_file}\"", "\"x\"", "launch.argv", "no prompt"),
        ("\"{session}\"", "\"{instructions}\"", "launch.argv[12]", "unknown placeholder"),
        ("executable = \"grok\"", "executable = \"../grok\"", "launch.executable", "relative path"),
        ("path = \"prompt.md\"", "path = \"/prompt.md\"", "launch.prompt.path", "relative path"),
        ("path = \".grok/config.toml\"", "path = \"prompt.md\"", "home_files[0].path", "twice"),
        ("path = \".grok/config.toml\"", "path = \"a/../b\"", "home_files[0].path", "relative path"),
        ("default = \"{model}\"", "default = \"{modle}\"", "home_files[0].content", "unknown placeholder"),
        ("apis = [\"chat-completions\"]", "apis = []", "vendor.apis", "no API"),
        ("endpoint = \"https://", "endpoint = \"http://", "vendor.endpoint", "https"),
        ("\"/v1/chat/completions\"", "\"v1\"", "wire.model_paths[0]", "absolute"),
        ("name = \"title\"", "name = \"\"", "wire.classes[1].name", "empty"),
        ("status = 404", "status = 42", "wire.side_requests[0].status", "between 200"),
        ("failures_before_stop = 2", "failures_before_stop = 0", "wire.failures_before_stop", "between 1"),
        ("{cwd_encoded}/", "{cwd}/", "output.session_log", "unknown placeholder `{cwd}`"),
        ("signals = [\"TERM\"]", "signals = [\"KILL\"]", "stop.signals[0]", "none of"),
        ("linger_ms = 3000", "linger_ms = 3000000", "stop.linger_ms", "over"),
        ("name = \"Grok's own sandbox\"", "", "sandbox.needs", "without a sandbox"),
        ("131_063", "131_064", "launch.instructions_argv", "cannot carry"),
        ("8_388_608", "8_388_609", "models.prompt_limit_bytes", "between 1"),
        ("GROK_EXTERNAL_OTEL", "GROK-OTEL", "launch.env.GROK-OTEL", "no name"),
        ("argv = [\"models\"]", "argv = []", "launch.preflight.argv", "asks nothing"),
        ("argv = [\"models\"]", "argv = [\"{modle}\"]", "launch.preflight.argv[0]", "unknown placeholder"),
        ("\"not logged in\"", "\" \"", "launch.preflight.unauthenticated[2]", "empty"),
        ("words = [\"{model}\"]", "words = [\"a b\"]", "launch.preflight.words[0]", "one word"),
        (
            "words = [\"{model}\"]",
            "words = [\"{effort}\"]",
            "launch.preflight.words[0]",
            "unknown placeholder",
        ),
        ("retry_after_ms = 5000", "retry_after_ms = 60001", "launch.preflight.retry_after_ms", "over 60000"),
        ("\"/compact\"", "\"/com pact\"", "launch.prompt_commands[1]", "one word"),
    ] {
        let e = broken(from, to);
        assert_eq!(e.key(), key, "{e}");
        assert!(e.message().contains(says), "{e}");
        assert!(e.line() > 1, "{e}");
    }
}
