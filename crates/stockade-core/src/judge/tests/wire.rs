//! What the wire shows, and which of it matters.

use super::script::{Answer, CUT, GOOD, Run, UNREACHABLE, assert_ends, code, http, run, unanswered};
use crate::{
    event::{failure_code, network_code},
    status::Status,
};

const TITLE: Answer = Answer { class: "title", ..GOOD };

/// Every class of failed answer, the status it stands for and its cause code.
fn failures() -> Vec<(Answer, Status, &'static str)> {
    let html = |status| Answer { content_type: "text/html", ..http(status, "<html>") };
    vec![
        (http(400, "bad request"), Status::ProviderError, "http-error"),
        (http(401, "no such key"), Status::Unauthenticated, "key-refused"),
        (http(402, "pay"), Status::UsageExhausted, "payment-required"),
        (http(403, "forbidden"), Status::Unauthenticated, "key-forbidden"),
        (http(404, "model not found"), Status::UnavailableModel, "model-not-found"),
        (http(413, "too large"), Status::ProviderError, "request-too-large"),
        (
            http(400, "prompt is too long: 215338 tokens > 200000 maximum"),
            Status::ProviderError,
            "context-overflow",
        ),
        (
            http(400, "This model's maximum prompt length is 131072"),
            Status::ProviderError,
            "context-overflow",
        ),
        (stated(http(400, "x"), "context_length_exceeded"), Status::ProviderError, "context-overflow"),
        (stated(http(400, "x"), "content_filter"), Status::RefusedByModel, "content-filter"),
        (stated(http(400, "x"), "invalid_prompt"), Status::RefusedByModel, "content-filter"),
        (http(400, "Your credit balance is too low to access the API"), Status::UsageExhausted, "quota"),
        (http(400, "You have reached your specified API usage limits."), Status::UsageExhausted, "quota"),
        (http(400, "the field `quota` is unknown"), Status::ProviderError, "http-error"),
        (stated(http(403, "x"), "billing_error"), Status::UsageExhausted, "quota"),
        (stated(http(429, "x"), "insufficient_quota"), Status::UsageExhausted, "quota"),
        (stated(http(429, "x"), "usage_limit_reached"), Status::UsageExhausted, "quota"),
        (stated(http(429, "x"), "rate_limit_error"), Status::ProviderBusy, "rate-limited"),
        (stated(http(500, "x"), "overloaded_error"), Status::ProviderBusy, "overloaded"),
        (in_stream("overloaded_error"), Status::ProviderBusy, "overloaded"),
        (in_stream("server_is_overloaded"), Status::ProviderBusy, "overloaded"),
        (in_stream("rate_limit_exceeded"), Status::ProviderBusy, "rate-limited"),
        (in_stream("insufficient_quota"), Status::UsageExhausted, "quota"),
        (in_stream("context_length_exceeded"), Status::ProviderError, "context-overflow"),
        (in_stream("something_new"), Status::ProviderError, "stated-error"),
        (http(429, "slow down"), Status::ProviderBusy, "rate-limited"),
        (http(429, "You exceeded your monthly quota"), Status::UsageExhausted, "quota"),
        (http(429, "server busy, not your limit; quota untouched"), Status::ProviderBusy, "rate-limited"),
        (http(500, "boom"), Status::ProviderError, "http-error"),
        (http(502, "bad gateway"), Status::ProviderError, "http-error"),
        (http(503, "overloaded"), Status::ProviderBusy, "overloaded"),
        (http(529, "overloaded"), Status::ProviderBusy, "overloaded"),
        (html(200), Status::ProviderError, "html-answer"),
        (html(404), Status::ProviderError, "html-answer"),
        (html(502), Status::ProviderError, "html-answer"),
        (html(503), Status::ProviderBusy, "overloaded"),
        (Answer { cut: true, ..html(200) }, Status::ProviderError, "html-answer"),
        (Answer { finish_reason: None, ..GOOD }, Status::ProviderError, "malformed-answer"),
        (UNREACHABLE, Status::ProviderUnreachable, "unreachable"),
        (unanswered(failure_code::NAME), Status::ProviderUnreachable, "name"),
        (unanswered(failure_code::TLS), Status::ProviderUnreachable, "tls"),
        (unanswered(failure_code::PROTOCOL), Status::ProviderUnreachable, "protocol"),
    ]
}

/// With the code that the error states.
const fn stated(answer: Answer, code: &'static str) -> Answer {
    Answer { error_code: Some(code), ..answer }
}

/// An error that a stream states after its head.
const fn in_stream(code: &'static str) -> Answer {
    Answer { finish_reason: None, error: Some("data"), error_code: Some(code), ..GOOD }
}

