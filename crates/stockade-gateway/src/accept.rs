//! Accepting connections of the agent, a bounded number at a time.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::sleep,
};

use crate::tasks::Tasks;

/// How long accepting rests after an error, which is a lack of descriptors or memory.
const REST_AFTER_ERROR: Duration = Duration::from_millis(50);

/// Serves each connection in a task of its own, `limit` at once, until the gateway ends; others wait in the listener's
/// queue.
pub(crate) async fn each<F>(
    tasks: Arc<Tasks>,
    listener: TcpListener,
    limit: usize,
    serve: impl Fn(TcpStream) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(limit));
    let mut stop = tasks.stop();
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            () = stop.asked() => return,
        };
        let Ok(place) = place else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.asked() => return,
        };
        let Ok((socket, _)) = accepted else {
            sleep(REST_AFTER_ERROR).await;
            continue;
        };
        // Whole requests and single events are written at once: waiting for more only adds delay.
        let _as_it_was = socket.set_nodelay(true).is_err();
        let served = serve(socket);
        tasks.spawn(async move {
            served.await;
            drop(place);
        });
    }
}
