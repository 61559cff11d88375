//! Bounds, and what is refused at the start.

use std::os::unix::fs::PermissionsExt;

use http_body_util::Full;
use hyper::Request;
use serde_json::json;
use stockade_model::{ModelError, Ready, RequestSeen, Scenario, ServeOptions, serve};

use crate::harness::{Model, turn};

fn turn_with_prompt(bytes: usize) -> String {
    let mut body = turn(0);
    body["messages"][1]["content"] = json!("p".repeat(bytes));
    body.to_string()
}

#[tokio::test]
async fn a_request_of_eight_mebibytes_is_answered_and_logged_as_far_as_the_log_goes() {
    let model = Model::start(r#"{"text":"read it all"}"#).await;
    let mut client = model.connect().await;
    let below = RequestSeen::MAX_BODY_BYTES - 4096;
    assert_eq!(client.post_text(turn_with_prompt(below)).await.unwrap().text(), "read it all");
    assert_eq!(
        client.post_text(turn_with_prompt(RequestSeen::MAX_BODY_BYTES)).await.unwrap().text(),
        "read it all"
    );
    let requests = model.requests();
    assert!(!requests[0].body_cut && requests[0].body.is_some());
    assert!(requests[1].body_cut && requests[1].body.is_none());
    assert_eq!(requests[1].body_text.as_ref().unwrap().len(), RequestSeen::MAX_BODY_BYTES);
    assert!(requests[1].body_bytes > RequestSeen::MAX_BODY_BYTES);
}

#[tokio::test]
async fn a_request_beyond_sixteen_mebibytes_is_refused() {
    let model = Model::start(r#"{"text":"x"}"#).await;
    let reply = model.connect().await.post_text(turn_with_prompt(16 * 1024 * 1024)).await;
    // The model may hang up while the client is still writing.
    if let Ok(reply) = reply {
        assert_eq!(reply.status, 413);
    }
    let seen = &model.requests()[0];
    assert_eq!((seen.body_bytes, seen.step), (0, None));
    assert_eq!(model.turn(0).await.text(), "x");
}

#[tokio::test]
async fn one_connection_carries_many_requests_and_two_do_not_mix() {
    let model = Model::start(r#"{"hold":"go","text":"a"},{"text":"b"}"#).await;
    let mut first = model.connect().await;
    let held = tokio::spawn(async move { first.post(&turn(0)).await });
    model.wait_for(|line| matches!(line, stockade_model::LogLine::Held(_))).await;
    let mut second = model.connect().await;
    for _ in 0..3 {
        assert_eq!(second.post(&turn(1)).await.unwrap().text(), "b");
    }
    model.release("go").await.unwrap();
    assert_eq!(held.await.unwrap().unwrap().text(), "a");
    let connections: Vec<_> = model.requests().iter().map(|seen| (seen.connection, seen.step)).collect();
    assert_eq!(connections, [(1, Some(0)), (2, Some(1)), (2, Some(1)), (2, Some(1))]);
}

#[tokio::test]
async fn the_key_is_demanded_where_there_is_one() {
    let model =
        Model::start_with(r#"{"text":"x"}"#, |options| options.api_key = Some("sk-test".to_owned())).await;
    let mut client = model.connect().await;
    assert_eq!(client.post(&turn(0)).await.unwrap().text(), "x");
    for value in ["Bearer sk-tes", "Bearer sk-test ", "sk-test", "Basic sk-test"] {
        let request =
            Request::post("/v1/chat/completions").header("host", "h").header("authorization", value);
        let reply = client.request(request.body(Full::from(turn(0).to_string())).unwrap()).await.unwrap();
        // HTTP strips the space around a value, so that one is the key after all.
        assert_eq!(reply.status == 401, value.trim_end() != "Bearer sk-test", "{value}");
    }
    let without =
        Request::post("/v1/chat/completions").header("host", "h").body(Full::from(turn(0).to_string()));
    assert_eq!(client.request(without.unwrap()).await.unwrap().status, 401);
    assert_eq!(client.get("/v1/models").await.unwrap().status, 401);
    assert_eq!(client.get("/").await.unwrap().status, 200);
}

async fn refusal(change: impl FnOnce(&mut ServeOptions)) -> ModelError {
    let scenario = Scenario::parse(r#"{"version":1,"name":"t","steps":[{"text":"{{a}}"}]}"#).unwrap();
    let mut options = ServeOptions::new();
    options.variables.insert("a".to_owned(), "b".to_owned());
    change(&mut options);
    let ready = |ready: Ready| panic!("it starts: {ready:?}");
    serve(scenario, options, ready, std::future::pending()).await.unwrap_err()
}

#[tokio::test]
async fn nothing_but_loopback_is_listened_on() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let error = refusal(|options| options.listen = address.parse().unwrap()).await;
        assert!(matches!(error, ModelError::NotLoopback { .. }), "{error:?}");
    }
    let model =
        Model::start_with(r#"{"text":"x"}"#, |options| options.listen = "[::1]:0".parse().unwrap()).await;
    assert_eq!(model.url, format!("http://[::1]:{}/v1", model.address.port()));
}

#[tokio::test]
async fn existing_files_are_never_replaced_and_secrets_stay_private() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    let error = refusal(|options| options.log = Some(file.clone())).await;
    assert!(matches!(error, ModelError::Log { .. }), "{error:?}");
    let error = refusal(|options| options.control = Some(file.clone())).await;
    assert!(matches!(error, ModelError::Control { .. }), "{error:?}");
    let error = refusal(|options| (options.tls, options.ca_out) = (true, Some(file.clone()))).await;
    assert!(matches!(error, ModelError::AuthorityFile { .. }), "{error:?}");
    let error = refusal(|options| options.ca_out = Some(folder.path().join("ca"))).await;
    assert!(matches!(error, ModelError::AuthorityWithoutTls { .. }), "{error:?}");
    let error = refusal(|options| options.variables.clear()).await;
    assert!(matches!(error, ModelError::Scenario { .. }), "{error:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");

    let model = Model::start(r#"{"text":"x"}"#).await;
    let mode = std::fs::metadata(model.folder.path().join("log")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut options = ServeOptions::new();
    options.api_key = Some("sk-secret".to_owned());
    assert!(!format!("{options:?}").contains("sk-secret"));
}
