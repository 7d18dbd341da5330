//! `firehose bench`: its JSON has the form that others read, and nothing of it stays in the database.

use std::process::Command;

use serde_json::Value;

use crate::harness::{Shape, TestDatabase, run};

/// What `firehose bench` printed, as JSON.
fn measured(db: &TestDatabase, arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_firehose"))
        .arg("bench")
        .args(arguments)
        .env("FIREHOSE_DATABASE_URL", db.url().to_secret().expose())
        .current_dir(std::env::temp_dir())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn a_row_is_its_figure_beside_its_floor_and_leaves_nothing() {
    run(Shape::Empty, |db| async move {
        let printed = measured(&db, &["P3", "--quick", "--json"]);
        let keys: Vec<&String> = printed.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["machine", "rows"]);
        assert_eq!(printed["machine"]["fsync"], "off", "as the test server is");
        let rows = printed["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 1);
        let row = &rows[0];
        assert_eq!((row["row"].as_str(), row["unit"].as_str()), (Some("P3"), Some("ms")));
        let number = |value: &Value| value.as_f64().filter(|n| *n > 0.0).unwrap();
        let ratio = number(&row["value"]) / number(&row["floor"]);
        assert!((ratio - number(&row["ratio"])).abs() < 0.001, "{row}");
        let rounds = row["rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), 3);
        for round in rounds {
            assert!(number(&round["value"]) <= number(&round["p99"]), "{round}");
            assert!(number(&round["floor"]) <= number(&round["floor_p99"]), "{round}");
        }
        assert_eq!(db.number("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'firehose%'").await, 0);
    })
    .await;
}

#[tokio::test]
async fn what_fails_leaves_nothing_either() {
    run(Shape::Empty, |db| async move {
        // The store refuses to start on ids that are drawn in advance: after the schema was made.
        db.execute(
            "CREATE FUNCTION spoil() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
               IF to_regclass(current_schema() || '.firehose_messages_id_seq') IS NOT NULL THEN
                 ALTER SEQUENCE firehose_messages_id_seq CACHE 2;
               END IF;
             END $$;
             CREATE EVENT TRIGGER spoil ON ddl_command_end WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION spoil()",
        )
        .await;
        let output = Command::new(env!("CARGO_BIN_EXE_firehose"))
            .args(["bench", "P3", "--quick", "--json"])
            .env("FIREHOSE_DATABASE_URL", db.url().to_secret().expose())
            .current_dir(std::env::temp_dir())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("drawn in advance"), "{said}");
        assert_eq!(db.number("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'firehose%'").await, 0);
    })
    .await;
}
