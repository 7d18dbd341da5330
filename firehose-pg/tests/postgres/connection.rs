//! URLs, TLS, and what stands in the way of a connection.

use std::time::Duration;

use firehose_core::{Backend, Blocked, Config, Error, ErrorKind, HeadDetail, Secret, Step};
use firehose_pg::DatabaseUrl;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::append::{name, new};
use crate::harness::{Cluster, PASSWORD, Shape, TestDatabase, run, within};
use crate::transport::{channel, heard, notification, session};

fn to(db: &TestDatabase, url: impl Into<Secret>) -> Config {
    Config { database_url: Some(url.into()), statement_timeout: Duration::from_secs(5), ..db.config() }
}

fn tcp(db: &TestDatabase, host: &str) -> DatabaseUrl {
    DatabaseUrl::new(host, db.cluster.port, &db.name).user("postgres").password(PASSWORD)
}

/// Both drivers and all three traits.
async fn works(config: &Config) -> Backend {
    let backend = firehose_pg::connect(config).await.unwrap();
    let results = backend.store.append(&[new("a", "x")], Blocked::Skip).await;
    results[0].as_ref().unwrap();
    backend.store.heads(&[name("a")], HeadDetail::Full).await.unwrap()[0].unwrap();
    let mut session = session(&backend).await;
    session.control.listen(&[channel("a")]).await.unwrap();
    backend.notifier.notify(&[notification("a", "x")]).await.unwrap();
    assert_eq!(heard(&mut session).await.1, "x");
    backend
}

