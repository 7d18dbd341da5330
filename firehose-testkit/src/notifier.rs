//! The sending half.

use async_trait::async_trait;
use firehose_core::{Notification, Notifier, Result};

use crate::faults::{Faults, Operation};
use crate::wire::Wire;

/// Sends notifications over a [`Wire`].
#[derive(Debug, Clone)]
pub struct WireNotifier {
    wire: Wire,
    faults: Faults,
}

impl WireNotifier {
    /// A notifier of `wire`, without faults.
    pub fn new(wire: &Wire) -> Self {
        Self { wire: wire.clone(), faults: Faults::new(wire.clock().clone()) }
    }

    /// The same notifier, failing as `faults` says.
    #[must_use]
    pub fn with_faults(mut self, faults: &Faults) -> Self {
        self.faults = faults.clone();
        self
    }
}

#[async_trait]
impl Notifier for WireNotifier {
    async fn notify(&self, notifications: &[Notification]) -> Result<()> {
        let about = notifications.iter().map(|n| n.channel.to_string());
        let call = self.faults.begin(Operation::Notify, about).await?;
        let result = notifications.iter().try_for_each(Wire::check);
        if result.is_ok() {
            notifications.iter().for_each(|notification| self.wire.send(notification));
        }
        call.end(result).await
    }

    fn max_payload_bytes(&self) -> usize {
        Wire::MAX_PAYLOAD_BYTES
    }
}
