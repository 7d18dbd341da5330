//! Heads for who subscribes: all that is asked for while one read is under way is the next read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::backend::{Head, HeadDetail};
use crate::engine::Engine;
use crate::error::{Error, Result, Step};
use crate::stream::StreamName;

/// How many heads one read asks for.
const MOST: usize = 10_000;

type Reply = oneshot::Sender<Result<Option<Head>>>;

/// The heads that are asked for.
#[derive(Debug, Default)]
pub(crate) struct HeadReads {
    waiting: Mutex<Vec<(StreamName, Reply)>>,
    arrived: Notify,
}

impl HeadReads {
    /// The head of `stream`, as it is after this call began.
    pub(crate) async fn head(&self, stream: &StreamName) -> Result<Option<Head>> {
        let (reply, head) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((stream.clone(), reply));
        self.arrived.notify_one();
        head.await.unwrap_or_else(|_| Err(Error::shut_down("head")))
    }

    /// The task: one read at a time.
    pub(crate) async fn run(engine: Arc<Engine>) {
        let this = &engine.heads;
        loop {
            let mut waiting = {
                let mut queue = this.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let count = queue.len().min(MOST);
                queue.drain(..count).collect::<Vec<_>>()
            };
            waiting.retain(|(_, reply)| !reply.is_closed());
            if waiting.is_empty() {
                tokio::select! {
                    biased;
                    () = engine.cancelled() => break,
                    () = this.arrived.notified() => continue,
                }
            }
            let mut names: Vec<StreamName> = waiting.iter().map(|(name, _)| name.clone()).collect();
            names.sort_unstable();
            names.dedup();
            let heads = tokio::select! {
                biased;
                () = engine.cancelled() => break,
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
        // Who asks from here on is told by the engine itself; who waits is told now.
        this.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
