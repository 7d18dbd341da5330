//! Beside processes of the gem: what they announce and how, what they clean up, and what they must be able to read.

use std::time::Duration;

use firehose_core::{Config, Delivery, Firehose, GapReason, Start};
use futures_util::future::{join_all, poll_fn};
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::engine::{engine, next, quick};
use crate::gem::{broadcast, clean_up};
use crate::harness::{TestDatabase, both_shapes, within};
use crate::phantom::announce;

/// The gem's payload of a stored message, in the form that it chooses by its size; none of them has an `at`.
async fn payload(client: &Client, stream: &str, sequence: i64) -> String {
    let sql =
        "SELECT m.id, m.channel_id, m.data FROM firehose_messages m JOIN firehose_channels c ON c.id = m.channel_id
               WHERE c.name = $1 AND m.sequence::bigint = $2";
    let row = client.query_one(sql, &[&stream, &sequence]).await.unwrap();
    let (id, channel_id, data): (i64, i64, String) = (row.get(0), row.get(1), row.get(2));
    let data = serde_json::to_string(&data).unwrap();
    // As its encoder does.
    let data = data.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let whole =
        format!(r#"{{"id":{id},"channel_id":{channel_id},"sequence":{sequence},"stream":"{stream}","data":{data}}}"#);
    if whole.len() <= 7_999 {
        return whole;
    }
    format!(r#"{{"id":{id},"channel_id":{channel_id},"sequence":{sequence},"stream":"{stream}"}}"#)
}

/// A process of the gem: it stores over one connection, and announces over another.
struct Gem {
    stores: Client,
    announces: Client,
}

impl Gem {
    async fn start(db: &TestDatabase) -> Self {
        Self { stores: db.client().await, announces: db.client().await }
    }

    async fn announce(&self, stream: &str, sequence: i64) {
        announce(&self.announces, stream, &payload(&self.stores, stream, sequence).await).await;
    }
}

both_shapes! {
    async fn what_a_gem_announces_in_its_ways_arrives_in_order_and_once(db) {
        // No sweep helps: what is heard is enough, but for what nobody announces.
        let config = Config { sweep_interval: Duration::from_secs(3_600), ..quick(&db) };
        let backend = firehose_pg::connect(&config).await.unwrap();
        let firehose = Firehose::builder(backend).config(config).start().await.unwrap();
        let mut live = firehose.subscribe("a").await.unwrap();
        let mut gem = Gem::start(&db).await;
        let long = "<&> ü\n".repeat(2_000);
        let all = ["one", "", "<b>three</b> & more", "four", &long, "six", "seven", &long, "nine", "ten"];

        // As they are stored; out of order; doubled; without data, where that is too long.
        for (orders, stored) in [(vec![1], 1), (vec![4, 3, 2], 3), (vec![5, 5], 1), (vec![7, 6, 7, 6], 2), (vec![9, 8, 9], 2)] {
            let first = *orders.iter().min().unwrap();
            for n in first..first + stored {
                assert_eq!(broadcast(&mut gem.stores, "a", all[usize::try_from(n - 1).unwrap()]).await, n);
            }
            for n in orders {
                gem.announce("a", n).await;
            }
            for n in first..first + stored {
                assert_eq!(next(&mut live).await, (n, all[usize::try_from(n - 1).unwrap()].to_owned()));
            }
        }
        // Ours in between, and an old one announced once more.
        assert_eq!(firehose.broadcast("a", "ten").await.unwrap().sequence.0, 10);
        gem.announce("a", 4).await;
        assert_eq!(next(&mut live).await, (10, "ten".to_owned()));
        let heard = firehose.metrics_snapshot();
        assert_eq!((heard.gaps_reported, heard.resets_reported, heard.payloads_ignored), (0, 0, 0));
    }

    async fn what_a_gem_announces_before_its_commit_arrives_once_and_its_successors_after_it(db) {
        let firehose = engine(&db).await;
        let mut live = firehose.subscribe("a").await.unwrap();
        let mut gem = Gem::start(&db).await;
        broadcast(&mut gem.stores, "a", "1").await;
        gem.announce("a", 1).await;
        assert_eq!(next(&mut live).await, (1, "1".to_owned()));
        // Its broadcast joins the transaction that its caller has open, and its announcement does not.
        for (n, whole) in [(2, true), (3, false)] {
            let txn = gem.stores.transaction().await.unwrap();
            let id: i64 = txn.query_one("SELECT id FROM firehose_channels WHERE name = 'a' FOR UPDATE", &[]).await.unwrap().get(0);
            txn.execute("UPDATE firehose_channels SET sequence = sequence + 1 WHERE id = $1", &[&id]).await.unwrap();
            let insert = "INSERT INTO firehose_messages (channel_id, sequence, data, created_at)
                          SELECT id, sequence, $2, now() FROM firehose_channels WHERE id = $1 RETURNING id";
            let data = n.to_string();
            let message: i64 = txn.query_one(insert, &[&id, &data]).await.unwrap().get(0);
            let inline = if whole { format!(r#","data":"{data}""#) } else { String::new() };
            let early = format!(r#"{{"id":{message},"channel_id":{id},"sequence":{n},"stream":"a"{inline}}}"#);
            announce(&gem.announces, "a", &early).await;
            if whole {
                // Who announces the whole message is believed.
                assert_eq!(next(&mut live).await, (n, data.clone()));
            }
            txn.commit().await.unwrap();
            if !whole {
                assert_eq!(next(&mut live).await, (n, data));
            }
        }
        broadcast(&mut gem.stores, "a", "4").await;
        gem.announce("a", 4).await;
        assert_eq!(next(&mut live).await, (4, "4".to_owned()));
        // And what it never announces comes by the sweep.
        broadcast(&mut gem.stores, "a", "5").await;
        assert_eq!(next(&mut live).await, (5, "5".to_owned()));
        let heard = firehose.metrics_snapshot();
        assert_eq!((heard.gaps_reported, heard.resets_reported), (0, 0));
    }

    async fn a_gems_clean_up_under_our_broadcasts_costs_nobody_more_than_it_removes(db) {
        const MESSAGES: i64 = 400;
        let firehose = engine(&db).await;
        let mut live = firehose.subscribe("a").await.unwrap();
        let publish = async {
            for n in 1..=MESSAGES {
                firehose.broadcast("a", n.to_string()).await.unwrap();
            }
        };
        // It spares nothing for being young: what it removed before anyone read it is said, to the message.
        let hear = async {
            let mut due = 1;
            while due <= MESSAGES {
                match within(10, live.next()).await {
                    Some(Delivery::Message(message)) => {
                        assert_eq!((message.sequence.0, &*message.data), (due, &*due.to_string()));
                        due += 1;
                    }
                    Some(Delivery::Gap(gap)) => {
                        assert_eq!((gap.from.0, gap.exact, gap.reason), (due, true, GapReason::Trimmed));
                        assert!(gap.to >= gap.from && gap.to.0 <= MESSAGES - 10, "{gap:?}");
                        due = gap.to.0 + 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        };
        let client = db.client().await;
        let clean = async {
            loop {
                clean_up(&client, "a", 10).await;
            }
        };
        within(50, async {
            tokio::select! {
                _ = async { tokio::join!(publish, hear) } => {}
                () = clean => {}
            }
        })
        .await;
        // Who comes later is told exactly what is gone, and gets the rest.
        clean_up(&client, "a", 10).await;
        let mut late = firehose.subscribe_from("a", Start::Earliest).await.unwrap();
        assert_eq!(next(&mut late).await.0, MESSAGES - 9);
        let cursor = firehose_core::Cursor::at(Some(late.start().epoch.unwrap()), firehose_core::Sequence(100));
        let mut behind = firehose.subscribe_from("a", Start::After(cursor)).await.unwrap();
        match within(10, behind.next()).await {
            Some(Delivery::Gap(gap)) => {
                let said = (gap.from.0, gap.to.0, gap.exact, gap.reason);
                assert_eq!(said, (101, MESSAGES - 10, true, GapReason::Trimmed));
            }
            other => panic!("{other:?}"),
        }
        for n in MESSAGES - 9..=MESSAGES {
            assert_eq!(next(&mut behind).await, (n, n.to_string()));
        }
    }

    async fn a_gems_listener_hears_each_broadcast_in_the_form_that_it_reads(db) {
        // Its channel of the stream `dashboard`, which it works out by itself.
        let channel = "9421a82839a107e5529bb1cd982b896623908ff26e3f6256bb1a0d7c76b86b7";
        let options: tokio_postgres::Config = db.url().to_secret().expose().parse().unwrap();
        let (client, mut connection) = options.connect(NoTls).await.unwrap();
        let (heard, mut payloads) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(notification) = message {
                    heard.send((notification.channel().to_owned(), notification.payload().to_owned())).unwrap_or_default();
                }
            }
        });
        client.batch_execute(&format!("LISTEN \"{channel}\"")).await.unwrap();
        let firehose = engine(&db).await;

        // One notification a message, though they wait for each other: nothing is merged.
        let burst = (0..100).map(|n| firehose.broadcast("dashboard", format!("refresh {n}")));
        let messages: Vec<_> = join_all(burst).await.into_iter().map(Result::unwrap).collect();
        let long = "\"\u{1}\\".repeat(2_000);
        let big = firehose.broadcast("dashboard", long.as_str()).await.unwrap();
        let mut of_burst = Vec::new();
        for _ in 0..100 {
            of_burst.push(within(10, payloads.recv()).await.unwrap());
        }
        for message in &messages {
            let (id, epoch, sequence, data) = (message.id.0, message.channel_id.0, message.sequence.0, &message.data);
            let begins = format!(r#"{{"id":{id},"channel_id":{epoch},"sequence":{sequence},"stream":"dashboard","data":"{data}""#);
            let own: Vec<_> = of_burst.iter().filter(|(_, payload)| payload.starts_with(&begins)).collect();
            assert_eq!(own.len(), 1, "{begins}");
            assert_eq!(own[0].0, channel);
        }
        // Too long to come along: there is no key `data` then, by which it tells the forms apart, and reads the row.
        let (_, payload) = within(10, payloads.recv()).await.unwrap();
        let light: serde_json::Value = serde_json::from_str(&payload).unwrap();
        assert!(payload.starts_with(&format!(r#"{{"id":{},"channel_id":"#, big.id)) && light.get("data").is_none(), "{payload}");
        let read = "SELECT data, created_at IS NOT NULL FROM firehose_messages WHERE id = $1";
        let row = client.query_one(read, &[&big.id.0]).await.unwrap();
        assert_eq!((row.get::<_, String>(0), row.get::<_, bool>(1)), (long, true));
        db.execute("SELECT firehose_broadcast('dashboard', 'from SQL')").await;
        let (_, payload) = within(10, payloads.recv()).await.unwrap();
        assert!(payload.contains(r#""sequence":102,"stream":"dashboard","data":"from SQL""#), "{payload}");
        let counted = "SELECT messages_count::bigint FROM firehose_channels WHERE name = 'dashboard'";
        assert_eq!(db.number(counted).await, 102);
    }
}
