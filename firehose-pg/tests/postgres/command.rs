//! The command `firehose`, as a person runs it.

use std::process::{Command, Output};

use crate::harness::{GEM, Shape, TestDatabase, run};

fn firehose(db: &TestDatabase, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_firehose"))
        .args(arguments)
        .env("FIREHOSE_DATABASE_URL", db.url().to_secret().expose())
        .current_dir(std::env::temp_dir())
        .output()
        .unwrap()
}

/// What it said, where it ended as expected.
fn said(db: &TestDatabase, code: i32, arguments: &[&str]) -> String {
    let output = firehose(db, arguments);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {out}{err}");
    if code == 0 { out.into_owned() } else { err.into_owned() }
}

#[tokio::test]
async fn migrate_up_set_widen_and_down() {
    run(Shape::Empty, |db| async move {
        db.execute(GEM).await;
        assert_eq!(said(&db, 0, &["migrate"]), "migrated\n");
        assert_eq!(said(&db, 0, &["migrate", "--json"]), "{\"migrate\":\"up\",\"result\":\"migrated\"}\n");
        assert_eq!(said(&db, 0, &["migrate", "--set", "layout=buckets"]), "layout = buckets\n");
        assert_eq!(db.number("SELECT count(*) FROM firehose_settings WHERE layout = 'buckets'").await, 1);
        assert!(said(&db, 2, &["migrate", "--set", "layuot=buckets"]).contains("is no setting"));
        assert!(said(&db, 2, &["migrate", "--set", "layout"]).contains("KEY=VALUE"));
        assert!(said(&db, 2, &["migrate", "--down", "--widen"]).contains("cannot be used"));
        assert_eq!(said(&db, 0, &["migrate", "--widen"]), "widened\n");
        assert_eq!(said(&db, 0, &["migrate", "--widen"]), "nothing to widen\n");
        assert_eq!(said(&db, 0, &["migrate", "--down"]), "taken away\n");
        assert_eq!(
            db.number("SELECT count(*) FROM pg_class WHERE relname LIKE 'firehose%' AND relkind = 'r'").await,
            2
        );
    })
    .await;
}

#[tokio::test]
async fn print_touches_no_database_and_runs_as_it_is() {
    run(Shape::Empty, |db| async move {
        let sql = said(&db, 0, &["migrate", "--print", "--database-url", "postgres://u@nowhere.invalid/d"]);
        db.execute(&sql).await;
        assert_eq!(said(&db, 0, &["migrate"]), "migrated\n");
        assert_eq!(db.number("SELECT count(*) FROM firehose_migrations").await, 3);
    })
    .await;
}

#[tokio::test]
async fn the_exit_code_tells_what_went_wrong() {
    run(Shape::Empty, |db| async move {
        let secret = "postgres://u:hunter2@127.0.0.1:1/d";
        let unreachable = said(&db, 3, &["migrate", "--database-url", secret]);
        assert!(unreachable.contains("refused") && !unreachable.contains("hunter2"), "{unreachable}");
        assert!(
            said(&db, 3, &["migrate", "--database-url", "postgres://u@nowhere.invalid/d"]).contains("nowhere.invalid")
        );
        said(&db, 2, &["migrate", "--database-url", "mysql://u:hunter2@h/d"]);
        said(&db, 2, &["migrate", "--config", "/nowhere/firehose.toml"]);
        said(&db, 0, &["migrate", "--down"]);
        said(&db, 2, &["wash"]);
        let warned = Command::new(env!("CARGO_BIN_EXE_firehose"))
            .args(["migrate"])
            .env("FIREHOSE_DATABASE_URL", db.url().to_secret().expose())
            .env("FIREHOSE_PORT", "tcp://10.0.0.1:80")
            .current_dir(std::env::temp_dir())
            .output()
            .unwrap();
        assert_eq!(warned.status.code(), Some(1), "done, with a warning");
        assert!(String::from_utf8_lossy(&warned.stderr).contains("FIREHOSE_PORT"));
    })
    .await;
}
