//! The append of a store: a transaction of its own that begins and ends here.

use std::collections::BTreeMap;

use firehose_core::{Blocked, Error, ErrorKind, Message, NewMessage, Result, StreamName};

use super::Database;

/// The entries of one stream, by their place in the call.
type Places = Vec<usize>;

impl Database {
    /// Stores what can be stored at once, then waits for the other streams one by one where it should, each in a
    /// transaction of its own: so it never holds one stream while it waits for another.
    pub(crate) async fn append(&self, entries: &[NewMessage], blocked: Blocked) -> Vec<Result<Message>> {
        let mut results: Vec<Option<Result<Message>>> = entries.iter().map(|_| None).collect();
        for (stream, places) in self.append_free(entries, &mut results) {
            match blocked {
                Blocked::Skip => places.iter().for_each(|&place| results[place] = Some(Err(held(&stream)))),
                Blocked::Wait => {
                    let stored = self.append_waiting(&stream, places.iter().map(|&place| &entries[place])).await;
                    places.iter().zip(stored).for_each(|(&place, result)| results[place] = Some(result));
                }
            }
        }
        // Every place was free, or is one of a stream that was not.
        results.into_iter().map(|result| result.unwrap_or_else(|| Err(unanswered()))).collect()
    }

    /// Stores the entries whose stream nobody else holds, and gives the places of the others.
    fn append_free(
        &self,
        entries: &[NewMessage],
        results: &mut [Option<Result<Message>>],
    ) -> BTreeMap<StreamName, Places> {
        let mut held = BTreeMap::<StreamName, Places>::new();
        let mut transaction = self.begin();
        let mut state = self.state();
        for (place, entry) in entries.iter().enumerate() {
            if transaction.try_lock(&mut state, &entry.stream) {
                results[place] = Some(transaction.append_in(&mut state, entry));
            } else {
                held.entry(entry.stream.clone()).or_default().push(place);
            }
        }
        // A restore cannot come between: it needs the lock that is held here.
        let committed = transaction.commit_in(&mut state);
        drop(state);
        drop(transaction);
        if let Err(error) = committed {
            results.iter_mut().flatten().for_each(|result| *result = Err(error.replicate()));
        }
        held
    }

    async fn append_waiting(
        &self,
        stream: &StreamName,
        entries: impl Iterator<Item = &NewMessage>,
    ) -> Vec<Result<Message>> {
        let mut transaction = self.begin();
        if let Err(error) = transaction.lock(stream).await {
            return entries.map(|_| Err(error.replicate())).collect();
        }
        let results: Vec<_> = entries.map(|entry| transaction.append_locked(entry)).collect();
        match transaction.commit() {
            Ok(()) => results,
            Err(error) => results.iter().map(|_| Err(error.replicate())).collect(),
        }
    }
}

fn held(stream: &StreamName) -> Error {
    Error::new(ErrorKind::StreamBlocked, "append", format!("another transaction holds {:?}", stream.as_str()))
}

fn unanswered() -> Error {
    Error::new(ErrorKind::Backend, "append", "no answer for this entry")
}
