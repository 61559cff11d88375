//! Signals as stop requests. The first asks politely; the second kills at once.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use stockade_lane::StopRequest;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

/// Listens for SIGINT, SIGTERM and SIGHUP from now on.
///
/// Has to be called inside a runtime.
pub(crate) fn stop_requests() -> std::io::Result<mpsc::Receiver<StopRequest>> {
    let (sender, receiver) = mpsc::channel(4);
    let mut int = signal(SignalKind::interrupt())?;
    let mut term = signal(SignalKind::terminate())?;
    let mut hup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        let mut first = true;
        loop {
            let name = tokio::select! {
                _ = int.recv() => "SIGINT",
                _ = term.recv() => "SIGTERM",
                _ = hup.recv() => "SIGHUP",
            };
            let stop = if first { StopRequest::Cancel(name) } else { StopRequest::Kill(name) };
            first = false;
            if sender.send(stop).await.is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

/// A runtime on this thread.
pub(crate) fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Sets a flag at the first signal, for work that asks from time to time whether to go on. The listener is a thread that
/// ends with the process.
pub(crate) fn set_on_stop(flag: Arc<AtomicBool>) -> std::io::Result<()> {
    let runtime = runtime()?;
    let mut stops = {
        let _inside = runtime.enter();
        stop_requests()?
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            while stops.recv().await.is_some() {
                flag.store(true, Ordering::Relaxed);
            }
        });
    })?;
    Ok(())
}
