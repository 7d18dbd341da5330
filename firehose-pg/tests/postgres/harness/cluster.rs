//! One private cluster for the whole run, and others where a test needs its own.
//!
//! A shell watches over the server and reads from a pipe whose other end only this process holds. However the process
//! ends, by a panic or a SIGKILL, the pipe closes, and the shell stops the server and removes its folder.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, mpsc};

use firehose_pg::DatabaseUrl;
use tokio_postgres::Client;

use super::database;
use super::owner::Owner;

/// `pg_ctl` waits until the server takes connections, and then the shell says so.
const WATCH: &str = r#"
trap '' INT TERM HUP
"$1/pg_ctl" start -w -t 60 -D "$2/data" -l "$2/log" >"$2/start" 2>&1 && echo ready || echo failed
read -r never
"$1/pg_ctl" stop -m immediate -D "$2/data" >"$2/stop" 2>&1
rm -rf "$2"
"#;

/// Characters that a URL has uses for.
pub(crate) const PASSWORD: &str = "p@ss/w?rd:#[1] %41+&=,$ ü";

/// A server of our own. Its superuser is `postgres`; over TCP it wants [`PASSWORD`].
pub(crate) struct Cluster {
    pub(crate) folder: PathBuf,
    pub(crate) port: u16,
    /// The certificate that signed the server's, which is for `localhost`.
    pub(crate) root_certificate: PathBuf,
    watch: Child,
}

/// The cluster of a run, and where names of databases go that may be dropped.
pub(crate) struct Shared {
    pub(crate) cluster: Cluster,
    pub(crate) unused: mpsc::Sender<String>,
}

impl Cluster {
    /// The cluster of this run; started by whoever asks first.
    pub(crate) fn get() -> &'static Shared {
        static CLUSTER: OnceLock<Shared> = OnceLock::new();
        CLUSTER.get_or_init(|| {
            sweep();
            let cluster = Self::start(prepare());
            database::make_templates(&cluster);
            let (unused, dropped) = mpsc::channel();
            let (folder, port) = (cluster.folder.clone(), cluster.port);
            std::thread::spawn(move || database::drop_unused(folder, port, dropped));
            Shared { cluster, unused }
        })
    }

    /// A primary of a test's own, and a standby that streams from it.
    pub(crate) fn pair() -> (Self, Self) {
        let folder = prepare();
        // What never ran is whole: its copy needs no base backup to be the same cluster.
        let copy = new_folder();
        let source = folder.join("data");
        let data = copy.join("data");
        let copied = Owner::of_servers().command(Path::new("cp")).arg("-a").args([&source, &data]).output();
        succeeded("cp", &copied.expect("cp"));
        let primary = Self::start(folder);
        let upstream =
            format!("primary_conninfo = 'host={} port={} user=postgres'", primary.folder.display(), primary.port);
        append(&data.join("postgresql.conf"), &format!("\n{upstream}\n"));
        mark_as_standby(&data);
        (primary, Self::start(copy))
    }

    /// One in recovery that has nobody to stream from.
    pub(crate) fn standby() -> Self {
        let folder = prepare();
        mark_as_standby(&folder.join("data"));
        Self::start(folder)
    }

    /// Where `database` is on it, through the socket.
    pub(crate) fn url(&self, database: &str) -> DatabaseUrl {
        DatabaseUrl::new(self.folder.to_string_lossy(), self.port, database).user("postgres")
    }

    pub(crate) async fn client(&self, database: &str) -> Client {
        database::connect_to(&self.folder, self.port, database).await
    }

    /// Ends it as a lost machine would, and returns when it is gone.
    pub(crate) fn crash(mut self) {
        drop(self.watch.stdin.take());
        self.watch.wait().expect("the end of the shell that watches over the server");
    }

    /// Starts what stands in `folder`, on ports of its own.
    fn start(folder: PathBuf) -> Self {
        let owner = Owner::of_servers();
        let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr()).expect("a free port").port();
        let root_certificate = certificates(&folder, owner);
        let addresses = if TcpListener::bind(("::1", 0)).is_ok() { "127.0.0.1, ::1" } else { "127.0.0.1" };
        append(
            &folder.join("data/postgresql.conf"),
            &format!(
                "\nport = {port}\nlisten_addresses = '{addresses}'\nunix_socket_directories = '{0}'\n\
                 ssl = on\nssl_cert_file = '{0}/server.crt'\nssl_key_file = '{0}/server.key'\n",
                folder.display()
            ),
        );
        let mut watch = owner
            .command(Path::new("/bin/sh"))
            .args(["-c", WATCH, "watch"])
            .arg(find_programs())
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell that watches over the server");
        let mut said = String::new();
        BufReader::new(watch.stdout.take().expect("its word")).read_line(&mut said).expect("its word");
        let log = || fs::read_to_string(folder.join("log")).unwrap_or_default();
        assert!(said == "ready\n", "the server did not start: {}", log());
        Self { folder, port, root_certificate, watch }
    }
}

