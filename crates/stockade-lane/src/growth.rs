//! How much the folders that an agent can write have grown on disk.
//!
//! A thread of its own looks, so that neither a large tree nor a file system that hangs holds anybody up. Free space is
//! asked for every 250 ms, which costs a microsecond; the folders are walked when it has fallen noticeably and every few
//! seconds, and never for more than a twentieth of the time.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::mpsc as sync_mpsc,
    time::{Duration, Instant},
};

use stockade_journal::walk::{Usage, UsageBounds, disk_usage};
use tokio::sync::{mpsc, oneshot};

/// How often free space is asked for.
const PERIOD: Duration = Duration::from_millis(250);
/// The folders are walked at least this often, because others on the same disk may free what this run takes.
const WALK_PERIOD: Duration = Duration::from_secs(5);
/// Of the limit, the part by which free space may fall before the folders are walked.
const NOTICEABLE: u64 = 16;
/// A walk may take one part in this many of the time.
const WALK_SHARE: u32 = 20;
/// The first walk may take this long: the agent waits for it.
const FIRST_WALK: Duration = Duration::from_secs(2);
/// Any other may take this long.
const LATER_WALK: Duration = Duration::from_secs(20);
/// Readings that may wait for the dispatcher.
const QUEUE: usize = 4;

/// How much the folders have grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    /// Bytes more than at the start.
    pub(crate) bytes: u64,
    /// How long the walk took.
    pub(crate) walked: Duration,
}

/// Watches until it is dropped.
#[derive(Debug)]
pub(crate) struct GrowthWatch {
    readings: mpsc::Receiver<Growth>,
    ready: Option<oneshot::Receiver<Vec<PathBuf>>>,
    /// Its end is the end of the thread.
    _stop: sync_mpsc::SyncSender<()>,
}

impl GrowthWatch {
    /// Starts to look at these folders and files.
    pub(crate) fn start(roots: Vec<PathBuf>, limit: u64) -> std::io::Result<Self> {
        let (tell, readings) = mpsc::channel(QUEUE);
        let (told, ready) = oneshot::channel();
        let (stop, stopped) = sync_mpsc::sync_channel(0);
        std::thread::Builder::new()
            .name("growth".to_owned())
            .spawn(move || Look::new(roots, limit, stopped, tell).run(told))?;
        Ok(Self { readings, ready: Some(ready), _stop: stop })
    }

    /// Waits until it is known how large the folders were; gives those too large to be known.
    pub(crate) async fn ready(&mut self) -> Vec<PathBuf> {
        match self.ready.take() {
            Some(ready) => ready.await.unwrap_or_default(),
            None => Vec::new(),
        }
    }

    /// The next reading. Never comes once the thread has ended.
    pub(crate) async fn next(&mut self) -> Growth {
        match self.readings.recv().await {
            Some(growth) => growth,
            None => std::future::pending().await,
        }
    }
}

/// The next reading of a watch that there may be.
pub(crate) async fn next(watch: &mut Option<GrowthWatch>) -> Growth {
    match watch {
        Some(watch) => watch.next().await,
        None => std::future::pending().await,
    }
}

struct Look {
    /// Each with what it took at the start.
    roots: Vec<(PathBuf, u64)>,
    limit: u64,
    stopped: sync_mpsc::Receiver<()>,
    tell: mpsc::Sender<Growth>,
}

impl Look {
    fn new(
        roots: Vec<PathBuf>,
        limit: u64,
        stopped: sync_mpsc::Receiver<()>,
        tell: mpsc::Sender<Growth>,
    ) -> Self {
        Self { roots: roots.into_iter().map(|r| (r, 0)).collect(), limit, stopped, tell }
    }

    fn run(mut self, told: oneshot::Sender<Vec<PathBuf>>) {
        let end = Instant::now() + FIRST_WALK;
        let mut unknown = Vec::new();
        self.roots.retain_mut(|(root, at_start)| {
            let known = usage(root, end).filter(|u| u.complete);
            match known {
                Some(usage) => *at_start = usage.bytes,
                None => unknown.push(root.clone()),
            }
            known.is_some()
        });
        // Nobody waits any more where the run has ended.
        let _unheard = told.send(unknown);
        let mut free = self.free();
        let mut walked = (Instant::now(), Duration::ZERO);
        while self.stopped.recv_timeout(PERIOD) == Err(sync_mpsc::RecvTimeoutError::Timeout) {
            let since = walked.0.elapsed();
            let now_free = self.free();
            let fell = free.saturating_sub(now_free) >= (self.limit / NOTICEABLE).max(1);
            if since < walked.1 * WALK_SHARE || !(fell || since >= WALK_PERIOD) {
                continue;
            }
            let start = Instant::now();
            let bytes = self.grown(start + LATER_WALK);
            walked = (Instant::now(), start.elapsed());
            free = now_free;
            let growth = Growth { bytes, walked: walked.1 };
            // A reading that finds no room is not missed: the next one says more.
            if let Err(mpsc::error::TrySendError::Closed(_)) = self.tell.try_send(growth) {
                return;
            }
        }
    }

    /// Bytes more than at the start, or at least so many where not all could be seen.
    fn grown(&self, end: Instant) -> u64 {
        let (mut before, mut now) = (0_u64, 0_u64);
        for (root, at_start) in &self.roots {
            before = before.saturating_add(*at_start);
            // What has gone takes no room.
            now = now.saturating_add(usage(root, end).map_or(0, |u| u.bytes));
        }
        now.saturating_sub(before)
    }

    /// Free bytes of all file systems together.
    fn free(&self) -> u64 {
        let mut seen = BTreeSet::new();
        let mut sum: u64 = 0;
        for (root, _) in &self.roots {
            let Ok(stat) = rustix::fs::statvfs(root) else { continue };
            if seen.insert(stat.f_fsid) {
                sum = sum.saturating_add(stat.f_bfree.saturating_mul(stat.f_frsize));
            }
        }
        sum
    }
}

/// What a tree takes; `None` where it cannot be seen at all.
fn usage(root: &std::path::Path, end: Instant) -> Option<Usage> {
    disk_usage(root, &UsageBounds::default(), &|| Instant::now() < end).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn growth_is_seen_soon_and_only_that() {
        let t = tempfile::tempdir().unwrap();
        std::fs::write(t.path().join("before"), vec![1; 4 << 20]).unwrap();
        let mut watch = GrowthWatch::start(vec![t.path().to_owned()], 16 << 20).unwrap();
        assert_eq!(watch.ready().await, Vec::<PathBuf>::new());
        std::fs::write(t.path().join("after"), vec![2; 8 << 20]).unwrap();
        let start = Instant::now();
        let growth = loop {
            let growth = watch.next().await;
            // A block may reach the disk's books a moment later.
            if growth.bytes >= 8 << 20 {
                break growth;
            }
        };
        assert!(growth.bytes < 9 << 20, "{growth:?}");
        assert!(start.elapsed() < WALK_PERIOD * 3, "{:?}", start.elapsed());
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_cannot_be_known() {
        let gone = PathBuf::from("/nowhere/at/all");
        let mut watch = GrowthWatch::start(vec![gone.clone()], 1).unwrap();
        assert_eq!(watch.ready().await, [gone]);
    }
}
