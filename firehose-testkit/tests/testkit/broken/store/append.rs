//! Faults of appending.

use std::collections::BTreeSet;

use firehose_core::{Blocked, Epoch, Error, ErrorKind, Message, NewMessage, PageLimit, Result};

use super::broken::{BrokenStore, Dropped, Fault, Handle, others};

pub(super) const ALL: PageLimit = PageLimit { rows: usize::MAX, bytes: usize::MAX };

impl BrokenStore {
    pub(super) async fn append_with_fault(&self, entries: &[NewMessage], blocked: Blocked) -> Vec<Result<Message>> {
        let mut results = match self.fault {
            Fault::EntryByEntry => self.entry_by_entry(entries, blocked).await,
            Fault::WaitGivesUp => self.inner.append(entries, Blocked::Skip).await,
            Fault::SkipBlocksAll if blocked == Blocked::Skip => self.all_or_none(entries).await,
            Fault::KeysOfTheStore | Fault::KeysOutliveStreams | Fault::KeyRace => self.by_key(entries, blocked).await,
            Fault::WaitGoesOn => self.goes_on(entries, blocked).await,
            _ => self.inner.append(entries, blocked).await,
        };
        self.remember(entries, &results);
        match self.fault {
            Fault::RefusedLast => {
                let refused = |result: &Result<Message>| {
                    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::InvalidData)
                };
                results.sort_by_key(refused);
            }
            Fault::HoleAfterRefused => self.fill_holes(entries, &results).await,
            Fault::CommitsOutOfOrder => self.overtaken(&results).await,
            Fault::ReusedEpochs if self.handle == Handle::Reopened => {
                let first = self.memory().given.values().next().map(|message| message.channel_id);
                results.iter_mut().flatten().for_each(|message| {
                    message.channel_id = first.unwrap_or(Epoch(1));
                });
            }
            _ => {}
        }
        results.into_iter().map(|result| result.map(|message| self.message_out(&message))).collect()
    }

    fn remember(&self, entries: &[NewMessage], results: &[Result<Message>]) {
        let mut memory = self.memory();
        memory.appends += 1;
        memory.last = results.iter().flatten().map(|message| message.id).collect();
        for (entry, message) in entries.iter().zip(results).filter_map(|(e, r)| Some((e, r.as_ref().ok()?))) {
            memory.given.insert(message.id, message.clone());
            if entry.key.is_some() {
                memory.keyed.insert(message.id);
            }
        }
    }

    /// As many statements as there are entries, one append after the other.
    async fn entry_by_entry(&self, entries: &[NewMessage], blocked: Blocked) -> Vec<Result<Message>> {
        let _turn = self.turn.lock().await;
        let mut results = Vec::new();
        for entry in entries {
            results.extend(self.inner.append(std::slice::from_ref(entry), blocked).await);
            others(1).await;
        }
        results
    }

    async fn all_or_none(&self, entries: &[NewMessage]) -> Vec<Result<Message>> {
        let mut own = self.testkit.database().begin();
        let mut held = false;
        for entry in entries {
            let mut lock = std::pin::pin!(own.lock_stream(entry.stream.as_str()));
            let polled = std::future::poll_fn(|context| std::task::Poll::Ready(lock.as_mut().poll(context)));
            held |= polled.await.is_pending();
        }
        own.rollback();
        if !held {
            return self.inner.append(entries, Blocked::Skip).await;
        }
        let error = || Error::new(ErrorKind::StreamBlocked, "append", "a stream is held");
        entries.iter().map(|_| Err(error())).collect()
    }

    /// Looks keys up by itself, and leaves them out of what is stored.
    async fn by_key(&self, entries: &[NewMessage], blocked: Blocked) -> Vec<Result<Message>> {
        if entries.iter().all(|entry| entry.key.is_none()) {
            return self.inner.append(entries, blocked).await;
        }
        let mut results = Vec::new();
        for entry in entries {
            let stream = (self.fault != Fault::KeysOfTheStore).then(|| entry.stream.clone());
            let key = entry.key.clone().map(|key| (stream, key));
            let known = key.as_ref().and_then(|key| self.memory().keys.get(key).copied());
            let first = known.and_then(|id| self.memory().given.get(&id).cloned());
            let retained = match known {
                Some(_) if self.is(Fault::KeysOutliveStreams) && self.memory().removed => true,
                Some(id) => self.inner.get_many(&[id]).await.is_ok_and(|found| !found.is_empty()),
                None => false,
            };
            if let Some(first) = first.filter(|_| retained) {
                results.push(Ok(first));
                continue;
            }
            if self.is(Fault::KeyRace) {
                others(2).await;
            }
            let mut plain = entry.clone();
            plain.key = None;
            let stored = self.inner.append(&[plain], blocked).await.remove(0);
            if let (Some(key), Ok(message)) = (key, &stored) {
                let mut memory = self.memory();
                memory.keys.insert(key, message.id);
                memory.given.insert(message.id, message.clone());
            }
            results.push(stored);
        }
        results
    }

    /// The server goes on with a statement whose caller went away, and does half of it.
    async fn goes_on(&self, entries: &[NewMessage], blocked: Blocked) -> Vec<Result<Message>> {
        let (inner, first) = (self.inner.clone(), entries.first().cloned());
        let guard = Dropped(Some(move || {
            if let Some(first) = first.clone() {
                let inner = inner.clone();
                tokio::spawn(async move { inner.append(&[first], Blocked::Wait).await });
            }
        }));
        let results = self.inner.append(entries, blocked).await;
        guard.not();
        results
    }

    /// An entry that was refused leaves a row behind.
    async fn fill_holes(&self, entries: &[NewMessage], results: &[Result<Message>]) {
        for (entry, result) in entries.iter().zip(results) {
            if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::InvalidData) {
                let row = NewMessage::new(entry.stream.clone(), "").unwrap();
                drop(self.inner.append(&[row], Blocked::Skip).await);
            }
        }
    }

    /// Every second append takes its time between its sequence and its commit. Only until something is removed: what a
    /// reader then sees is for other clauses.
    async fn overtaken(&self, results: &[Result<Message>]) {
        let ids: BTreeSet<_> = results.iter().flatten().map(|message| message.id).collect();
        {
            let mut memory = self.memory();
            if memory.removed || memory.appends.is_multiple_of(2) {
                return;
            }
            memory.hidden.extend(&ids);
        }
        let _shown = Dropped(Some(|| self.memory().hidden.retain(|id| !ids.contains(id))));
        others(4).await;
    }
}
