//! An engine for a command, and the pauses between attempts.

use std::time::Duration;

use firehose_core::{Backend, Clock as _, Config, Error, ErrorKind, Event, Firehose, SystemClock};

use crate::output::say;

/// How long a start is tried again whose connection is cut under it: by a server that restarts, say.
const PATIENCE: Duration = Duration::from_secs(10);

const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What a command wants of its engine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// To publish; no session listens.
    Publisher,
    /// To subscribe.
    Subscriber,
}

/// Starts an engine. An address that cannot be reached is an error at once.
pub(crate) async fn start(config: &Config, role: Role) -> Result<Firehose, Error> {
    // Whoever looks at the server's sessions finds them under this name, whatever the file calls an application.
    let config = Config { application_name: "firehose".to_owned(), ..config.clone() };
    let clock = SystemClock::new();
    let mut pauses = Pauses::new();
    loop {
        match try_start(&config, role).await {
            Err(e)
                if matches!(e.kind(), ErrorKind::ConnectionLost | ErrorKind::ServerShutdown)
                    && clock.now().since_origin() < PATIENCE =>
            {
                pauses.pause().await;
            }
            started => return started,
        }
    }
}

async fn try_start(config: &Config, role: Role) -> Result<Firehose, Error> {
    let backend = firehose_pg::connect(config).await?;
    let backend = match role {
        Role::Publisher => Backend { listener: None, ..backend },
        Role::Subscriber => backend,
    };
    // It comes and goes; what is kept is for services that stay.
    let builder = Firehose::builder(backend).config(config.clone()).without_retention();
    let builder = builder.on_error(|report| {
        say(format_args!("{}; trying again", report.error));
    });
    let builder = builder.on_event(|event| {
        if let Event::Reconnected { .. } = event {
            say("connected again");
        }
    });
    builder.start().await
}

/// Pauses that double, until something works.
pub(crate) struct Pauses {
    clock: SystemClock,
    next: Duration,
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Self { clock: SystemClock::new(), next: SHORTEST_PAUSE }
    }

    pub(crate) async fn pause(&mut self) {
        let until = self.clock.now() + self.next;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        self.clock.sleep_until(until).await;
    }

    /// It works.
    pub(crate) fn start_over(&mut self) {
        self.next = SHORTEST_PAUSE;
    }
}
