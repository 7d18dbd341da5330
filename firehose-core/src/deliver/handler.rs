//! Subscribing by callback.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::delivery::Delivery;
use super::subscription::Subscription;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::message::Message;
use crate::observe::Stage;

/// Keeps a handler going; dropping it ends the handler, in the middle of a message too.
#[derive(Debug)]
#[must_use = "dropping the guard ends the handler"]
pub struct HandlerGuard {
    _ends: DropGuard,
}

/// The handler's task, and what ends it. Each message waits for the one before; a panic costs its own message only.
pub(crate) fn handle<F, Fut>(
    engine: Arc<Engine>,
    mut subscription: Subscription,
    mut handler: F,
) -> (HandlerGuard, impl Future<Output = ()> + Send + 'static)
where
    F: FnMut(Arc<Message>) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let token = CancellationToken::new();
    let guard = HandlerGuard { _ends: token.clone().drop_guard() };
    let run = async move {
        while let Some(delivery) = subscription.next().await {
            match delivery {
                Delivery::Message(message) => {
                    let handled = AssertUnwindSafe(async { handler(message).await }).catch_unwind().await;
                    if handled.is_err() {
                        let message = format!("the handler of stream {} panicked", subscription.stream());
                        engine.observer.error(Stage::Handler, &Error::new(ErrorKind::Backend, "handle", message));
                    }
                }
                // Events tell of them, as of every subscription's.
                Delivery::Gap(_) | Delivery::Reset(_) => {}
                Delivery::Closed(_) => return,
            }
        }
    };
    let task = async move {
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            () = run => {}
        }
    };
    (guard, task)
}
