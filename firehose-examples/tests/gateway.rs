//! The gateway as a program: its one line, its exit codes, its end.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper fails its test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use firehose_core::{Clock, SystemClock};

fn gateway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FIREHOSE_")) {
        command.env_remove(name);
    }
    // Where no firehose.toml lies about.
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// A gateway that is up, and ended when it goes out of scope.
struct Running {
    child: Child,
    address: String,
    rest: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut rest = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        rest.read_line(&mut line).unwrap();
        let address = line
            .strip_prefix("firehose gateway: http://")
            .and_then(|rest| rest.strip_suffix(" (messages in memory, gone when it stops)\n"))
            .unwrap_or_else(|| panic!("{line:?}"));
        Self { address: address.to_owned(), child, rest }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Sends a request, and gives the connection once the status line is there.
    fn get(&self, path: &str) -> (String, BufReader<TcpStream>) {
        let mut connection = TcpStream::connect(&self.address).unwrap();
        write!(connection, "GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        let mut connection = BufReader::new(connection);
        let mut status = String::new();
        connection.read_line(&mut status).unwrap();
        (status.trim_end().to_owned(), connection)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn refused(arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = gateway(arguments).output().unwrap();
    let stderr = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(2), "{stderr}");
    assert!(stdout.is_empty(), "nothing serves");
    stderr
}

#[test]
fn it_says_in_one_line_where_to_look_and_ends_when_told_to() {
    for signal in ["TERM", "INT"] {
        let mut running = Running::start(gateway(&["--listen", "127.0.0.1:0"]));
        assert_eq!(running.get("/readyz").0, "HTTP/1.1 200 OK");
        let (status, mut events) = running.get("/firehose/sse?streams=a");
        assert_eq!(status, "HTTP/1.1 200 OK");
        let clock = SystemClock::new();
        running.signal(signal);
        let code = running.child.wait().unwrap().code();
        assert_eq!(code, Some(0), "{signal}");
        let took = clock.now().since_origin();
        assert!(took < Duration::from_secs(5), "{signal}: {took:?}");
        let mut text = String::new();
        events.read_to_string(&mut text).unwrap();
        assert!(text.contains("\nid: f") && text.ends_with("0\r\n\r\n"), "a whole answer, with its token: {text:?}");
        let mut rest = String::new();
        running.rest.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "one line");
    }
}

#[test]
fn a_port_that_is_taken_is_one_clear_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let expected =
        format!("firehose gateway: {address} is taken by another program; choose another with --listen HOST:PORT\n");
    assert_eq!(refused(&["--listen", &address]), expected);
}

#[test]
fn an_address_that_is_none_is_one_clear_line() {
    for listen in ["nonsense", "127.0.0.1:99999", "127.0.0.1"] {
        let said = refused(&["--listen", listen]);
        assert!(said.starts_with(&format!("firehose gateway: cannot listen on {listen}: ")), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn configuration_is_checked_before_anything_is_served() {
    let said = refused(&["--config", "/nowhere/firehose.toml"]);
    assert_eq!(said, "firehose gateway: configuration: no file /nowhere/firehose.toml\n");

    let mut command = gateway(&["--listen", "127.0.0.1:0"]);
    let output = command.env("FIREHOSE_GAP_GRACE", "soon").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("FIREHOSE_GAP_GRACE"));
}

#[test]
fn variables_choose_where_it_listens_and_odd_ones_are_warned_of() {
    let mut command = gateway(&[]);
    command
        .env("FIREHOSE_LISTEN", "127.0.0.1:0")
        .env("FIREHOSE_GAP_GRACES", "1s")
        .env("FIREHOSE_MAX_MESSAGE_BYTES", "3");
    let mut running = Running::start(command);
    let mut connection = TcpStream::connect(&running.address).unwrap();
    write!(connection, "POST /firehose/streams/a HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nfour").unwrap();
    let mut status = String::new();
    BufReader::new(connection).read_line(&mut status).unwrap();
    assert_eq!(status, "HTTP/1.1 413 Payload Too Large\r\n", "the limit of the configuration holds");
    running.signal("TERM");
    running.child.wait().unwrap();
    let mut said = String::new();
    running.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let expected = "firehose gateway: warning: FIREHOSE_GAP_GRACES is not a key of the configuration, and is ignored\n";
    assert_eq!(said, expected);
}
