//! Publishing in the caller's transaction.

use firehose_core::{Error, ErrorKind, MessageId, NewMessage, Result, StreamName};
use firehose_migrations::SchemaName;
use sea_orm::{ConnectionTrait, DbErr, QueryResult, Statement};

use crate::error::{Cause, NOT_MIGRATED_HINT, Work};

const OPERATION: &str = "broadcast in a transaction";

/// What was stored in a transaction and is to be announced after its commit: ids only, in the order of the messages.
///
/// Who announces reads the rows back, so what was rolled back announces nothing. What nobody announces, the sweep of
/// every listening process finds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "announce it after the commit, or subscribers wait for the next sweep"]
pub struct Receipt {
    ids: Vec<MessageId>,
}

impl Receipt {
    /// The ids of the messages.
    pub fn ids(&self) -> &[MessageId] {
        &self.ids
    }

    /// Takes in what another broadcast of the transaction gave.
    pub fn merge(&mut self, other: Self) {
        self.ids.extend(other.ids);
    }
}

/// Stores a message in the transaction `txn`. It is there when the transaction commits, and never otherwise.
///
/// The stream is held until the transaction ends: others who publish on it wait, so keep it short. Who broadcasts on
/// several streams does so in one call of [`broadcast_many_in`], or in an order that everyone keeps.
///
/// The database's installation is the one on the `search_path`, or else the only one there is.
///
/// # Errors
/// [`ErrorKind::InvalidName`] and [`ErrorKind::InvalidData`] before the database is asked, and what it says; after the
/// latter the transaction can only be rolled back.
///
/// # Cancel safety
/// Dropped half way, the message may be stored in the transaction; roll it back.
pub async fn broadcast_in<S>(txn: &impl ConnectionTrait, stream: S, data: &str) -> Result<Receipt>
where
    S: TryInto<StreamName> + Send,
    Error: From<S::Error>,
{
    let message = NewMessage::new(stream, data)?;
    broadcast_many_in(txn, [message]).await
}

/// Stores several messages in the transaction `txn`, all or none. Streams are locked in the order of their names, so two
/// transactions that name them in opposite orders do not deadlock.
///
/// A message whose key its stream holds already gives the id of the one that was stored first.
///
/// # Errors
/// As [`broadcast_in`].
///
/// # Cancel safety
/// As [`broadcast_in`].
pub async fn broadcast_many_in(
    txn: &impl ConnectionTrait,
    messages: impl IntoIterator<Item = NewMessage>,
) -> Result<Receipt> {
    let messages: Vec<NewMessage> = messages.into_iter().collect();
    if messages.is_empty() {
        return Ok(Receipt::default());
    }
    let failed = |e: DbErr| Cause::from(e).explain(OPERATION, Work::Harmless);
    let schema = find_schema(txn).await?;
    // By name; those of one stream stay in their order.
    let mut order: Vec<usize> = (0..messages.len()).collect();
    order.sort_by(|&a, &b| messages[a].stream.cmp(&messages[b].stream));
    let column = |text: fn(&NewMessage) -> &str| -> Vec<String> {
        order.iter().map(|&at| text(&messages[at]).to_owned()).collect()
    };
    let streams = column(|m| m.stream.as_str());
    let data = column(|m| &m.data);
    let keys = column(|m| m.key.as_ref().map_or("", |key| key.as_str()));
    // No key is empty, and the ORM's arrays hold no null.
    let sql = format!(
        "SELECT r.ord, stored.id FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS r(stream, data, key, ord) \
         CROSS JOIN LATERAL {}.firehose_append(r.stream, r.data, nullif(r.key, '')) AS stored",
        schema.quoted()
    );
    let values = [streams.into(), data.into(), keys.into()];
    let statement = Statement::from_sql_and_values(txn.get_database_backend(), sql, values);
    let mut ids = vec![MessageId(0); messages.len()];
    for row in txn.query_all_raw(statement).await.map_err(failed)? {
        let (ord, id) = read_row(&row).map_err(failed)?;
        if let Some(&at) = usize::try_from(ord - 1).ok().and_then(|ord| order.get(ord)) {
            ids[at] = id;
        }
    }
    Ok(Receipt { ids })
}

fn read_row(row: &QueryResult) -> Result<(i64, MessageId), DbErr> {
    Ok((row.try_get_by_index(0)?, MessageId(row.try_get_by_index(1)?)))
}

/// The schema whose function a caller would mean: the one that is visible, or the only one.
const INSTALLATIONS: &str = "SELECT n.nspname::text, pg_catalog.pg_function_is_visible(p.oid) \
     FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace \
     WHERE p.proname = 'firehose_append' ORDER BY 2 DESC LIMIT 2";

async fn find_schema(txn: &impl ConnectionTrait) -> Result<SchemaName> {
    let failed = |e: DbErr| Cause::from(e).explain(OPERATION, Work::Harmless);
    let statement = Statement::from_string(txn.get_database_backend(), INSTALLATIONS);
    let rows = txn.query_all_raw(statement).await.map_err(failed)?;
    let read = |row: &QueryResult| Ok((row.try_get_by_index(0)?, row.try_get_by_index(1)?));
    let found: Vec<(String, bool)> = rows.iter().map(read).collect::<Result<_, DbErr>>().map_err(failed)?;
    match found.as_slice() {
        [] => Err(Error::new(ErrorKind::NotMigrated, OPERATION, "the database has no function firehose_append")
            .with_hint(NOT_MIGRATED_HINT)),
        [(name, _)] | [(name, true), _] => Ok(SchemaName::new(name)),
        _ => Err(Error::new(
            ErrorKind::Config,
            OPERATION,
            "several schemas hold Firehose, and none is on the search_path",
        )
        .with_hint("put the schema that is meant on the search_path of this connection")),
    }
}
