//! The model as a process of its own, as far as that can be seen from inside a test: lifeline and readiness line.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;

use stockade_model::{ModelError, ServeArgs, ServeOptions, run_blocking};

const SCENARIO: &str = r#"{"version":1,"name":"t","steps":[{"end":"hang"}]}"#;

fn args(folder: &tempfile::TempDir) -> ServeArgs {
    let scenario = folder.path().join("scenario.json");
    fs::write(&scenario, SCENARIO).unwrap();
    let mut options = ServeOptions::new();
    options.control = Some(folder.path().join("control"));
    ServeArgs { scenario, options }
}

#[test]
fn it_announces_its_address_and_ends_with_its_lifeline() {
    let folder = tempfile::tempdir().unwrap();
    let args = args(&folder);
    let (lifeline, parent) = io::pipe().unwrap();
    let (announced, mut announce) = io::pipe().unwrap();
    let model = thread::spawn(move || run_blocking(args, lifeline, &mut announce));
    let mut line = String::new();
    BufReader::new(announced).read_line(&mut line).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = ready["address"].as_str().unwrap();
    assert_eq!(ready, serde_json::json!({"address": address, "url": format!("http://{address}/v1")}));

    let mut open = TcpStream::connect(address).unwrap();
    open.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").unwrap();
    let mut answer = [0; 12];
    open.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");

    drop(parent);
    model.join().unwrap().unwrap();
    assert!(!folder.path().join("control").exists());
    let mut rest = Vec::new();
    open.read_to_end(&mut rest).unwrap();
    TcpStream::connect(address).unwrap_err();
}

#[test]
fn nobody_to_tell_the_address_to_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (lifeline, _parent) = io::pipe().unwrap();
    let (reader, mut announce) = io::pipe().unwrap();
    drop(reader);
    let error = run_blocking(args(&folder), lifeline, &mut announce).unwrap_err();
    assert!(matches!(error, ModelError::Announce { .. }), "{error:?}");
}

#[test]
fn a_scenario_that_is_missing_or_wrong_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = args(&folder);
    fs::write(&wrong.scenario, "{").unwrap();
    let error = run_blocking(wrong.clone(), io::empty(), &mut io::sink()).unwrap_err();
    assert!(matches!(error, ModelError::Scenario { .. }), "{error:?}");
    wrong.scenario = folder.path().join("absent.json");
    let error = run_blocking(wrong, io::empty(), &mut io::sink()).unwrap_err();
    assert!(error.to_string().contains("absent.json"), "{error}");
}
