use super::*;

fn parse(steps: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse(&format!(r#"{{"version":1,"name":"t","steps":[{steps}]}}"#))
}

/// What the parser says about a text.
fn reason(text: &str) -> String {
    std::error::Error::source(&Scenario::parse(text).unwrap_err()).unwrap().to_string()
}

fn completion(steps: &str) -> Completion {
    match &parse(steps).unwrap().step(0).answer {
        Answer::Completion(completion) => completion.clone(),
        other => panic!("no completion: {other:?}"),
    }
}

#[test]
fn a_step_keeps_everything_it_says() {
    let step = completion(
        r#"{"think":"hm","text":["a","b"],"gapMs":5,"hold":"go","tools":[{"name":"t","arguments":{"x":1}}],
            "finish":"length","model":"m","usage":{"inputTokens":1,"outputTokens":2},"slowMs":0}"#,
    );
    let expected = Completion {
        think: vec!["hm".into()],
        text: vec!["a".into(), "b".into()],
        gap: std::time::Duration::from_millis(5),
        hold: Some("go".into()),
        tools: vec![ToolCall { name: "t".into(), arguments: serde_json::json!({"x": 1}) }],
        ending: Ending::Finish,
        finish: Some("length".into()),
        model: Some("m".into()),
        usage: Usage { input: 1, cached: 0, output: 2, reasoning: 0 },
        byte_pause: Some(std::time::Duration::ZERO),
    };
    assert_eq!(step, expected);
}

#[test]
fn steps_beyond_the_last_are_otherwise() {
    let scenario = parse(r#"{"text":"one"}"#).unwrap();
    assert_eq!(scenario.step(0), &Step::text("one"));
    assert_eq!(scenario.step(1), &Step::text("Done."));
    assert_eq!(scenario.step_count(), 1);

    let text = r#"{"version":1,"name":"t","steps":[],"otherwise":{"text":"else"}}"#;
    assert_eq!(Scenario::parse(text).unwrap().step(7), &Step::text("else"));
}

#[test]
fn unknown_keys_are_named_with_their_line() {
    for (text, key) in [
        (r#"{"version":1,"name":"t","steps":[],"extra":1}"#, "`extra`"),
        ("{\"version\":1,\"name\":\"t\",\"steps\":[\n{\"txt\":\"a\"}]}", "`txt`"),
        (r#"{"version":1,"name":"t","steps":[{"http":{"status":500,"retryAfter":1}}]}"#, "`retryAfter`"),
        (r#"{"version":1,"name":"t","steps":[{"tools":[{"name":"a","args":{}}]}]}"#, "`args`"),
        (r#"{"version":1,"name":"t","steps":[{"text":"a","end":"explode"}]}"#, "`explode`"),
    ] {
        let message = reason(text);
        assert!(message.contains(key) && message.contains("line"), "{message}");
    }
    assert!(reason("{\"version\":1,\"name\":\"t\",\"steps\":[\n{\"txt\":1}]}").contains("line 2"));
}

#[test]
fn faults_stand_alone_or_end_what_was_said() {
    for (name, fault) in [
        ("overloaded", Fault::Overloaded),
        ("rate-limited", Fault::RateLimited),
        ("quota", Fault::Quota),
        ("context-overflow", Fault::ContextOverflow),
    ] {
        let alone = parse(&format!(r#"{{"fault":"{name}","delayMs":5}}"#)).unwrap();
        let delay = std::time::Duration::from_millis(5);
        assert_eq!(alone.step(0), &Step { delay, answer: Answer::Fault(fault) });
        let step = completion(&format!(r#"{{"text":"a","fault":"{name}"}}"#));
        assert_eq!(step.ending, Ending::Fault(fault));
    }
}

#[test]
fn other_versions_are_refused() {
    let error = Scenario::parse(r#"{"version":2,"name":"t","steps":[]}"#).unwrap_err();
    assert_eq!(error.to_string(), "the scenario has version 2, known is 1");
}

#[test]
fn steps_that_contradict_themselves_are_refused_by_name() {
    for (step, problem) in [
        ("{}", "says nothing"),
        (r#"{"delayMs":5}"#, "says nothing"),
        (r#"{"http":{"status":500},"text":"a"}"#, "`http` replaces"),
        (r#"{"http":{"status":500},"end":"cut"}"#, "`http` replaces"),
        (r#"{"end":"close","text":"a"}"#, "before `close`"),
        (r#"{"http":{"status":500},"fault":"quota"}"#, "two answers"),
        (r#"{"text":"a","fault":"quota","end":"cut"}"#, "end of its own"),
        (r#"{"fault":"quota","finish":"stop"}"#, "`finish` is sent only"),
        (r#"{"http":{"status":99}}"#, "`status`"),
        (r#"{"http":{"status":101}}"#, "`status`"),
        (r#"{"http":{"status":500,"headers":{"a b":"c"}}}"#, "`headers`"),
        (r#"{"http":{"status":500,"contentType":"a\nb"}}"#, "`contentType`"),
        (r#"{"text":"a","end":"cut","finish":"stop"}"#, "`finish`"),
        (r#"{"hold":""}"#, "`hold`"),
        (r#"{"hold":"a b"}"#, "`hold`"),
        (r#"{"text":"a","delayMs":600001}"#, "600000"),
        (r#"{"text":"a","gapMs":600001}"#, "600000"),
        (r#"{"text":"a","slowMs":600001}"#, "600000"),
    ] {
        let message = parse(step).unwrap_err().to_string();
        assert!(message.starts_with("steps[0]: ") && message.contains(problem), "{step}: {message}");
    }
}

#[test]
fn sizes_are_bounded() {
    let huge = " ".repeat(Scenario::MAX_BYTES + 1);
    assert!(matches!(Scenario::parse(&huge), Err(ScenarioError::TooLarge { .. })));
    let many = vec![r#"{"text":"a"}"#; Scenario::MAX_STEPS + 1].join(",");
    assert!(matches!(parse(&many), Err(ScenarioError::TooManySteps { steps: 1025 })));
}

#[test]
fn hold_names_are_collected() {
    let scenario = parse(r#"{"hold":"b"},{"text":"x"},{"hold":"a"},{"hold":"b"}"#).unwrap();
    assert_eq!(scenario.hold_names().into_iter().collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn variables_are_filled_everywhere_and_nothing_else_is_touched() {
    let values =
        BTreeMap::from([("ws".to_owned(), "/w".to_owned()), ("out".to_owned(), "{{ws}}".to_owned())]);
    let scenario = parse(
        r#"{"text":"at {{ws}}","think":"{{ ws }} ${{}} {{1}} {{","tools":[
            {"name":"{{ws}}","arguments":{"p":["{{ws}}/a",1,null,{"q":"{{out}}"}]}},
            {"name":"t","arguments":"{\"raw\":\"{{ws}}\""}]},
           {"http":{"status":500,"body":"no {{ws}}"}}"#,
    )
    .unwrap()
    .with_variables(&values)
    .unwrap();
    let expected = parse(
        r#"{"text":"at /w","think":"{{ ws }} ${{}} {{1}} {{","tools":[
            {"name":"{{ws}}","arguments":{"p":["/w/a",1,null,{"q":"{{ws}}"}]}},
            {"name":"t","arguments":"{\"raw\":\"/w\""}]},
           {"http":{"status":500,"body":"no /w"}}"#,
    )
    .unwrap();
    assert_eq!(scenario, expected);
}

#[test]
fn a_variable_without_value_is_named() {
    let error = parse(r#"{"text":"a"},{"text":"{{workspace}}"}"#).unwrap().with_variables(&BTreeMap::new());
    assert_eq!(error.unwrap_err().to_string(), "steps[1]: no value for `{{workspace}}`");
}

#[test]
fn the_examples_are_scenarios() {
    let values = BTreeMap::from([("workspace".to_owned(), "/w".to_owned())]);
    let example = Scenario::parse(include_str!("../../scenarios/grok-work.json")).unwrap();
    assert_eq!((example.name(), example.step_count()), ("grok-work", 6));
    example.with_variables(&values).unwrap();
}
