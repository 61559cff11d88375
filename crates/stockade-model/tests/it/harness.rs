//! A model that serves in the background of a test, and clients for it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use stockade_model::{LogLine, ModelError, RequestSeen, Scenario, ServeOptions, read_log, release, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// No test waits longer than this for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Model {
    pub(crate) address: SocketAddr,
    pub(crate) url: String,
    pub(crate) folder: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), ModelError>>,
}

impl Model {
    /// Serves these steps (the inside of the list) with log and control socket.
    pub(crate) async fn start(steps: &str) -> Self {
        Self::start_with(steps, |_| ()).await
    }

    pub(crate) async fn start_with(steps: &str, change: impl FnOnce(&mut ServeOptions)) -> Self {
        let scenario = format!(r#"{{"version":1,"name":"test","steps":[{steps}]}}"#);
        let scenario = Scenario::parse(&scenario).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut options = ServeOptions::new();
        options.log = Some(folder.path().join("log"));
        options.control = Some(folder.path().join("control"));
        change(&mut options);
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = oneshot::channel();
        let task = tokio::spawn(serve(scenario, options, |it| ready.send(it).unwrap(), async {
            drop(stopped.await);
        }));
        let ready = is_ready.await.expect("the model does not start");
        Self { address: ready.address, url: ready.url, folder, stop: Some(stop), task }
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    pub(crate) fn log(&self) -> Vec<LogLine> {
        read_log(&self.folder.path().join("log")).unwrap()
    }

    pub(crate) fn requests(&self) -> Vec<RequestSeen> {
        let requests = self.log().into_iter().filter_map(|line| match line {
            LogLine::Request(seen) => Some(*seen),
            _ => None,
        });
        requests.collect()
    }

    /// Waits until the log has such a line.
    pub(crate) async fn wait_for(&self, what: impl Fn(&LogLine) -> bool) {
        let found = async {
            while !self.log().iter().any(&what) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, found).await.expect("the log does not get that line");
    }

    pub(crate) async fn release(&self, name: &'static str) -> Result<(), stockade_model::ClientError> {
        let control = self.control();
        tokio::task::spawn_blocking(move || release(&control, name)).await.unwrap()
    }

    pub(crate) async fn stop(mut self) -> Result<(), ModelError> {
        drop(self.stop.take());
        tokio::time::timeout(PATIENCE, self.task).await.expect("the model does not stop").unwrap()
    }

    pub(crate) async fn connect(&self) -> Client {
        let (send, connection) =
            handshake(TokioIo::new(TcpStream::connect(self.address).await.unwrap())).await.unwrap();
        Client { send, connection: tokio::spawn(connection) }
    }

    /// Posts a streaming main turn on a connection of its own.
    pub(crate) async fn turn(&self, answered: usize) -> Reply {
        self.connect().await.post(&turn(answered)).await.unwrap()
    }

    /// All bytes that come back for a streaming main turn, until the model closes the connection.
    pub(crate) async fn raw_turn(&self, answered: usize) -> Vec<u8> {
        self.raw(&raw_request(&turn(answered).to_string())).await
    }

    /// All bytes that come back for these, until the model closes the connection.
    pub(crate) async fn raw(&self, request: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        let read = stream.read_to_end(&mut bytes);
        tokio::time::timeout(PATIENCE, read).await.expect("the connection is not closed").unwrap();
        bytes
    }
}

pub(crate) fn raw_request(body: &str) -> String {
    let length = body.len();
    format!("POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n\r\n{body}")
}

pub(crate) struct Client {
    send: SendRequest<Full<Bytes>>,
    connection: JoinHandle<hyper::Result<()>>,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn over(send: SendRequest<Full<Bytes>>, connection: JoinHandle<hyper::Result<()>>) -> Self {
        Self { send, connection }
    }

    pub(crate) async fn post(&mut self, body: &Value) -> hyper::Result<Reply> {
        self.post_text(body.to_string()).await
    }

    pub(crate) async fn post_text(&mut self, body: String) -> hyper::Result<Reply> {
        let request = Request::post("/v1/chat/completions")
            .header("host", "localhost")
            .header("authorization", "Bearer sk-test")
            .body(Full::from(body))
            .unwrap();
        self.request(request).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> hyper::Result<Reply> {
        self.request(Request::get(path).header("host", "localhost").body(Full::default()).unwrap()).await
    }

    pub(crate) async fn request(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Reply> {
        let exchange = async {
            self.send.ready().await?;
            let (head, body) = self.send.send_request(request).await?.into_parts();
            let body = String::from_utf8(body.collect().await?.to_bytes().to_vec()).unwrap();
            Ok(Reply { status: head.status, headers: head.headers, body })
        };
        tokio::time::timeout(PATIENCE, exchange).await.expect("no answer")
    }

    pub(crate) fn hang_up(self) {
        self.connection.abort();
    }
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The data of each event, `[DONE]` not counted; whether `[DONE]` came is the second value.
    pub(crate) fn events(&self) -> (Vec<Value>, bool) {
        let mut data: Vec<&str> =
            self.body.split_terminator("\n\n").map(|event| &event["data: ".len()..]).collect();
        let done = data.last() == Some(&"[DONE]");
        if done {
            data.pop();
        }
        (data.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect(), done)
    }

    /// All pieces of text, put together.
    pub(crate) fn text(&self) -> String {
        let events = self.events().0;
        events.iter().filter_map(|event| event.pointer("/choices/0/delta/content")?.as_str()).collect()
    }
}

/// A streaming main turn in which the model has already answered this often.
pub(crate) fn turn(answered: usize) -> Value {
    let mut messages =
        vec![json!({"role": "system", "content": "s"}), json!({"role": "user", "content": "do it"})];
    for _ in 0..answered {
        messages.push(json!({"role": "assistant", "content": "so far"}));
        messages.push(json!({"role": "tool", "tool_call_id": "x", "content": "out"}));
    }
    json!({
        "model": "asked-1", "stream": true, "stream_options": {"include_usage": true}, "messages": messages,
        "tools": [{"type": "function", "function": {"name": "read_file", "parameters": {}}}],
    })
}

/// The same turn, answered as one object.
pub(crate) fn whole_turn(answered: usize) -> Value {
    let mut body = turn(answered);
    body["stream"] = json!(false);
    body
}
