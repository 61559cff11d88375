//! Held answers: the outside decides when they go on.

use std::os::unix::fs::PermissionsExt;

use stockade_model::LogLine;

use crate::harness::{Model, turn, whole_turn};

fn held(name: &'static str) -> impl Fn(&LogLine) -> bool {
    move |line| *line == LogLine::Held(name.to_owned())
}

#[tokio::test]
async fn a_held_answer_goes_on_when_its_name_is_released() {
    let model = Model::start(r#"{"text":"before","hold":"go","tools":[{"name":"t","arguments":{}}]}"#).await;
    let mut client = model.connect().await;
    let answer = tokio::spawn(async move { client.post(&turn(0)).await });
    model.wait_for(held("go")).await;
    assert!(!answer.is_finished());
    model.release("go").await.unwrap();
    let reply = answer.await.unwrap().unwrap();
    assert_eq!(reply.text(), "before");
    assert!(reply.body.contains("tool_calls"));
    let kinds: Vec<_> = model.log().into_iter().skip(1).collect();
    assert_eq!(kinds[..2], [LogLine::Held("go".to_owned()), LogLine::Released("go".to_owned())]);
    assert!(matches!(&kinds[2], LogLine::Answered(answered) if answered.complete));
}

#[tokio::test]
async fn text_before_the_hold_is_out_when_the_log_says_held() {
    use tokio::io::AsyncWriteExt;
    let model = Model::start(r#"{"text":"before","hold":"go"}"#).await;
    let mut stream = tokio::net::TcpStream::connect(model.address).await.unwrap();
    stream.write_all(crate::harness::raw_request(&turn(0).to_string()).as_bytes()).await.unwrap();
    model.wait_for(held("go")).await;
    let mut bytes = [0; 4096];
    let length = stream.try_read(&mut bytes).unwrap();
    assert!(String::from_utf8_lossy(&bytes[..length]).contains("before"));
}

#[tokio::test]
async fn a_held_answer_ends_when_the_client_goes_away() {
    let model = Model::start(r#"{"text":"before","hold":"go"}"#).await;
    for round in 1..=2 {
        let mut client = model.connect().await;
        let request = turn(0);
        tokio::select! {
            reply = client.post(&request) => panic!("not held: {reply:?}"),
            () = model.wait_for(|line| matches!(line, LogLine::Request(seen) if seen.sequence == round)) => (),
        }
        client.hang_up();
        model
            .wait_for(|line| matches!(line, LogLine::Answered(end) if end.sequence == round && !end.complete))
            .await;
    }
    assert!(!model.log().contains(&LogLine::Released("go".to_owned())));
}

#[tokio::test]
async fn what_has_been_released_holds_nobody_again() {
    let model = Model::start(r#"{"hold":"a"},{"hold":"b","text":"x"}"#).await;
    model.release("a").await.unwrap();
    model.turn(0).await;
    model.turn(0).await;
    let mut client = model.connect().await;
    let answer = tokio::spawn(async move { client.post(&whole_turn(1)).await });
    model.wait_for(held("b")).await;
    model.release("b").await.unwrap();
    assert_eq!(answer.await.unwrap().unwrap().json()["choices"][0]["message"]["content"], "x");
}

#[tokio::test]
async fn the_control_socket_refuses_what_it_does_not_know() {
    let model = Model::start(r#"{"hold":"a"}"#).await;
    let mode = std::fs::metadata(model.control()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let error = model.release("b").await.unwrap_err();
    assert_eq!(error.to_string(), "the scripted model refused: no step holds at `b`");
    let error = model.release("a\nrelease a").await.err();
    assert!(error.is_none(), "only the first line counts: {error:?}");
    let control = model.control();
    assert!(control.exists());
    model.stop().await.unwrap();
    assert!(!control.exists());
}

#[tokio::test]
async fn a_delayed_answer_is_called_off_when_the_client_goes_away() {
    let model = Model::start(r#"{"text":"late","delayMs":600000}"#).await;
    let mut client = model.connect().await;
    let request = turn(0);
    tokio::select! {
        reply = client.post(&request) => panic!("not delayed: {reply:?}"),
        () = model.wait_for(|line| matches!(line, LogLine::Request(_))) => (),
    }
    client.hang_up();
    model.wait_for(|line| matches!(line, LogLine::Answered(end) if !end.complete)).await;
}
