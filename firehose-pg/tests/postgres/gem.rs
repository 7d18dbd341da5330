//! Beside the gem, on one database: its exact statements and ours.

use firehose_core::{Blocked, Cursor, HeadDetail, PageLimit, Position, Sequence};
use tokio_postgres::Client;

use crate::append::{name, new};
use crate::harness::{both_shapes, within};

/// One broadcast of the gem's: its statements, in its transactions. Gives the sequence.
pub(crate) async fn broadcast(client: &mut Client, stream: &str, data: &str) -> i64 {
    client.batch_execute("SET TIME ZONE 'UTC'").await.unwrap();
    let find = "SELECT id FROM firehose_channels WHERE name = $1 LIMIT 1";
    let id: i64 = match client.query_opt(find, &[&stream]).await.unwrap() {
        Some(row) => row.get(0),
        None => {
            let create =
                "INSERT INTO firehose_channels (name, created_at, updated_at) VALUES ($1, now(), now()) RETURNING id";
            match client.query_one(create, &[&stream]).await {
                Ok(row) => row.get(0),
                // Its find_or_create: someone else was faster.
                Err(_) => client.query_one(find, &[&stream]).await.unwrap().get(0),
            }
        }
    };
    let txn = client.transaction().await.unwrap();
    txn.query_one("SELECT * FROM firehose_channels WHERE id = $1 LIMIT 1 FOR UPDATE", &[&id]).await.unwrap();
    txn.execute("UPDATE firehose_channels SET sequence = COALESCE(sequence, 0) + 1 WHERE id = $1", &[&id])
        .await
        .unwrap();
    let insert = "INSERT INTO firehose_messages (channel_id, sequence, data, created_at)
                  SELECT id, sequence, $2, now() FROM firehose_channels WHERE id = $1 RETURNING sequence::bigint";
    let sequence = txn.query_one(insert, &[&id, &data]).await.unwrap().get(0);
    let count = "UPDATE firehose_channels SET messages_count = COALESCE(messages_count, 0) + 1 WHERE id = $1";
    txn.execute(count, &[&id]).await.unwrap();
    txn.commit().await.unwrap();
    sequence
}

/// The gem's clean-up job.
pub(crate) async fn clean_up(client: &Client, stream: &str, threshold: i64) {
    let Some(row) = client.query_opt("SELECT id FROM firehose_channels WHERE name = $1", &[&stream]).await.unwrap()
    else {
        return;
    };
    let id: i64 = row.get(0);
    let last = "SELECT id FROM firehose_messages WHERE channel_id = $1 ORDER BY sequence DESC LIMIT 1 OFFSET $2";
    let Some(last) = client.query_opt(last, &[&id, &threshold]).await.unwrap() else { return };
    let last: i64 = last.get(0);
    client.execute("DELETE FROM firehose_messages WHERE channel_id = $1 AND id <= $2", &[&id, &last]).await.unwrap();
    let count = "SELECT COUNT(*) FROM firehose_messages WHERE channel_id = $1";
    let left: i64 = client.query_one(count, &[&id]).await.unwrap().get(0);
    let update = "UPDATE firehose_channels SET messages_count = $2::bigint WHERE id = $1";
    client.execute(update, &[&id, &left]).await.unwrap();
    if left == 0 {
        client.execute("DELETE FROM firehose_channels WHERE id = $1", &[&id]).await.unwrap();
    }
}

both_shapes! {
    async fn both_publish_on_one_stream_without_a_hole(db) {
        let store = db.backend().await.store;
        let gem = async {
            let mut client = db.client().await;
            for n in 0..100 {
                broadcast(&mut client, "shared", &format!("gem {n}")).await;
            }
        };
        let ours = async {
            for n in 0..100 {
                let entries = [new("shared", &format!("ours {n}")), new("own", "x")];
                assert!(store.append(&entries, Blocked::Wait).await.iter().all(Result::is_ok));
            }
        };
        within(30, async { tokio::join!(gem, ours) }).await;
        let request = [(name("shared"), Position::Cursor(Cursor::BEGINNING))];
        let page = store.read_after(&request, PageLimit { rows: 500, bytes: 1 << 20 }).await.unwrap().remove(0);
        assert_eq!(page.messages.iter().map(|m| m.sequence.0).collect::<Vec<_>>(), (1..=200).collect::<Vec<_>>());
        assert!(page.messages.windows(2).all(|pair| pair[0].id < pair[1].id));
        assert_eq!(db.number("SELECT messages_count::bigint FROM firehose_channels WHERE name = 'shared'").await, 200);
    }

    async fn the_gems_clean_up_is_a_trim_to_us(db) {
        let (store, client) = (db.backend().await.store, db.client().await);
        let entries: Vec<_> = (0..10).map(|n| new("a", &n.to_string())).collect();
        let first = store.append(&entries, Blocked::Skip).await.remove(0).unwrap();
        clean_up(&client, "a", 4).await;
        clean_up(&client, "a", 4).await;
        clean_up(&client, "nobody", 4).await;
        let head = store.heads(&[name("a")], HeadDetail::Full).await.unwrap()[0].unwrap();
        assert_eq!((head.sequence, head.oldest.map(|(s, _)| s)), (Sequence(10), Some(Sequence(7))));
        let request = [(name("a"), Position::Cursor(first.cursor()))];
        let page = store.read_after(&request, PageLimit { rows: 9, bytes: 99 }).await.unwrap().remove(0);
        assert_eq!(page.messages.iter().map(|m| m.sequence.0).collect::<Vec<_>>(), [7, 8, 9, 10]);

        // With threshold 0 it destroys the channel's row: the stream begins anew, in another epoch.
        clean_up(&client, "a", 0).await;
        assert_eq!(store.heads(&[name("a")], HeadDetail::Cheap).await.unwrap(), [None]);
        let again = store.append(&[new("a", "x")], Blocked::Skip).await.remove(0).unwrap();
        assert_eq!(again.sequence, Sequence(1));
        assert_ne!(again.channel_id, first.channel_id);
    }

    async fn the_gems_own_inserts_go_on_working(db) {
        let mut client = db.client().await;
        let store = db.backend().await.store;
        assert!(store.append(&[new("a", "ours")], Blocked::Skip).await[0].is_ok());
        assert_eq!(broadcast(&mut client, "a", "the gem's").await, 2);
        assert_eq!(broadcast(&mut client, "theirs", "the gem's").await, 1);
        let results = store.append(&[new("theirs", "ours")], Blocked::Skip).await;
        assert_eq!(results[0].as_ref().unwrap().sequence, Sequence(2));
        let times = "SELECT count(*) FROM firehose_messages WHERE abs(extract(epoch FROM created_at - (now() AT TIME ZONE 'utc'))) > 60";
        assert_eq!(db.number(times).await, 0);
    }
}