/// A folder with a cluster in it that never ran.
fn prepare() -> PathBuf {
    let owner = Owner::of_servers();
    let folder = new_folder();
    let password = folder.join("password");
    fs::write(&password, PASSWORD).expect("the password's file");
    let made = owner
        .command(&find_programs().join("initdb"))
        .args(["--no-sync", "-U", "postgres", "-E", "UTF8", "--locale=C", "--auth-local=trust"])
        .args(["--auth-host=scram-sha-256", "--pwfile"])
        .arg(&password)
        .arg("-D")
        .arg(folder.join("data"))
        .output()
        .expect("initdb");
    succeeded("initdb", &made);
    append(
        &folder.join("data/postgresql.conf"),
        "\nfsync = off\nmax_connections = 400\nmax_prepared_transactions = 10\nshared_buffers = 32MB\nautovacuum = off\n",
    );
    folder
}

fn succeeded(what: &str, output: &Output) {
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
}

fn new_folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(name);
    fs::create_dir(&folder).expect("a folder for the cluster");
    Owner::of_servers().own(&folder);
    folder
}

fn append(file: &Path, text: &str) {
    let mut file = fs::OpenOptions::new().append(true).open(file).expect("settings");
    file.write_all(text.as_bytes()).expect("settings");
}

fn mark_as_standby(data: &Path) {
    let signal = data.join("standby.signal");
    fs::write(&signal, "").expect("the standby's sign");
    Owner::of_servers().own(&signal);
}

const PREFIX: &str = "firehose-pg-tests-";

/// Removes what runs left behind whose shell was killed too: their process is gone.
fn sweep() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(owner) = name.strip_prefix(PREFIX).and_then(|pid| pid.split('-').next()?.parse::<u32>().ok()) else {
            continue;
        };
        if Path::new(&format!("/proc/{owner}")).exists() {
            continue;
        }
        let folder = entry.path();
        let pid = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap_or_default();
        if let Some(pid) = pid.lines().next().and_then(|line| line.trim().parse::<u32>().ok())
            && fs::read_to_string(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.contains(&*folder.to_string_lossy()))
        {
            drop(Command::new("kill").args(["-QUIT", &pid.to_string()]).status());
        }
        drop(fs::remove_dir_all(folder));
    }
}

/// The newest PostgreSQL of the machine.
fn find_programs() -> PathBuf {
    let version = |path: &PathBuf| {
        let name = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        name.and_then(|name| name.parse::<u32>().ok()).unwrap_or(0)
    };
    let mut found: Vec<PathBuf> = std::env::var_os("TEST_POSTGRES_BIN").map(PathBuf::from).into_iter().collect();
    if found.is_empty() {
        let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        found.extend(installed.map(|entry| entry.path().join("bin")));
        found.sort_by_key(|path| std::cmp::Reverse(version(path)));
        found.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        found.push("/usr/local/pgsql/bin".into());
    }
    let usable = |folder: &PathBuf| folder.join("postgres").is_file() && folder.join("initdb").is_file();
    found.into_iter().find(usable).expect(
        "these tests need a PostgreSQL server: install the package `postgresql` (Debian, Ubuntu), `postgresql-server` \
         (Fedora) or `postgresql` (Homebrew), or name the folder of `postgres` and `initdb` in TEST_POSTGRES_BIN",
    )
}

/// A root of our own, and the server's certificate signed by it.
fn certificates(folder: &Path, owner: Owner) -> PathBuf {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let root_key = KeyPair::generate().expect("a key");
    let mut root = CertificateParams::new(Vec::new()).expect("parameters");
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root_certificate = root.self_signed(&root_key).expect("a root");
    let issuer = Issuer::new(root, root_key);
    let key = KeyPair::generate().expect("a key");
    let server = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
    let server = server.signed_by(&key, &issuer).expect("a certificate");
    for (name, text) in [("server.crt", server.pem()), ("server.key", key.serialize_pem())] {
        let path = folder.join(name);
        fs::write(&path, text).expect("a certificate's file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its permissions");
        owner.own(&path);
    }
    let path = folder.join("root.crt");
    fs::write(&path, root_certificate.pem()).expect("the root's file");
    path
}
