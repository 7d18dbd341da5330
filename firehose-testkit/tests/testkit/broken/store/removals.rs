//! Faults of trimming and deleting.

use std::time::Duration;

use firehose_core::{Cursor, Epoch, HeadDetail, Position, Result, Retain, Scope, StreamName, Trimmed};

use super::append::ALL;
use super::broken::{BrokenStore, Dropped, Fault, others};

impl BrokenStore {
    pub(super) async fn trim_with_fault(&self, scope: Scope, mut retain: Retain, budget: u64) -> Result<Trimmed> {
        self.memory().removed |= self.is(Fault::CommitsOutOfOrder);
        match self.fault {
            Fault::NoLeastAge => retain.min_age = Duration::ZERO,
            Fault::AllTogether if scope == Scope::All => return self.all_together(retain, budget).await,
            Fault::TrimLocks => {
                let mut own = self.testkit.database().begin();
                for stream in self.testkit.database().streams() {
                    own.lock_stream(stream.as_str()).await?;
                }
            }
            Fault::TrimCountsTwice => {
                let before = self.last(&scope).await?;
                others(3).await;
                let came = self.last(&scope).await?.saturating_sub(before).unsigned_abs();
                retain.messages = retain.messages.map(|kept| kept.saturating_sub(came));
            }
            Fault::NewestGoFirst => return self.newest_first(scope, retain, budget).await,
            Fault::TrimLockStays => {
                if self.memory().stuck {
                    return Ok(Trimmed { messages: 0, more: true });
                }
                let guard = Dropped(Some(|| self.memory().stuck = true));
                others(1).await;
                guard.not();
            }
            _ => {}
        }
        let mut trimmed = self.inner.trim(scope, retain, budget).await?;
        trimmed.more |= self.is(Fault::MoreAtTheBudget) && trimmed.messages == budget;
        self.emptied();
        Ok(trimmed)
    }

    pub(super) async fn delete_with_fault(&self, stream: &StreamName) -> Result<Option<Epoch>> {
        let nothing = Retain { messages: Some(0), ..Retain::default() };
        if self.is(Fault::HalfDeleted) {
            // Two statements, and no transaction around them.
            self.inner.trim(Scope::Stream(stream.clone()), nothing, 1).await?;
            others(1).await;
        }
        let epoch = self.inner.delete_stream(stream).await?;
        if self.is(Fault::TornDeletion) {
            others(3).await;
            self.inner.trim(Scope::Stream(stream.clone()), nothing, 1_000).await?;
        }
        self.memory().removed = true;
        self.emptied();
        Ok(epoch)
    }

    /// A store whose next id is the highest there is, and one more.
    fn emptied(&self) {
        let database = self.testkit.database();
        if self.is(Fault::ReusedIds) && database.streams().iter().all(|s| database.messages(s.as_str()).is_empty()) {
            let mut memory = self.memory();
            memory.offset = memory.given.keys().next_back().map_or(0, |id| id.0);
        }
    }

    async fn last(&self, scope: &Scope) -> Result<i64> {
        let Scope::Stream(stream) = scope else { return Ok(0) };
        let heads = self.inner.heads(std::slice::from_ref(stream), HeadDetail::Cheap).await?;
        Ok(heads[0].map_or(0, |head| head.sequence.0))
    }

    /// Keeps the newest of all streams together.
    async fn all_together(&self, retain: Retain, budget: u64) -> Result<Trimmed> {
        let Some(kept) = retain.messages else { return self.inner.trim(Scope::All, retain, budget).await };
        let database = self.testkit.database();
        let total: u64 = database.streams().iter().map(|s| database.messages(s.as_str()).len() as u64).sum();
        let mut trimmed = Trimmed::default();
        for stream in database.streams() {
            let own = database.messages(stream.as_str()).len() as u64;
            let surplus = total.saturating_sub(kept + trimmed.messages).min(own);
            let retain = Retain { messages: Some(own - surplus), ..retain };
            let part = self.inner.trim(Scope::Stream(stream), retain, budget - trimmed.messages).await?;
            trimmed.messages += part.messages;
            trimmed.more |= part.more;
        }
        Ok(trimmed)
    }

    /// Removes message by message, from the newest that is to go.
    async fn newest_first(&self, scope: Scope, retain: Retain, budget: u64) -> Result<Trimmed> {
        if let (Scope::Stream(stream), Some(kept)) = (&scope, retain.messages) {
            let requests = [(stream.clone(), Position::Cursor(Cursor::BEGINNING))];
            let there = self.inner.read_after(&requests, ALL).await?.remove(0).messages;
            let surplus = there.len().saturating_sub(usize::try_from(kept).unwrap_or(usize::MAX));
            let going = &there[..surplus.min(usize::try_from(budget).unwrap_or(usize::MAX))];
            let _gone = Dropped(Some(|| self.memory().hidden.clear()));
            for message in going.iter().rev() {
                self.memory().hidden.insert(message.id);
                others(1).await;
            }
            return self.inner.trim(scope.clone(), retain, budget).await;
        }
        self.inner.trim(scope, retain, budget).await
    }
}
