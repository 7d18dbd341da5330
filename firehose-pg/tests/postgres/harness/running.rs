//! The command `firehose` while it runs.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::{TestDatabase, within};

/// A command that was started. It goes with the value.
pub(crate) struct Running {
    child: Child,
    pub(crate) input: Option<ChildStdin>,
    pub(crate) out: Option<Lines<BufReader<ChildStdout>>>,
    err: Lines<BufReader<ChildStderr>>,
}

impl Running {
    /// Starts it on `db`, quick to come back after a lost connection.
    pub(crate) fn start(db: &TestDatabase, arguments: &[&str]) -> Self {
        Self::start_with(db, arguments, &[])
    }

    /// As [`Self::start`], with variables of the test's own.
    pub(crate) fn start_with(db: &TestDatabase, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_firehose"))
            .args(arguments)
            .env("FIREHOSE_DATABASE_URL", db.url().to_secret().expose())
            .env("FIREHOSE_RECONNECT_DELAY", "20ms")
            .env("FIREHOSE_RECONNECT_MAX_DELAY", "200ms")
            .env("FIREHOSE_STATEMENT_TIMEOUT", "2s")
            .env("FIREHOSE_SWEEP_INTERVAL", "200ms")
            .envs(variables.iter().copied())
            .current_dir(std::env::temp_dir())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the command");
        let input = child.stdin.take();
        let out = child.stdout.take().map(|out| BufReader::new(out).lines());
        let err = BufReader::new(child.stderr.take().expect("its standard error")).lines();
        Self { child, input, out, err }
    }

    /// A `tail` that has begun.
    pub(crate) async fn tail(db: &TestDatabase, arguments: &[&str]) -> Self {
        let mut tail = Self::start(db, &[&["tail"], arguments].concat());
        tail.said("listening to").await;
        tail
    }

    /// The next line of standard output.
    #[allow(clippy::disallowed_methods, reason = "a test that hangs must fail, and say why")]
    pub(crate) async fn line(&mut self) -> String {
        use tokio::time::timeout;
        let out = self.out.as_mut().expect("its standard output");
        if let Ok(Ok(Some(line))) = timeout(Duration::from_secs(20), out.next_line()).await {
            return line;
        }
        let mut said = Vec::new();
        while let Ok(Ok(Some(line))) = timeout(Duration::from_millis(100), self.err.next_line()).await {
            said.push(line);
        }
        panic!("no line within 20 s, but on standard error: {said:#?}");
    }

    /// The next line of standard output, as JSON.
    pub(crate) async fn json(&mut self) -> serde_json::Value {
        let line = self.line().await;
        serde_json::from_str(&line).expect(&line)
    }

    /// Waits for a line of standard error that has `words` in it, and gives what follows them.
    pub(crate) async fn said(&mut self, words: &str) -> String {
        loop {
            let line = within(20, self.err.next_line()).await.expect("UTF-8").expect(words);
            if let Some((_, rest)) = line.split_once(words) {
                return rest.to_owned();
            }
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        let sent = std::process::Command::new("kill").args([&format!("-{name}"), &pid]).status().expect("kill");
        assert!(sent.success());
    }

    /// Waits for its end: the exit code, and what was left on standard output and standard error.
    pub(crate) async fn end(mut self, seconds: u64) -> (Option<i32>, Vec<String>, Vec<String>) {
        drop(self.input.take());
        let out = self.out.take();
        let left = async {
            match out {
                Some(out) => rest(out).await,
                None => Vec::new(),
            }
        };
        let (code, out, err) = within(seconds, async { tokio::join!(self.child.wait(), left, rest(self.err)) }).await;
        (code.expect("its end").code(), out, err)
    }

    /// Waits for its end without reading its standard output.
    pub(crate) async fn exit_code(&mut self, seconds: u64) -> Option<i32> {
        within(seconds, self.child.wait()).await.expect("its end").code()
    }

    /// SIGTERM, a good end within 5 s, nothing more on standard output; gives the token to go on with.
    pub(crate) async fn terminate(self) -> String {
        self.signal("TERM");
        let (code, out, err) = self.end(5).await;
        assert_eq!((code, out), (Some(0), Vec::new()), "{err:?}");
        let last = err.last().expect("a last word");
        last.split_once("--from ").expect(last).1.to_owned()
    }
}

async fn rest<R: AsyncRead + Unpin>(mut lines: Lines<BufReader<R>>) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(line) = lines.next_line().await.expect("UTF-8") {
        all.push(line);
    }
    all
}

/// Ends the command's sessions, all there are; gives how many.
pub(crate) async fn cut(admin: &tokio_postgres::Client) -> i64 {
    let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'firehose'";
    admin.query_one(sql, &[]).await.expect(sql).get(0)
}
