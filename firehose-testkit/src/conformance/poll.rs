//! Polling by hand.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

/// Polls a future once; gives what it gave.
pub(crate) async fn once<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Polls a future as its wakers ask for, and drops it when it was pending `polls` times; gives what it gave before that.
pub(crate) async fn at_most<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut pending = 0;
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => {
            pending += 1;
            if pending >= polls { Poll::Ready(None) } else { Poll::Pending }
        }
    })
    .await
}
