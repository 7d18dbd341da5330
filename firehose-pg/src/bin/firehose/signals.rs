//! The signals that ask a command to end.

use firehose_core::Error;

#[cfg(unix)]
pub(crate) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// From here on they no longer end the process by themselves.
    pub(crate) fn new() -> Result<Self, Error> {
        use firehose_core::ErrorKind;
        use tokio::signal::unix::{SignalKind, signal};
        let failed = |e| Error::new(ErrorKind::Backend, "start", format!("signals cannot be heard: {e}"));
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
        })
    }

    /// Waits for the next one. Cancel safe.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self)
    }

    /// Waits for the next one. Cancel safe.
    pub(crate) async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}
