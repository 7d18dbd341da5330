//! A PgBouncer of a test's own.
//!
//! As with the server, a shell watches over it and ends it when the pipe that only this process holds is closed.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use firehose_pg::DatabaseUrl;

use super::TestDatabase;
use super::owner::Owner;

const WATCH: &str = r#"
trap '' INT TERM HUP
"$1" "$2" 2>&1 &
pooler=$!
read -r never
kill -TERM $pooler
wait $pooler
"#;

/// What a pooler lends a connection for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pooling {
    Session,
    /// Without keeping prepared statements, whatever the version can do.
    Transaction,
    /// And it keeps as many as it needs to.
    TransactionKeepingStatements,
}

/// A pooler before a test's database. It goes with the value.
pub(crate) struct PgBouncer {
    folder: PathBuf,
    database: String,
    _watch: Child,
}

/// Whether the PgBouncer of the machine can keep prepared statements: 1.21 and later can.
pub(crate) fn keeps_statements() -> bool {
    let said = Command::new(program()).arg("--version").output().expect("pgbouncer").stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    let version = said.lines().next().and_then(|line| line.strip_prefix("PgBouncer ")).expect(&said);
    let mut numbers = version.split('.').map(|n| n.parse::<u32>().expect(version));
    (numbers.next(), numbers.next()) >= (Some(1), Some(21))
}

impl PgBouncer {
    /// Starts one. It asks nobody for a password, and otherwise is as its makers ship it.
    pub(crate) fn before(db: &TestDatabase, pooling: Pooling) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let owner = Owner::of_servers();
        let folder = db.cluster.folder.join(format!("pgbouncer-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&folder).expect("a folder for PgBouncer");
        owner.own(&folder);
        let mode = if pooling == Pooling::Session { "session" } else { "transaction" };
        let keep = match (keeps_statements(), pooling) {
            (true, Pooling::TransactionKeepingStatements) => "max_prepared_statements = 100",
            (true, _) => "max_prepared_statements = 0",
            (false, _) => "",
        };
        let users = folder.join("users");
        fs::write(&users, "\"postgres\" \"\"\n").expect("its users");
        let settings = format!(
            "[databases]\n{database} = host={server} port={port} dbname={database} user=postgres\n\
             [pgbouncer]\nunix_socket_dir = {folder}\nlisten_port = 6432\nauth_type = trust\nauth_file = {users}\n\
             pool_mode = {mode}\n{keep}\n",
            database = db.name,
            server = db.cluster.folder.display(),
            port = db.cluster.port,
            folder = folder.display(),
            users = users.display(),
        );
        let file = folder.join("pgbouncer.ini");
        fs::write(&file, settings).expect("its settings");
        let mut watch = owner
            .command(Path::new("/bin/sh"))
            .args(["-c", WATCH, "watch"])
            .arg(program())
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell that watches over PgBouncer");
        let mut said = BufReader::new(watch.stdout.take().expect("its log")).lines();
        let up = said.by_ref().map_while(Result::ok).any(|line| line.contains("process up"));
        assert!(up, "PgBouncer did not start");
        // Read to its end, so that it never waits for a reader.
        std::thread::spawn(move || said.for_each(drop));
        Self { folder, database: db.name.clone(), _watch: watch }
    }

    pub(crate) fn url(&self) -> DatabaseUrl {
        DatabaseUrl::new(self.folder.to_string_lossy(), 6432, &self.database).user("postgres")
    }
}

/// Debian's folder of it is not on everybody's PATH.
fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = folders.map(|folder| folder.join("pgbouncer")).find(|file| file.is_file());
    found.expect("these tests need PgBouncer: install the package `pgbouncer`")
}
