//! Heads for who subscribes: all that is asked for while one read is under way is the next read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::backend::{Head, HeadDetail};
use crate::engine::Engine;
use crate::error::{Error, Result, Step};
use crate::stream::StreamName;

/// How many heads one read asks for.
const MOST: usize = 10_000;

type Reply = oneshot::Sender<Result<Option<Head>>>;

#[derive(Debug, Default)]
struct Waiting {
    asked: Vec<(StreamName, Reply)>,
    closed: bool,
}

/// The heads that are asked for.
#[derive(Debug, Default)]
pub(crate) struct HeadReads {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

impl HeadReads {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is read any more; who waits is told.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting();
        waiting.closed = true;
        waiting.asked.clear();
    }

    /// The head of `stream`, as it is after this call began.
    pub(crate) async fn head(&self, stream: &StreamName) -> Result<Option<Head>> {
        let (reply, head) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            if waiting.closed {
                return Err(Error::shut_down("head"));
            }
            waiting.asked.push((stream.clone(), reply));
        }
        self.arrived.notify_one();
        head.await.unwrap_or_else(|_| Err(Error::shut_down("head")))
    }

    /// The task: one read at a time.
    pub(crate) async fn run(engine: Arc<Engine>) {
        let this = &engine.heads;
        loop {
            let mut waiting = {
                let asked = &mut this.waiting().asked;
                let count = asked.len().min(MOST);
                asked.drain(..count).collect::<Vec<_>>()
            };
            waiting.retain(|(_, reply)| !reply.is_closed());
            if waiting.is_empty() {
                tokio::select! {
                    biased;
                    () = engine.cancelled() => return,
                    () = this.arrived.notified() => continue,
                }
            }
            let mut names: Vec<StreamName> = waiting.iter().map(|(name, _)| name.clone()).collect();
            names.sort_unstable();
            names.dedup();
            let heads = tokio::select! {
                biased;
                () = engine.cancelled() => return,
                heads = engine.call("head", Step::Heads, engine.backend.store.heads(&names, HeadDetail::Full)) => heads,
            };
            match heads {
                Ok(heads) => {
                    let heads: HashMap<_, _> = names.into_iter().zip(heads).collect();
                    for (name, reply) in waiting {
                        let _ = reply.send(Ok(heads.get(&name).copied().flatten()));
                    }
                }
                Err(error) => waiting.into_iter().for_each(|(_, reply)| drop(reply.send(Err(error.replicate())))),
            }
        }
    }
}