async fn refused(config: &Config) -> Error {
    let e = within(15, firehose_pg::connect(config)).await.unwrap_err();
    let shown = format!("{e} {e:?} {config:?} {}", e.replicate());
    for secret in [PASSWORD, "hunter2"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    e
}

#[tokio::test]
async fn c56_passwords_of_any_characters() {
    run(Shape::Fresh, |db| async move {
        let role = format!("odd_{}", db.name);
        db.execute(&format!("CREATE ROLE {role} LOGIN SUPERUSER")).await;
        // Logging in is slow by design, so several characters share a password.
        for password in [":", "/?#", "[]@", "%41", "$1&+=,", " ü日本'\"\\ ", PASSWORD] {
            let quoted = password.replace('\'', "''");
            db.execute(&format!("SET standard_conforming_strings = on; ALTER ROLE {role} PASSWORD '{quoted}'")).await;
            let url = DatabaseUrl::new("127.0.0.1", db.cluster.port, &db.name).user(&role).password(password);
            let backend = firehose_pg::connect(&to(&db, url.to_secret())).await.unwrap();
            backend.store.settings().await.unwrap();
            assert!(!format!("{backend:?} {url:?}").contains(PASSWORD));
        }
        // One of the two drivers refuses to prepare it for SCRAM; that is told at the start.
        db.execute(&format!("ALTER ROLE {role} PASSWORD 'hunter2🌍'")).await;
        let url = DatabaseUrl::new("127.0.0.1", db.cluster.port, &db.name).user(&role).password("hunter2🌍");
        assert_eq!(refused(&to(&db, url.to_secret())).await.kind(), ErrorKind::Auth);
        db.execute(&format!("DROP ROLE {role}")).await;
    })
    .await;
}

#[tokio::test]
async fn c56_sockets_hosts_and_several_of_them() {
    run(Shape::Fresh, |db| async move {
        let folder = db.cluster.folder.to_string_lossy().into_owned();
        let (port, database) = (db.cluster.port, &db.name);
        let encoded = folder.replace('/', "%2F");
        works(&to(&db, format!("postgres://postgres@{encoded}:{port}/{database}"))).await;
        works(&to(&db, format!("postgresql:///{database}?host={folder}&port={port}&user=postgres"))).await;
        works(&to(&db, tcp(&db, "localhost").to_secret())).await;
        if TcpListener::bind(("::1", 0)).await.is_ok() {
            works(&to(&db, tcp(&db, "::1").to_secret())).await;
        }
        // Nothing listens on the first, the second has no name that resolves, the third takes writes.
        let password = tcp(&db, "x").to_secret().expose().split_once('@').unwrap().0.rsplit_once(':').unwrap().1.to_owned();
        let several = format!("postgres://postgres:{password}@127.0.0.1:1,nowhere.invalid,127.0.0.1:{port}/{database}?target_session_attrs=read-write");
        let backend = works(&to(&db, several)).await;
        backend.store.recover().await.unwrap();
        backend.store.settings().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn every_session_is_called_by_its_name_and_keeps_alive() {
    run(Shape::Fresh, |db| async move {
        let config = Config { application_name: "orders service".to_owned(), ..to(&db, tcp(&db, "127.0.0.1").to_secret()) };
        let backend = works(&config).await;
        let session = session(&backend).await;
        session.control.listen(&[channel("a")]).await.unwrap();
        let named = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'orders service' AND datname = current_database()";
        assert!(db.number(named).await >= 3);
        let others = "SELECT count(*) FROM pg_stat_activity WHERE application_name <> 'orders service' AND datname = current_database()
                      AND pid <> pg_backend_pid() AND client_addr IS NOT NULL";
        assert_eq!(db.number(others).await, 0);

        // c12: the kernel's own timer of the listening session's socket; 02 is that of the keepalive.
        let client = db.client().await;
        let ports = "SELECT client_port FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()";
        let port: i32 = client.query_one(ports, &[]).await.unwrap().get(0);
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let of_session = |line: &&str| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&format!(":{port:04X}")));
        let line = sockets.lines().find(of_session).unwrap();
        assert_eq!(line.split_whitespace().nth(5).map(|timer| &timer[..2]), Some("02"), "{line}");
    })
    .await;
}

#[tokio::test]
async fn c21_a_standby_is_refused_and_the_next_server_used() {
    run(Shape::Fresh, |db| async move {
        let standby = tokio::task::spawn_blocking(Cluster::standby).await.unwrap();
        let own = DatabaseUrl::new(standby.folder.to_string_lossy(), standby.port, "postgres").user("postgres");
        let alone = to(&db, own.to_secret());
        let e = refused(&alone).await;
        assert_eq!((e.kind(), e.is_retryable()), (ErrorKind::Standby, true), "{e}");
        assert_eq!(firehose_pg::migrate(&alone).await.unwrap_err().kind(), ErrorKind::Standby);

        let hosts = format!("{},{}", standby.folder.display(), db.cluster.folder.display());
        let ports = format!("{},{}", standby.port, db.cluster.port);
        works(&to(&db, format!("postgres:///{}?user=postgres&host={hosts}&port={ports}", db.name))).await;

        // Promoted, it takes writes like any other.
        let mut options = tokio_postgres::Config::new();
        options.host_path(&standby.folder).port(standby.port).user("postgres").dbname("postgres");
        let (client, connection) = options.connect(tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("SELECT pg_promote()").await.unwrap();
        firehose_pg::migrate(&alone).await.unwrap();
        works(&alone).await;
    })
    .await;
}

#[tokio::test]
async fn c21_a_silent_host_does_not_use_up_the_time_of_the_next() {
    run(Shape::Fresh, |db| async move {
        let silent = stub(b"").await;
        let password =
            tcp(&db, "x").to_secret().expose().split_once('@').unwrap().0.rsplit_once(':').unwrap().1.to_owned();
        let url =
            format!("postgres://postgres:{password}@127.0.0.1:{silent},127.0.0.1:{}/{}", db.cluster.port, db.name);
        let config = Config { statement_timeout: Duration::from_millis(1_500), ..to(&db, url) };
        let backend = within(10, firehose_pg::connect(&config)).await.unwrap();
        backend.store.settings().await.unwrap();
    })
    .await;
}

async fn encrypted(db: &TestDatabase, application: &str) -> (i64, i64) {
    let sql = |ssl: bool| {
        format!(
            "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = '{application}' AND ssl = {ssl}"
        )
    };
    (db.number(&sql(true)).await, db.number(&sql(false)).await)
}

#[tokio::test]
async fn tls_is_the_same_for_both_drivers() {
    run(Shape::Fresh, |db| async move {
        let root = db.cluster.root_certificate.to_string_lossy().into_owned();
        let stranger = std::env::temp_dir().join(format!("{}-stranger.crt", db.name));
        let key = rcgen::KeyPair::generate().unwrap();
        let other = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
        std::fs::write(&stranger, other.pem()).unwrap();
        let stranger_path = stranger.to_string_lossy().into_owned();

        for (at, (host, parameters, on)) in [
            ("127.0.0.1", vec![("sslmode", "disable")], false),
            ("127.0.0.1", vec![], true),
            ("127.0.0.1", vec![("sslmode", "prefer")], true),
            ("127.0.0.1", vec![("sslmode", "require")], true),
            ("127.0.0.1", vec![("sslmode", "require"), ("channel_binding", "require")], true),
            ("127.0.0.1", vec![("sslmode", "verify-ca"), ("sslrootcert", &root)], true),
            ("127.0.0.1", vec![("sslmode", "require"), ("sslrootcert", &root)], true),
            ("localhost", vec![("sslmode", "verify-full"), ("sslrootcert", &root)], true),
        ]
        .into_iter()
        .enumerate()
        {
            let application = format!("tls {at} {}", db.name);
            let url = parameters.iter().fold(tcp(&db, host), |url, (k, v)| url.parameter(*k, *v));
            let config = Config { application_name: application.clone(), ..to(&db, url.to_secret()) };
            let _backend = works(&config).await;
            let (with, without) = encrypted(&db, &application).await;
            assert_eq!((with >= 3, without >= 3), (on, !on), "{parameters:?}: {with} and {without}");
            assert_eq!(with.min(without), 0, "one way for all sessions");
        }

        let (root, stranger_path, nowhere) = (root.as_str(), stranger_path.as_str(), "/nowhere.crt");
        for (host, parameters) in [
            ("127.0.0.1", vec![("sslmode", "verify-full"), ("sslrootcert", root)]),
            ("localhost", vec![("sslmode", "verify-full"), ("sslrootcert", stranger_path)]),
            ("localhost", vec![("sslmode", "verify-ca"), ("sslrootcert", stranger_path)]),
            ("localhost", vec![("sslmode", "verify-full"), ("sslrootcert", nowhere)]),
        ] {
            let url = parameters.iter().fold(tcp(&db, host), |url, (k, v)| url.parameter(*k, *v));
            let e = refused(&to(&db, url.to_secret())).await;
            assert_eq!(e.kind(), ErrorKind::Tls, "{parameters:?}: {e}");
        }
        std::fs::remove_file(stranger).unwrap();
        // A socket is never encrypted, whatever is asked for.
        works(&to(&db, db.url().parameter("sslmode", "require").to_secret())).await;
    })
    .await;
}

/// Something that accepts connections, answers the first message with `answer`, and then says nothing.
async fn stub(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut client, _)) = listener.accept().await {
            let mut request = [0; 8];
            if client.read_exact(&mut request).await.is_ok() {
                client.write_all(answer).await.unwrap();
            }
            kept.push(client);
        }
    });
    port
}

