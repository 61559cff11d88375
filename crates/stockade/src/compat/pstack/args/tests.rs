use super::*;

/// A good order, with flags changed or left out.
fn order(changes: &[(&str, Option<&str>)]) -> Result<Order, NoOrder> {
    let mut flags = std::collections::BTreeMap::from([
        ("--parent", Some("codex")),
        ("--provider", Some("grok")),
        ("--model", Some("grok-4.6")),
        ("--effort", Some("high")),
        ("--mode", Some("read-only")),
        ("--prompt", Some("Cargo.toml")),
        ("--cwd", Some(".")),
        ("--output", Some("out/answer.md")),
        ("--receipt", Some("out/receipt.json")),
    ]);
    flags.extend(changes.iter().copied());
    let arguments: Vec<OsString> =
        flags.into_iter().filter_map(|(k, v)| Some([k.into(), v?.into()])).flatten().collect();
    read(&arguments)
}

fn mistake(changes: &[(&str, Option<&str>)]) -> String {
    match order(changes) {
        Err(NoOrder::Mistake(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_good_order_has_absolute_paths_and_no_deadline() {
    let order = order(&[]).unwrap();
    assert_eq!(
        (order.timeout_ms, order.api_spend, order.contract),
        (None, ApiSpend::Legacy, Contract::Legacy)
    );
    assert!([&order.prompt, &order.cwd, &order.output, &order.receipt].iter().all(|p| p.is_absolute()));
    let here = std::env::current_dir().unwrap();
    assert_eq!(order.receipt, here.join("out/receipt.json"));
}

#[test]
fn paths_are_compared_and_told_without_detours() {
    let other =
        order(&[("--output", Some("./a/../b//answer")), ("--receipt", Some("/../../r/./x/"))]).unwrap();
    assert_eq!(other.output, std::env::current_dir().unwrap().join("b/answer"));
    assert_eq!(other.receipt, Path::new("/r/x"));
    let text = mistake(&[("--output", Some("src/../Cargo.toml"))]);
    assert!(text.contains("same file"), "{text}");
}

#[test]
fn the_last_of_a_repeated_flag_counts_and_values_never_look_like_flags() {
    let with = |more: &[&str]| {
        let mut arguments: Vec<OsString> =
            "--parent codex --provider grok --model m --effort low --mode=read-only \
             --prompt Cargo.toml --cwd . --output o --receipt r"
                .split_whitespace()
                .map(OsString::from)
                .collect();
        arguments.extend(more.iter().map(OsString::from));
        read(&arguments)
    };
    assert_eq!(with(&["--model", "other"]).unwrap().model, "other");
    assert_eq!(with(&["--model=-m"]).unwrap().model, "-m");
    for wrong in [&["--model", "--effort"][..], &["more"], &["--nonsense", "1"], &["--timeout"]] {
        assert!(matches!(with(wrong), Err(NoOrder::Mistake(_))), "{wrong:?}");
    }
    assert!(matches!(with(&["-h"]), Err(NoOrder::Help(_))));
}

#[test]
fn seconds_are_read_as_the_tool_reads_them() {
    let timeout = |text: &str| order(&[("--timeout", Some(text))]).map(|o| o.timeout_ms);
    for (text, ms) in [
        ("90", 90_000),
        ("0.7", 700),
        ("1e3", 1_000_000),
        ("0x10", 16_000),
        (" 2 ", 2_000),
        ("2147484", 2_147_484_000),
        ("0.0001", 1),
    ] {
        assert_eq!(timeout(text), Ok(Some(ms)), "{text}");
    }
    for text in ["0", "", "60m", "Infinity", "NaN", "0x", "1e400", "0x+1", "1_000"] {
        assert!(timeout(text).is_err(), "{text}");
    }
    // With a dash in front it is no value but a flag.
    assert!(timeout("-1").is_err());
}

#[test]
fn mistakes_are_found_in_the_tools_order() {
    let all = [
        ("--mode", None),
        ("--timeout", Some("x")),
        ("--api-spend", Some("x")),
        ("--contract", Some("x")),
        ("--parent", None),
        ("--provider", Some("toString")),
        ("--model", Some(" ")),
        ("--effort", None),
        ("--prompt", None),
        ("--cwd", None),
        ("--output", None),
        ("--receipt", None),
    ];
    for (i, (flag, _)) in all.iter().enumerate() {
        let text = mistake(all.get(i..).unwrap());
        assert!(text.starts_with(flag), "{flag}: {text}");
    }
}

#[test]
fn routes_that_the_tool_refuses() {
    for changes in [
        &[("--parent", Some("claude")), ("--provider", Some("claude"))][..],
        &[("--provider", Some("codex"))],
        &[("--effort", Some("default"))],
        &[("--provider", Some("opencode")), ("--model", Some("a/b"))],
        &[("--provider", Some("opencode")), ("--model", Some("b")), ("--effort", Some("default"))],
        &[("--provider", Some("opencode")), ("--model", Some("a/auto")), ("--effort", Some("default"))],
        &[("--provider", Some("antigravity"))],
        &[("--provider", Some("claude")), ("--model", Some("claude-opus-4-1"))],
        &[("--prompt", Some("nowhere"))],
        &[("--cwd", Some("Cargo.toml"))],
        &[("--output", Some("Cargo.toml"))],
        &[("--progress", Some("out/receipt.json"))],
        &[("--progress", Some("out/receipt.json.progress"))],
    ] {
        mistake(changes);
    }
    for changes in [
        &[("--provider", Some("claude")), ("--model", Some("claude-haiku-4-5"))][..],
        &[("--provider", Some("claude")), ("--model", Some("opus"))],
        &[("--provider", Some("opencode")), ("--model", Some("a/b/c:free")), ("--effort", Some("default"))],
        &[("--progress", Some("out/progress.json"))],
    ] {
        order(changes).unwrap();
    }
}

#[test]
fn the_endpoint_is_asked_for_the_model_without_the_provider_of_opencode() {
    let opencode =
        [("--provider", Some("opencode")), ("--effort", Some("default")), ("--model", Some("a/b/c"))];
    assert_eq!(order(&opencode).unwrap().wire_model(), "b/c");
    assert_eq!(order(&[("--model", Some("a/b"))]).unwrap().wire_model(), "a/b");
}
