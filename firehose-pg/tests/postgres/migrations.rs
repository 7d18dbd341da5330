//! The schema: made, adopted, widened, printed, and taken away again.

use firehose_core::{Blocked, Config, ErrorKind, HeadDetail, Retain, Scope};
use firehose_migrations::{SchemaName, down, print, set, up, widen};

use crate::append::{keyed, name, new};
use crate::gem;
use crate::harness::{GEM, Shape, TestDatabase, run, within};
use crate::transport::{channel, heard, notification, session};

/// Everything in `schema` that a migration makes, as text to compare.
async fn shape(db: &TestDatabase, schema: &str) -> Vec<String> {
    let sql = "
      SELECT format('%s.%s %s %s %s', table_name, column_name, data_type, is_nullable, replace(column_default, $1 || '.', ''))
      FROM information_schema.columns WHERE table_schema = $1
      UNION ALL SELECT replace(indexdef, $1 || '.', '') FROM pg_indexes WHERE schemaname = $1
      UNION ALL SELECT format('%s %s', conname, replace(pg_get_constraintdef(oid), $1 || '.', '')) FROM pg_constraint
        WHERE connamespace = $1::regnamespace
      UNION ALL SELECT format('%s(%s) %s', proname, pg_get_function_arguments(oid), pg_get_function_result(oid)) FROM pg_proc
        WHERE pronamespace = $1::regnamespace
      ORDER BY 1";
    db.client().await.query(sql, &[&schema]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

async fn files(db: &TestDatabase) -> Vec<i64> {
    let sql = "SELECT relfilenode::bigint FROM pg_class WHERE relname IN ('firehose_channels', 'firehose_messages') ORDER BY 1";
    db.client().await.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn fresh_tables_are_as_they_should_be() {
    run(Shape::Fresh, |db| async move {
        let shape = shape(&db, "public").await;
        let utc = "(clock_timestamp() AT TIME ZONE 'utc'::text)";
        for line in [
            "firehose_channels.id bigint NO nextval('firehose_channels_id_seq'::regclass)".to_owned(),
            "firehose_channels.sequence bigint NO 0".to_owned(),
            "firehose_channels.messages_count integer NO 0".to_owned(),
            format!("firehose_channels.created_at timestamp without time zone NO {utc}"),
            format!("firehose_channels.updated_at timestamp without time zone NO {utc}"),
            "firehose_messages.id bigint NO nextval('firehose_messages_id_seq'::regclass)".to_owned(),
            "firehose_messages.sequence bigint NO ".to_owned(),
            format!("firehose_messages.created_at timestamp without time zone NO {utc}"),
            "firehose_messages.key text YES ".to_owned(),
            "CREATE UNIQUE INDEX index_firehose_channels_on_name ON firehose_channels USING btree (name)".to_owned(),
            "CREATE INDEX index_firehose_messages_on_channel_id ON firehose_messages USING btree (channel_id)".to_owned(),
            "CREATE UNIQUE INDEX index_firehose_messages_on_channel_id_and_sequence ON firehose_messages USING btree (channel_id, sequence)".to_owned(),
            "CREATE UNIQUE INDEX index_firehose_messages_on_channel_id_and_key ON firehose_messages USING btree (channel_id, key) WHERE (key IS NOT NULL)".to_owned(),
            "fk_rails_a277ba80b0 FOREIGN KEY (channel_id) REFERENCES firehose_channels(id) ON DELETE CASCADE".to_owned(),
            "firehose_append(stream text, data text, key text DEFAULT NULL::text) TABLE(id bigint, channel_id bigint, sequence bigint)".to_owned(),
            "firehose_broadcast(stream text, data text, key text DEFAULT NULL::text) TABLE(id bigint, channel_id bigint, sequence bigint)".to_owned(),
        ] {
            assert!(shape.contains(&line), "{line} is not in {shape:#?}");
        }
        let settings = "SELECT layout, buckets, prefix, gem, cleanup_threshold FROM firehose_settings";
        let row = db.client().await.query_one(settings, &[]).await.unwrap();
        assert_eq!((row.get::<_, &str>(0), row.get::<_, i32>(1), row.get::<_, &str>(2)), ("per_stream", 256, "firehose"));
        assert_eq!((row.get::<_, bool>(3), row.get::<_, i64>(4)), (true, 100));
    })
    .await;
}

#[tokio::test]
async fn up_down_and_up_again_on_fresh_tables() {
    run(Shape::Empty, |db| async move {
        let (orm, before) = (db.orm().await, shape(&db, "public").await);
        for round in 0..2 {
            up(&orm, None).await.unwrap();
            let made = shape(&db, "public").await;
            up(&orm, None).await.unwrap();
            assert_eq!(shape(&db, "public").await, made, "a second run changes nothing");
            if round == 1 {
                let store = db.backend().await.store;
                assert!(store.append(&[new("a", "x")], Blocked::Skip).await[0].is_ok());
            }
            down(&orm, None).await.unwrap();
            assert_eq!(shape(&db, "public").await, before, "nothing is left, full or empty");
        }
        up(&orm, None).await.unwrap();
        let seaql = "SELECT count(*) FROM pg_class WHERE relname = 'seaql_migrations'";
        assert_eq!(db.number(seaql).await, 0, "the table of the user's own migrator is not touched");
    })
    .await;
}

#[tokio::test]
async fn the_gems_tables_are_adopted_and_given_back() {
    run(Shape::Empty, |db| async move {
        db.execute(GEM).await;
        let (orm, gems) = (db.orm().await, shape(&db, "public").await);
        for n in 0..30 {
            gem::broadcast(&mut db.client().await, "old", &format!("m{n}")).await;
        }
        let on_disk = files(&db).await;
        for _ in 0..2 {
            up(&orm, None).await.unwrap();
            up(&orm, None).await.unwrap();
            assert_eq!(files(&db).await, on_disk, "nothing is rewritten");
            let store = db.backend().await.store;
            let before = store.heads(&[name("old")], HeadDetail::Cheap).await.unwrap()[0].unwrap().sequence.0;
            let stored = store.append(&[keyed("old", "ours", "k"), new("old", "x")], Blocked::Skip).await;
            assert_eq!(stored[0].as_ref().unwrap().sequence.0, before + 1);
            gem::broadcast(&mut db.client().await, "old", "the gem's again").await;
            down(&orm, None).await.unwrap();
            assert_eq!(shape(&db, "public").await, gems, "the gem's tables, as they were");
        }
        assert_eq!(db.number("SELECT count(*) FROM firehose_messages").await, 36);
    })
    .await;
}

#[tokio::test]
async fn widening_makes_the_columns_bigint_once() {
    run(Shape::Adopted, |db| async move {
        let (orm, store) = (db.orm().await, db.backend().await.store);
        assert!(store.append(&[new("a", "x")], Blocked::Skip).await[0].is_ok());
        db.execute(
            "UPDATE firehose_channels SET sequence = 2147483646; UPDATE firehose_messages SET sequence = 2147483646",
        )
        .await;
        let results = store.append(&[new("a", "last"), new("b", "unhurt"), new("a", "too much")], Blocked::Skip).await;
        assert_eq!(results[0].as_ref().unwrap().sequence.0, 2_147_483_647);
        assert!(results[1].is_ok());
        assert!(results[2].as_ref().unwrap_err().hint().unwrap().contains("--widen"));
        assert!(widen(&orm, None).await.unwrap());
        assert!(!widen(&orm, None).await.unwrap());
        let results = store.append(&[new("a", "more")], Blocked::Skip).await;
        assert_eq!(results[0].as_ref().unwrap().sequence.0, 2_147_483_648);
        gem::broadcast(&mut db.client().await, "a", "the gem goes on").await;
    })
    .await;
}

#[tokio::test]
async fn twenty_at_once_all_succeed() {
    for shape in [Shape::Empty, Shape::Fresh] {
        run(shape, |db| async move {
            let mut running = tokio::task::JoinSet::new();
            for _ in 0..20 {
                let config = db.config();
                running.spawn(async move { firehose_pg::migrate(&config).await });
            }
            while let Some(done) = within(30, running.join_next()).await {
                done.unwrap().unwrap();
            }
            assert_eq!(db.number("SELECT count(*) FROM firehose_migrations").await, 3);
        })
        .await;
    }
}

#[tokio::test]
async fn what_is_printed_does_the_same() {
    run(Shape::Empty, |db| async move {
        let orm = db.orm().await;
        up(&orm, Some(&SchemaName::new("one"))).await.unwrap();
        db.execute(&print(&SchemaName::new("two"))).await;
        let [one, two] = [shape(&db, "one").await, shape(&db, "two").await];
        assert_eq!(one, two);
        assert!(one.len() > 20);
        up(&orm, Some(&SchemaName::new("two"))).await.unwrap();
        assert_eq!(shape(&db, "two").await, two, "what was printed counts as done");
    })
    .await;
}

#[tokio::test]
async fn everything_works_in_a_schema_of_an_odd_name() {
    run(Shape::Empty, |db| async move {
        let config = Config { schema: Some("My \"odd\" schema's".to_owned()), ..db.config() };
        let e = firehose_pg::connect(&config).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotMigrated, "{e}");
        assert!(e.hint().unwrap().contains("migrate"));
        firehose_pg::migrate(&config).await.unwrap();
        assert_eq!(
            firehose_pg::connect(&db.config()).await.unwrap_err().kind(),
            ErrorKind::NotMigrated,
            "not in public"
        );
        let backend = firehose_pg::connect(&config).await.unwrap();
        let store = &backend.store;
        let stored = store.append(&[keyed("a", "1", "k"), keyed("a", "2", "l")], Blocked::Skip).await;
        let again = store.append(&[keyed("a", "x", "k")], Blocked::Wait).await;
        assert_eq!(stored[0].as_ref().unwrap(), again[0].as_ref().unwrap());
        assert!(store.heads(&[name("a")], HeadDetail::Full).await.unwrap()[0].is_some());
        store.settings().await.unwrap();
        store.trim(Scope::All, Retain { messages: Some(1), ..Retain::default() }, 10).await.unwrap();
        let mut session = session(&backend).await;
        session.control.listen(&[channel("a")]).await.unwrap();
        backend.notifier.notify(&[notification("a", "x")]).await.unwrap();
        assert_eq!(heard(&mut session).await.1, "x");
        let client = db.client().await;
        client
            .batch_execute("SELECT * FROM \"My \"\"odd\"\" schema's\".firehose_broadcast('a', 'from SQL')")
            .await
            .unwrap();
        assert!(store.delete_stream(&name("a")).await.unwrap().is_some());
    })
    .await;
}

#[tokio::test]
async fn settings_are_checked() {
    run(Shape::Fresh, |db| async move {
        let orm = db.orm().await;
        let e = set(&orm, None, "layuot", "buckets").await.unwrap_err().to_string();
        assert!(e.contains("layout, buckets, prefix, gem, cleanup_threshold"), "{e}");
        for (key, value) in
            [("layout", "loose"), ("buckets", "0"), ("buckets", "many"), ("prefix", "a:b"), ("gem", "perhaps")]
        {
            assert!(set(&orm, None, key, value).await.is_err(), "{key}={value}");
        }
        for (key, value) in [("layout", "buckets"), ("gem", "false"), ("cleanup_threshold", "none")] {
            set(&orm, None, key, value).await.unwrap();
        }
        assert_eq!(
            db.number("SELECT count(*) FROM firehose_settings WHERE NOT gem AND cleanup_threshold IS NULL").await,
            1
        );
        set(&orm, None, "cleanup_threshold", "7").await.unwrap();
        assert_eq!(db.number("SELECT cleanup_threshold FROM firehose_settings").await, 7);
        let twice = db.client().await.batch_execute("INSERT INTO firehose_settings (adopted) VALUES (true)").await;
        assert!(twice.is_err(), "there is one row");
    })
    .await;
}

#[tokio::test]
async fn at_run_time_no_right_to_change_the_schema_is_needed() {
    run(Shape::Fresh, |db| async move {
        let role = format!("plain_{}", db.name);
        db.execute(&format!(
            "CREATE ROLE {role} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC;
             GRANT SELECT, INSERT, UPDATE, DELETE ON firehose_channels, firehose_messages TO {role};
             GRANT SELECT ON firehose_settings TO {role};
             GRANT USAGE ON SEQUENCE firehose_channels_id_seq, firehose_messages_id_seq TO {role}"
        ))
        .await;
        let config = Config { database_url: Some(db.url().user(&role).to_secret()), ..db.config() };
        let backend = firehose_pg::connect(&config).await.unwrap();
        assert!(backend.store.append(&[keyed("a", "x", "k")], Blocked::Skip).await[0].is_ok());
        backend.store.settings().await.unwrap();
        backend.store.trim(Scope::All, Retain { messages: Some(0), ..Retain::default() }, 10).await.unwrap();
        assert!(backend.store.delete_stream(&name("a")).await.unwrap().is_some());
        assert!(firehose_pg::migrate(&config).await.is_err());
        db.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    })
    .await;
}

#[tokio::test]
async fn ids_that_are_drawn_in_advance_are_refused_at_the_start() {
    run(Shape::Fresh, |db| async move {
        db.execute("ALTER SEQUENCE firehose_messages_id_seq CACHE 20").await;
        let e = firehose_pg::connect(&db.config()).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotSupported);
        assert!(e.hint().unwrap().contains("CACHE 1"), "{e}");
    })
    .await;
}

#[tokio::test]
async fn another_encoding_is_refused_at_the_start() {
    run(Shape::Empty, |db| async move {
        let name = format!("{}_latin", db.name);
        let admin = db.client().await;
        admin.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1'")).await.unwrap();
        let latin = TestDatabase { name: name.clone(), ..db.clone() };
        let e = firehose_pg::connect(&latin.config()).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotSupported);
        assert!(e.to_string().contains("LATIN1"), "{e}");
        admin.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.unwrap();
    })
    .await;
}
