//! Connections to the endpoint that wait for the next request.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::dial::Line;

/// How many wait at most: an agent asks one or two things at once.
const IDLE_LIMIT: usize = 4;
/// How long one may wait. Servers close idle connections from 5 s on, and a request that crosses such a close is lost: it
/// is never sent twice, because a call of the model that may have arrived is paid for.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Idle connections, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Vec<(Line, Instant)>>);

impl Pool {
    /// A connection that is open, has nothing left to send and was used recently.
    pub(crate) fn take(&self) -> Option<Line> {
        let mut idle = self.lock();
        idle.retain(|(line, since)| line.is_ready() && since.elapsed() < IDLE_TIMEOUT);
        idle.pop().map(|(line, _)| line)
    }

    /// Keeps a connection whose answer was read whole.
    pub(crate) fn put(&self, line: Line) {
        let mut idle = self.lock();
        if idle.len() < IDLE_LIMIT && !line.is_closed() {
            idle.push((line, Instant::now()));
        }
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Line, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