#[tokio::test]
async fn c57_ten_failures_have_ten_kinds() {
    run(Shape::Fresh, |db| async move {
        let role = format!("limited_{}", db.name);
        db.execute(&format!(
            "CREATE ROLE {role} LOGIN CONNECTION LIMIT 0; CREATE ROLE {role}_ro LOGIN; ALTER ROLE {role}_ro SET default_transaction_read_only = on;
             CREATE ROLE {role}_no LOGIN; CREATE SCHEMA closed"
        ))
        .await;
        let silent = stub(b"").await;
        let without_tls = stub(b"N").await;
        let as_role = |suffix: &str| db.url().user(format!("{role}{suffix}"));
        let local = |port| DatabaseUrl::new("127.0.0.1", port, "d").user("u").password("hunter2");
        let read_write = as_role("_ro").parameter("target_session_attrs", "read-write");
        let unknown = DatabaseUrl::new(db.cluster.folder.to_string_lossy(), db.cluster.port, "nowhere").user("postgres");
        for (url, kind, retryable) in [
            (tcp(&db, "127.0.0.1").password("hunter2"), ErrorKind::Auth, false),
            (DatabaseUrl::new("127.0.0.1", db.cluster.port, &db.name).user("postgres"), ErrorKind::Auth, false),
            (unknown, ErrorKind::UnknownDatabase, false),
            (DatabaseUrl::new("nowhere.invalid", 1, "d").user("u").password("hunter2"), ErrorKind::Dns, true),
            (local(1), ErrorKind::Refused, true),
            (DatabaseUrl::new("/nowhere", 1, "d").user("u"), ErrorKind::Refused, true),
            (local(without_tls).parameter("sslmode", "require"), ErrorKind::Tls, false),
            (as_role(""), ErrorKind::LimitReached, true),
            (read_write, ErrorKind::Standby, true),
        ] {
            let e = refused(&to(&db, url.to_secret())).await;
            assert_eq!((e.kind(), e.is_retryable()), (kind, retryable), "{e:?}");
        }
        let slow = Config { statement_timeout: Duration::from_millis(300), ..to(&db, local(silent).to_secret()) };
        assert_eq!(refused(&slow).await.kind(), ErrorKind::Timeout(Step::Connect));
        let closed = Config { schema: Some("closed".to_owned()), ..to(&db, as_role("_no").to_secret()) };
        assert_eq!(refused(&closed).await.kind(), ErrorKind::Permission);
        let none = Config { database_url: None, ..db.config() };
        assert_eq!(refused(&none).await.kind(), ErrorKind::Config);
        let broken = to(&db, "postgres://u:hunter2@h:port/d");
        assert_eq!(refused(&broken).await.kind(), ErrorKind::Config);

        // Who may connect and may not write is told so with the first write.
        db.execute(&format!("GRANT SELECT ON firehose_settings, firehose_channels, firehose_messages TO {role}_no")).await;
        let backend = firehose_pg::connect(&to(&db, as_role("_no").to_secret())).await.unwrap();
        let results = backend.store.append(&[new("a", "x")], Blocked::Skip).await;
        assert_eq!(results[0].as_ref().unwrap_err().kind(), ErrorKind::Permission);
        db.execute(&format!("DROP OWNED BY {role}_no; DROP ROLE {role}, {role}_ro, {role}_no")).await;
    })
    .await;
}

#[tokio::test]
async fn migrating_tells_what_stands_in_the_way_too() {
    run(Shape::Empty, |db| async move {
        let e =
            firehose_pg::migrate(&to(&db, tcp(&db, "127.0.0.1").password("hunter2").to_secret())).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Auth, "{e:?}");
        assert!(!format!("{e:?}").contains("hunter2"));
        firehose_pg::migrate(&to(&db, tcp(&db, "127.0.0.1").to_secret())).await.unwrap();
        works(&db.config()).await;
    })
    .await;
}

#[tokio::test]
async fn a_url_of_its_own_for_listening() {
    run(Shape::Fresh, |db| async move {
        let listen_url = db.url().parameter("application_name", "the listener");
        let config = Config { listen_url: Some(listen_url.to_secret()), ..db.config() };
        let backend = firehose_pg::connect(&config).await.unwrap();
        let mut session = session(&backend).await;
        session.control.listen(&[channel("a")]).await.unwrap();
        backend.notifier.notify(&[notification("a", "x")]).await.unwrap();
        assert_eq!(heard(&mut session).await.1, "x");
        let named = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'the listener' AND datname = current_database()";
        assert_eq!(db.number(named).await, 1);
    })
    .await;
}
