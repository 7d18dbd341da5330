//! Writers that announce what they then do not commit.

use std::time::Duration;

use firehose_core::{Config, Delivery, Firehose, Naming, ResetReason, Sequence, StreamName, Subscription};
use tokio_postgres::Client;

use crate::engine::{next, quick};
use crate::harness::{both_shapes, within};

/// Sends a payload on a stream's channel, as any writer can.
pub(crate) async fn announce(client: &Client, stream: &str, payload: &str) {
    let channel = Naming::default().stream(&StreamName::new(stream).unwrap());
    client.execute("SELECT pg_notify($1, $2)", &[&channel.as_str(), &payload]).await.unwrap();
}

/// A writer that announces a message of its transaction, and rolls back: (id, epoch).
async fn phantom(writer: &mut Client, other: &Client, stream: &str, data: Option<&str>) -> (i64, i64) {
    let txn = writer.transaction().await.unwrap();
    let sql = "SELECT id, channel_id, sequence FROM firehose_append($1, 'a lie')";
    let row = txn.query_one(sql, &[&stream]).await.unwrap();
    let (id, epoch, sequence): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    let data = data.map_or(String::new(), |data| format!(r#","data":"{data}""#));
    let payload = format!(r#"{{"id":{id},"channel_id":{epoch},"sequence":{sequence},"stream":"{stream}"{data}}}"#);
    announce(other, stream, &payload).await;
    txn.rollback().await.unwrap();
    (id, epoch)
}

async fn reset(live: &mut Subscription) -> (ResetReason, i64, Sequence) {
    match within(10, live.next()).await {
        Some(Delivery::Reset(reset)) => (reset.reason, reset.epoch.0, reset.head),
        other => panic!("{other:?}"),
    }
}

both_shapes! {
    async fn c59_the_message_in_a_phantoms_place_comes_after_a_reset_and_later_ones_in_order(db) {
        // No sweep and no luck: what is repaired is repaired by what is heard.
        let config = Config { sweep_interval: Duration::from_secs(3_600), ..quick(&db) };
        let backend = firehose_pg::connect(&config).await.unwrap();
        let firehose = Firehose::builder(backend).config(config).start().await.unwrap();
        let (mut writer, other) = (db.client().await, db.client().await);
        let mut live = firehose.subscribe("a").await.unwrap();
        for n in 1..=3 {
            firehose.broadcast("a", n.to_string()).await.unwrap();
            assert_eq!(next(&mut live).await, (n, n.to_string()));
        }
        let (lie, epoch) = phantom(&mut writer, &other, "a", Some("a lie")).await;
        assert_eq!(next(&mut live).await, (4, "a lie".to_owned()), "nobody can know");
        let real = firehose.broadcast("a", "4").await.unwrap();
        assert!(real.sequence == Sequence(4) && real.id.0 > lie);
        let (reason, of, _) = reset(&mut live).await;
        assert_eq!((reason, of), (ResetReason::Replaced, epoch));
        assert_eq!(next(&mut live).await, (4, "4".to_owned()));
        for n in 5..=8 {
            firehose.broadcast("a", n.to_string()).await.unwrap();
            assert_eq!(next(&mut live).await, (n, n.to_string()));
        }
        // One without its data is looked for, not found, and never told.
        phantom(&mut writer, &other, "a", None).await;
        for n in 9..=10 {
            firehose.broadcast("a", n.to_string()).await.unwrap();
            assert_eq!(next(&mut live).await, (n, n.to_string()));
        }
        assert_eq!(firehose.metrics_snapshot().resets_reported, 1);
        assert_eq!(firehose.metrics_snapshot().gaps_reported, 0);
    }
}
