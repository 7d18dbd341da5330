//! Publishing in the caller's transaction.

use firehose_core::Receipt;
use firehose_core::{Blocked, Error, ErrorKind, NewMessage, Sequence};
use firehose_pg::{broadcast_in, broadcast_many_in};
use sea_orm::{ConnectionTrait, TransactionTrait};

use crate::append::{keyed, new};
use crate::harness::{Shape, both_shapes, run, within};

both_shapes! {
    async fn a_message_is_there_with_the_commit_and_never_otherwise(db) {
        let (orm, store) = (db.orm().await, db.backend().await.store);
        let txn = orm.begin().await.unwrap();
        let mut receipt = broadcast_in(&txn, "a", "1").await.unwrap();
        receipt.merge(broadcast_in(&txn, "b", "1").await.unwrap());
        assert!(store.get_many(receipt.ids()).await.unwrap().is_empty());
        txn.commit().await.unwrap();
        assert_eq!(store.get_many(receipt.ids()).await.unwrap().len(), 2);

        let txn = orm.begin().await.unwrap();
        let lost = broadcast_in(&txn, "a", "lost").await.unwrap();
        txn.rollback().await.unwrap();
        assert!(store.get_many(lost.ids()).await.unwrap().is_empty());

        // c61: a savepoint that was rolled back
        let txn = orm.begin().await.unwrap();
        let savepoint = txn.begin().await.unwrap();
        let lost = broadcast_in(&savepoint, "a", "lost").await.unwrap();
        savepoint.rollback().await.unwrap();
        let kept = broadcast_in(&txn, "a", "2").await.unwrap();
        txn.commit().await.unwrap();
        assert!(store.get_many(lost.ids()).await.unwrap().is_empty());
        assert_eq!(store.get_many(kept.ids()).await.unwrap()[0].sequence, Sequence(2), "no hole");
    }

    async fn several_are_told_in_the_callers_order(db) {
        let (orm, store) = (db.orm().await, db.backend().await.store);
        let first = store.append(&[keyed("z", "first", "k")], Blocked::Skip).await.remove(0).unwrap();
        let txn = orm.begin().await.unwrap();
        let messages = [new("z", "1"), new("a", "1"), keyed("z", "again", "k"), new("z", "2"), new("a", "2"), keyed("a", "", "k")];
        let receipt = broadcast_many_in(&txn, messages.clone()).await.unwrap();
        assert_eq!(broadcast_many_in(&txn, Vec::new()).await.unwrap(), Receipt::default());
        txn.commit().await.unwrap();
        assert_eq!(receipt.ids()[2], first.id);
        for (at, sequence) in [(0, 2), (1, 1), (3, 3), (4, 2), (5, 3)] {
            let found = store.get_many(&receipt.ids()[at..=at]).await.unwrap();
            assert_eq!((found[0].sequence.0, &found[0].data), (sequence, &messages[at].data), "{at}");
        }
    }

    async fn c52_opposite_orders_do_not_deadlock(db) {
        const ROUNDS: usize = 150;
        let mut running = tokio::task::JoinSet::new();
        for pair in [["A", "B"], ["B", "A"], ["A", "B"]] {
            let orm = db.orm().await;
            running.spawn(async move {
                for _ in 0..ROUNDS {
                    let txn = orm.begin().await.unwrap();
                    let messages: Vec<NewMessage> = pair.map(|stream| new(stream, "x")).into();
                    assert_eq!(broadcast_many_in(&txn, messages).await.unwrap().ids().len(), 2);
                    txn.commit().await.unwrap();
                }
            });
        }
        while let Some(done) = within(30, running.join_next()).await {
            done.unwrap();
        }
        assert_eq!(db.number("SELECT min(sequence)::bigint FROM firehose_channels").await, 3 * ROUNDS as i64);
    }
}

#[tokio::test]
async fn bad_messages_are_refused_before_the_database_is_asked() {
    run(Shape::Fresh, |db| async move {
        let orm = db.orm().await;
        let txn = orm.begin().await.unwrap();
        let kind = |result: Result<Receipt, Error>| result.unwrap_err().kind();
        assert_eq!(kind(broadcast_in(&txn, "", "x").await), ErrorKind::InvalidName);
        assert_eq!(kind(broadcast_in(&txn, "a", "x\0y").await), ErrorKind::InvalidData);
        let stored = broadcast_in(&txn, "a", "the transaction is still good").await.unwrap();
        txn.commit().await.unwrap();
        assert_eq!(db.backend().await.store.get_many(stored.ids()).await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn the_installation_is_found_by_the_search_path_or_by_being_the_only_one() {
    run(Shape::Empty, |db| async move {
        let orm = db.orm().await;
        assert_eq!(broadcast_in(&orm, "a", "x").await.unwrap_err().kind(), ErrorKind::NotMigrated);
        firehose_migrations::up(&orm, Some(&firehose_migrations::SchemaName::new("one"))).await.unwrap();
        let only = broadcast_in(&orm, "a", "x").await.unwrap();
        assert_eq!(db.number("SELECT max(id) FROM one.firehose_messages").await, only.ids()[0].0);
        firehose_migrations::up(&orm, Some(&firehose_migrations::SchemaName::new("two"))).await.unwrap();
        assert_eq!(broadcast_in(&orm, "a", "x").await.unwrap_err().kind(), ErrorKind::Config);
        let txn = orm.begin().await.unwrap();
        txn.execute_unprepared("SET LOCAL search_path = two").await.unwrap();
        let visible = broadcast_in(&txn, "b", "x").await.unwrap();
        txn.commit().await.unwrap();
        assert_eq!(db.number("SELECT max(id) FROM two.firehose_messages").await, visible.ids()[0].0);
    })
    .await;
}