#[test]
fn every_failed_answer_is_named_whatever_the_agent_says_about_it() {
    type Words = (&'static str, fn(Run) -> Run, i32);
    let words: [Words; 5] = [
        ("says nothing, exit 0", |r| r, 0),
        ("says nothing, exit 1", |r| r, 1),
        ("states an error", |r| r.errs("something went wrong", None), 1),
        ("states another status", |r| r.errs("401", Some(401)), 1),
        ("claims success", |r| r.says("All done.").succeeds("All done."), 0),
    ];
    for (answer, status, cause) in failures() {
        for (what, says, exit) in words {
            let name = format!("{answer:?}; the agent {what}");
            assert_ends(&name, &says(run().wire(&answer)).finish(code(exit)), status, cause);
        }
        let storm = run().wire(&answer).network(network_code::RETRY_STORM).settle();
        assert!(storm.is_decided());
        assert_ends("a retry storm", &storm.finish(code(1)), status, cause);
    }
}

#[test]
fn a_failed_answer_is_forgotten_once_a_turn_is_answered() {
    for (answer, ..) in failures() {
        let ending = run().wire(&answer).wire(&GOOD).succeeds("done").finish(code(0));
        assert_ends("retried", &ending, Status::Complete, "");
        let ending = run().wire(&answer).wire(&GOOD).errs("other", None).finish(code(1));
        assert_ends(
            "retried, then an error of the agent's own",
            &ending,
            Status::ProviderError,
            "unclassified",
        );
    }
}

#[test]
fn a_turn_that_failed_after_one_that_was_answered_is_no_success() {
    for (answer, status, cause) in failures() {
        let ending = run().wire(&GOOD).calls("1", "read").wire(&answer).succeeds("done").finish(code(0));
        assert_ends(&format!("{answer:?}"), &ending, status, cause);
    }
}

#[test]
fn a_title_that_failed_matters_only_when_no_turn_was_answered() {
    for (answer, status, cause) in failures() {
        let title = Answer { class: "title", ..answer };
        for run in [run().wire(&title).wire(&GOOD), run().wire(&GOOD).wire(&title)] {
            let storm = run.network(network_code::RETRY_STORM).settle();
            assert!(!storm.is_decided(), "a storm of titles ends no turn");
            assert_ends("title", &storm.succeeds("done").finish(code(0)), Status::Complete, "");
        }
        let blameless = run().wire(&GOOD).wire(&title).errs("tool crashed", None).finish(code(1));
        assert_ends("title and an error", &blameless, Status::ProviderError, "unclassified");
        let alone = run().wire(&title).finish(code(1));
        assert_ends("title alone", &alone, status, cause);
        let turn_first = run().wire(&UNREACHABLE).wire(&title).finish(code(1));
        assert_ends("turn before title", &turn_first, Status::ProviderUnreachable, "unreachable");
        let retried = run().wire(&title).wire(&TITLE).finish(code(1));
        assert_ends("title retried", &retried, Status::ChildFailed, "exit-code");
    }
}

#[test]
fn a_cut_stream_is_incomplete_whatever_the_agent_says() {
    for (name, run, exit) in [
        ("success", run().wire(&CUT).says("Half an ans").succeeds("Half an ans"), 0),
        ("an error", run().wire(&CUT).errs("stream ended", None), 1),
        ("nothing", run().wire(&CUT).says("Half an ans"), 0),
        (
            "cut with a failure code",
            run().wire(&Answer { failure: Some("protocol"), ..CUT }).succeeds("x"),
            0,
        ),
    ] {
        assert_ends(name, &run.finish(code(exit)), Status::IncompleteOutput, "stream-cut");
    }
    let ending = run().wire(&CUT).wire(&GOOD).succeeds("whole").finish(code(0));
    assert_ends("cut, then repeated", &ending, Status::Complete, "");
    let storm = run().wire(&CUT).wire(&CUT).network(network_code::RETRY_STORM).settle();
    assert!(storm.is_decided(), "cut again and again: nothing more will come");
    assert_ends("a storm of cuts", &storm.finish(code(1)), Status::IncompleteOutput, "stream-cut");
    let crash = run().wire(&CUT).finish(code(101));
    assert_ends("a crash may be what cut the stream", &crash, Status::ChildFailed, "exit-code");
}

#[test]
fn an_answer_the_agent_left_says_nothing_about_the_endpoint() {
    let left = Answer { finish_reason: None, failure: Some(failure_code::ABANDONED), ..GOOD };
    let unanswered = unanswered(failure_code::ABANDONED);
    for answer in [left, unanswered] {
        assert_ends("crash", &run().wire(&answer).finish(code(101)), Status::ChildFailed, "exit-code");
        let ending = run().wire(&GOOD).wire(&answer).succeeds("done").finish(code(0));
        assert_ends("a turn given up", &ending, Status::Complete, "");
    }
}

#[test]
fn the_finish_reason_decides_over_the_agents_success() {
    for (reason, status, cause) in [
        ("stop", Status::Complete, ""),
        ("tool_calls", Status::Complete, ""),
        ("end_turn", Status::Complete, ""),
        ("completed", Status::Complete, ""),
        ("length", Status::IncompleteOutput, "max-tokens"),
        ("max_output_tokens", Status::IncompleteOutput, "max-tokens"),
        ("model_context_window_exceeded", Status::IncompleteOutput, "context-overflow"),
        ("max_tokens", Status::IncompleteOutput, "max-tokens"),
        ("content_filter", Status::RefusedByModel, "content-filter"),
        ("refusal", Status::RefusedByModel, "content-filter"),
    ] {
        let answer = Answer { finish_reason: Some(reason), ..GOOD };
        let ending = run().wire(&answer).succeeds("text").finish(code(0));
        assert_ends(reason, &ending, status, cause);
        if status != Status::Complete {
            for run in [run().wire(&answer).errs("incomplete", None), run().wire(&answer)] {
                assert_ends(reason, &run.finish(code(1)), status, cause);
            }
        }
    }
}

#[test]
fn an_error_that_only_the_agent_saw_is_classed_like_one_on_the_wire() {
    for (http_status, text, status, cause) in [
        (Some(401), "Unauthorized", Status::Unauthenticated, "key-refused"),
        (Some(404), "no such model", Status::UnavailableModel, "model-not-found"),
        (Some(429), "server busy, not your limit", Status::ProviderBusy, "rate-limited"),
        (Some(429), "weekly limit reached", Status::UsageExhausted, "quota"),
        (Some(500), "boom", Status::ProviderError, "http-error"),
        (Some(200), "odd", Status::ProviderError, "unclassified"),
        (None, "weekly limit reached", Status::ProviderError, "unclassified"),
    ] {
        let ending = run().errs(text, http_status).finish(code(1));
        assert_ends(text, &ending, status, cause);
        assert!(ending.cause.unwrap().evidence.iter().any(|e| e == text), "{text}");
    }
}

#[test]
fn a_reset_time_is_told_only_if_one_was_stated() {
    let message = |retry_after_s| {
        let answer = Answer { retry_after_s, ..http(429, "slow down") };
        run().wire(&answer).finish(code(1)).cause.unwrap().message
    };
    assert_eq!(message(Some(30)), "the endpoint answered 429: too many requests, try again in 30 s");
    assert_eq!(message(None), "the endpoint answered 429: too many requests");
}

#[test]
fn a_quota_tells_when_it_comes_back_only_if_that_was_stated() {
    let message = |resets_at_s, retry_after_s| {
        let answer = Answer { retry_after_s, resets_at_s, ..http(429, "You exceeded your current quota") };
        run().wire(&answer).finish(code(1)).cause.unwrap().message
    };
    let used_up = "the endpoint answered 429: the quota is used up";
    assert_eq!(message(None, None), used_up);
    assert_eq!(message(None, Some(90)), format!("{used_up}, try again in 90 s"));
    assert_eq!(
        message(Some(1_893_456_000), Some(90)),
        format!("{used_up}, it comes back at 2030-01-01T00:00:00Z")
    );
}

#[test]
fn a_retry_storm_tells_how_often_the_turn_failed() {
    let busy = http(529, "overloaded");
    let storm = run().wire(&busy).wire(&busy).wire(&busy).network(network_code::RETRY_STORM).settle();
    let evidence = storm.finish(code(1)).cause.unwrap().evidence;
    assert!(evidence.iter().any(|line| line.starts_with("3 main turn(s) in a row failed")), "{evidence:?}");
}

#[test]
fn every_request_is_told_with_its_answer() {
    let ending = run()
        .wire(&stated(http(529, "busy"), "overloaded_error"))
        .wire(&Answer { served_model: Some("m-1"), ..GOOD })
        .asks("title")
        .succeeds("done")
        .finish(code(0));
    let told: Vec<_> = ending
        .requests
        .iter()
        .map(|r| {
            (
                r.request,
                r.class.as_str(),
                r.asked.as_deref(),
                r.served.as_deref(),
                r.status,
                r.error.as_deref(),
            )
        })
        .collect();
    let asked = Some("m-1");
    assert_eq!(
        told,
        [
            (1, "turn", asked, None, Some(529), Some("overloaded_error")),
            (2, "turn", asked, asked, Some(200), None),
            (3, "title", asked, None, None, None),
        ]
    );
    let mut many = run();
    for _ in 0..250 {
        many = many.wire(&GOOD);
    }
    let ending = many.succeeds("done").finish(code(0));
    let numbers: Vec<u64> = ending.requests.iter().map(|r| r.request).collect();
    assert_eq!(
        (numbers.len(), numbers.first(), numbers.last()),
        (100, Some(&151), Some(&250)),
        "the last ones"
    );
    assert_eq!((ending.model_requests, ending.spent.turns), (250, 250));
}
