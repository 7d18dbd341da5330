//! One private cluster for the whole run.
//!
//! A shell watches over the server and reads from a pipe whose other end only this process holds. However the process
//! ends, by a panic or a SIGKILL, the pipe closes, and the shell stops the server and removes its folder.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};

use super::database;

const WATCH: &str = r#"
trap '' INT TERM HUP
"$1/postgres" -D "$2/data" >"$2/log" 2>&1 &
server=$!
read -r never
kill -QUIT $server
wait $server
rm -rf "$2"
"#;

/// Characters that a URL has uses for.
pub(crate) const PASSWORD: &str = "p@ss/w?rd:#[1] %41+&=,$ ü";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Primary,
    Standby,
}

/// A server of our own. Its superuser is `postgres`; over TCP it wants [`PASSWORD`].
pub(crate) struct Cluster {
    pub(crate) folder: PathBuf,
    pub(crate) port: u16,
    /// The certificate that signed the server's, which is for `localhost`.
    pub(crate) root_certificate: PathBuf,
    /// Takes the names of databases that may be dropped.
    pub(crate) unused: mpsc::Sender<String>,
    _watch: Child,
}

impl Cluster {
    /// The cluster of this run; started by whoever asks first.
    pub(crate) fn get() -> &'static Self {
        static CLUSTER: OnceLock<Cluster> = OnceLock::new();
        CLUSTER.get_or_init(|| {
            sweep();
            let cluster = Self::start(Role::Primary);
            database::make_templates(&cluster);
            cluster
        })
    }

    /// Another one, in recovery for as long as nobody promotes it. Goes with the value.
    pub(crate) fn standby() -> Self {
        Self::start(Role::Standby)
    }

    fn start(role: Role) -> Self {
        let programs = find_programs();
        let suffix = if role == Role::Standby { "-standby" } else { "" };
        let folder = std::env::temp_dir().join(format!("{PREFIX}{}{suffix}", std::process::id()));
        fs::create_dir(&folder).expect("a folder for the cluster");
        let owner = owner();
        if let Some((uid, gid)) = owner {
            chown(&folder, Some(uid), Some(gid)).expect("the folder's owner");
        }
        let command = |program: &Path| {
            let mut command = Command::new(program);
            command.current_dir("/").env_remove("PGDATA");
            if let Some((uid, gid)) = owner {
                command.uid(uid).gid(gid);
            }
            command
        };

        let password = folder.join("password");
        fs::write(&password, PASSWORD).expect("the password's file");
        let made = command(&programs.join("initdb"))
            .args(["--no-sync", "-U", "postgres", "-E", "UTF8", "--locale=C", "--auth-local=trust"])
            .args(["--auth-host=scram-sha-256", "--pwfile"])
            .arg(&password)
            .arg("-D")
            .arg(folder.join("data"))
            .output()
            .expect("initdb");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));

        let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr()).expect("a free port").port();
        let root_certificate = certificates(&folder, owner);
        let mut settings =
            fs::OpenOptions::new().append(true).open(folder.join("data/postgresql.conf")).expect("settings");
        let addresses = if TcpListener::bind(("::1", 0)).is_ok() { "127.0.0.1, ::1" } else { "127.0.0.1" };
        write!(
            settings,
            "\nport = {port}\nlisten_addresses = '{addresses}'\nunix_socket_directories = '{0}'\nfsync = off\n\
             max_connections = 400\nmax_prepared_transactions = 10\nshared_buffers = 32MB\nautovacuum = off\n\
             ssl = on\nssl_cert_file = '{0}/server.crt'\nssl_key_file = '{0}/server.key'\n",
            folder.display()
        )
        .expect("settings");
        if role == Role::Standby {
            let signal = folder.join("data/standby.signal");
            fs::write(&signal, "").expect("the standby's sign");
            if let Some((uid, gid)) = owner {
                chown(&signal, Some(uid), Some(gid)).expect("its owner");
            }
        }

        let watch = command(Path::new("/bin/sh"))
            .args(["-c", WATCH, "watch"])
            .arg(&programs)
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("a shell that watches over the server");
        let (unused, dropped) = mpsc::channel();
        let cluster = Self { folder, port, root_certificate, unused, _watch: watch };
        cluster.wait();
        let folder = cluster.folder.clone();
        std::thread::spawn(move || database::drop_unused(folder, port, dropped));
        cluster
    }

    #[allow(clippy::disallowed_methods, reason = "the server has no event to wait for")]
    fn wait(&self) {
        let ready = || {
            let text = fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap_or_default();
            text.lines().nth(7).is_some_and(|line| ["ready", "standby"].contains(&line.trim()))
        };
        for _ in 0..1_000 {
            if ready() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("the server did not start within 10 s: {log}");
    }
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

/// The server refuses to run as root, so there it runs as `postgres`.
fn owner() -> Option<(u32, u32)> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let root = status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"));
    if !root {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line =
        users.lines().find(|line| line.starts_with("postgres:")).expect("a user `postgres` to run the server as");
    let number = |at: usize| line.split(':').nth(at).and_then(|n| n.parse().ok());
    number(2).zip(number(3))
}

/// A root of our own, and the server's certificate signed by it.
fn certificates(folder: &Path, owner: Option<(u32, u32)>) -> PathBuf {
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
        if let Some((uid, gid)) = owner {
            chown(&path, Some(uid), Some(gid)).expect("its owner");
        }
    }
    let path = folder.join("root.crt");
    fs::write(&path, root_certificate.pem()).expect("the root's file");
    path
}
