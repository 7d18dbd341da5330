//! A few sessions, opened when they are needed, each lent to one caller at a time.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::error::Cause;
use crate::session::{Dialler, Session};

/// At most so many sessions to one target.
pub(crate) struct Sessions {
    dialler: Arc<Dialler>,
    idle: Mutex<Vec<Session>>,
    places: Semaphore,
}

impl Sessions {
    pub(crate) fn new(dialler: Arc<Dialler>, most: usize) -> Self {
        Self { dialler, idle: Mutex::default(), places: Semaphore::new(most.max(1)) }
    }

    /// A session of one's own, an idle one or a new one; waits where all are lent.
    ///
    /// # Cancel safety
    /// Dropped half way, nothing is lent.
    pub(crate) async fn lend(&self) -> Result<Lent<'_>, Cause> {
        // The semaphore is never closed, so there is always a place in the end.
        let place = self.places.acquire().await.ok();
        let idle = loop {
            let next = self.idle().pop();
            match next {
                Some(session) if !session.is_open() => {}
                found => break found,
            }
        };
        let session = match idle {
            Some(session) => session,
            None => Session::new(self.dialler.dial().await?),
        };
        Ok(Lent { sessions: self, session, _place: place })
    }

    /// Takes in a session that was opened elsewhere.
    pub(crate) fn adopt(&self, session: Session) {
        self.idle().push(session);
    }

    /// Closes what is idle: it may hang.
    pub(crate) fn forget(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("idle", &self.idle().len()).finish_non_exhaustive()
    }
}

/// A session that is lent. It goes back only by [`Lent::give_back`]: one that was dropped in the middle of something
/// may have a transaction open, and is closed.
pub(crate) struct Lent<'a> {
    sessions: &'a Sessions,
    session: Session,
    _place: Option<SemaphorePermit<'a>>,
}

impl Lent<'_> {
    /// Gives it back for the next caller.
    pub(crate) fn give_back(self) {
        let Lent { sessions, session, _place, .. } = self;
        if session.is_open() {
            sessions.idle().push(session);
        }
    }
}

impl Deref for Lent<'_> {
    type Target = Session;
    fn deref(&self) -> &Session {
        &self.session
    }
}
