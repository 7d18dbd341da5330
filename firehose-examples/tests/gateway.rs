//! The gateway as a program: its one line, its exit codes, its end.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper fails its test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use firehose_core::{Clock, SystemClock};

/// What takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

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
    kept_in: String,
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
            .and_then(|rest| rest.strip_suffix(")\n"))
            .and_then(|rest| rest.split_once(" (messages in "));
        let (address, kept_in) = address.unwrap_or_else(|| panic!("{line:?}"));
        Self { address: address.to_owned(), kept_in: kept_in.to_owned(), child, rest }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Publishes, and gives the answer to it.
    fn publish(&self, stream: &str, data: &str) -> String {
        publish(&self.address, stream, data).unwrap()
    }

    /// The next `count` messages of an event stream of one stream, and the token that came with the last of them.
    fn events(&self, query: &str, count: usize) -> (Vec<String>, String) {
        let (status, connection) = self.get(&format!("/firehose/sse?{query}"));
        assert_eq!(status, "HTTP/1.1 200 OK");
        let (mut data, mut id) = (Vec::new(), String::new());
        for line in connection.lines() {
            let line = line.unwrap();
            if let Some(token) = line.strip_prefix("id: ") {
                token.clone_into(&mut id);
            } else if let Some(text) = line.strip_prefix("data: ").filter(|text| text.contains("\"sequence\"")) {
                data.push(text.to_owned());
            } else if line.is_empty() && data.len() == count && !id.is_empty() {
                return (data, id);
            }
        }
        panic!("it ended after {data:?}");
    }

    /// Sends a request, and gives the connection once the status line is there.
    fn get(&self, path: &str) -> (String, BufReader<TcpStream>) {
        let mut connection = TcpStream::connect(&self.address).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(connection, "GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        let mut connection = BufReader::new(connection);
        let mut status = String::new();
        connection.read_line(&mut status).unwrap();
        (status.trim_end().to_owned(), connection)
    }
}

fn publish(address: &str, stream: &str, data: &str) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    let length = data.len();
    let head = format!("POST /firehose/streams/{stream} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n");
    write!(connection, "{head}Content-Length: {length}\r\n\r\n{data}")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer)
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
        assert_eq!(running.kept_in, "memory, gone when it stops");
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

/// Serves from the file at `path`.
fn on_file(path: &str) -> Running {
    let running = Running::start(gateway(&["--listen", "127.0.0.1:0", "--store", &format!("sqlite:{path}")]));
    assert_eq!(running.kept_in, path);
    running
}

fn numbered(events: &[String]) -> Vec<(String, i64)> {
    let event = |text: &String| {
        let event: serde_json::Value = serde_json::from_str(text).unwrap();
        (event["data"].as_str().unwrap().to_owned(), event["sequence"].as_i64().unwrap())
    };
    events.iter().map(event).collect()
}

#[test]
fn a_file_outlives_the_gateway_and_clients_resume_where_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders.db").display().to_string();
    let expected =
        |numbers: std::ops::RangeInclusive<i64>| -> Vec<_> { numbers.map(|n| (format!("order {n}"), n)).collect() };

    let mut running = on_file(&path);
    let (_, mut page) = running.get("/");
    let mut line = String::new();
    while !line.contains("<footer>") {
        line.clear();
        assert_ne!(page.read_line(&mut line).unwrap(), 0, "the page has a foot");
    }
    assert!(line.contains(&format!("Messages in {path}.")), "{line}");
    for n in 1..=3 {
        let answer = running.publish("orders", &format!("order {n}"));
        assert!(answer.starts_with("HTTP/1.1 201") && answer.contains(&format!("\"sequence\":{n},")), "{answer}");
    }
    let (seen, token) = running.events("streams=orders&last_event_id=1", 1);
    assert_eq!(numbered(&seen), expected(2..=2));
    running.signal("TERM");
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    assert!(!std::path::Path::new(&format!("{path}-wal")).exists(), "what is left is one file");

    let mut running = on_file(&path);
    running.publish("orders", "order 4");
    let resume = format!("streams=orders&last_event_id={token}");
    assert_eq!(numbered(&running.events(&resume, 2).0), expected(3..=4), "no reset, no gap, in order");
    running.publish("orders", "order 5");
    running.signal("KILL");
    assert_eq!(running.child.wait().unwrap().code(), None);

    let running = on_file(&path);
    running.publish("orders", "order 6");
    assert_eq!(numbered(&running.events(&resume, 4).0), expected(3..=6), "a crash loses nothing");
}

/// Killed in the middle of it, what was answered is there.
#[test]
fn g1_what_was_acknowledged_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders.db").display().to_string();
    let mut acknowledged = 0;
    for _ in 0..3 {
        let mut running = on_file(&path);
        let address = running.address.clone();
        let (tell, told) = std::sync::mpsc::channel();
        let publisher = std::thread::spawn(move || {
            // What got no whole answer may be there or not.
            while publish(&address, "a", "x").is_ok_and(|answer| answer.contains("\"sequence\":")) {
                tell.send(()).unwrap();
            }
        });
        for _ in 0..40 {
            told.recv().unwrap();
        }
        running.signal("KILL");
        running.child.wait().unwrap();
        publisher.join().unwrap();
        acknowledged += 40 + told.try_iter().count();

        let running = on_file(&path);
        let events = numbered(&running.events("streams=a&last_event_id=1", acknowledged - 1).0);
        let sequences: Vec<i64> = events.iter().map(|(_, sequence)| *sequence).collect();
        assert_eq!(sequences, (2..=acknowledged as i64).collect::<Vec<_>>());
    }
}

#[test]
fn a_store_that_is_none_is_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    for store in ["postgres:x", "sqlite:", "sqlite://", "orders.db", ""] {
        let expected = format!(
            "firehose gateway: {store:?} is no store; give --store sqlite:FILE, or --database-url for PostgreSQL\n"
        );
        assert_eq!(refused(&["--store", store]), expected);
    }
    let both = ["--store", &format!("sqlite:{}", path("a.db")), "--database-url", "postgres://localhost/none"];
    let said = refused(&both);
    assert!(said.contains("both given; choose one") && said.lines().count() == 1, "{said}");

    std::fs::write(path("text"), "no database at all").unwrap();
    let said = refused(&["--listen", "127.0.0.1:0", "--store", &format!("sqlite:{}", path("text"))]);
    assert!(said.contains("not a database") && said.lines().count() == 1, "{said}");
    let said = refused(&["--listen", "127.0.0.1:0", "--store", &format!("sqlite:{}", path("no/folder"))]);
    assert!(said.contains("unable to open") && said.contains("its folder must be there"), "{said}");

    let mut command = gateway(&["--listen", "127.0.0.1:0"]);
    command.env("FIREHOSE_STORE", format!("sqlite:{}", path("b.db")));
    let mut running = Running::start(command);
    assert_eq!(running.kept_in, path("b.db"));
    running.signal("TERM");
    running.child.wait().unwrap();
    let mut said = String::new();
    running.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "", "a variable of its own is nothing to warn of");
}
