//! Passing bytes between two connections until both directions have ended.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    time::timeout,
};

use super::state::{Direction, State};

/// The buffer of one direction, in bytes.
const BUFFER_BYTES: usize = 128 * 1024;
/// A connection on which nothing moves for this long is closed. Connections that are kept for later say something more
/// often.
pub(super) const IDLE_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Passes bytes both ways. The end of one direction is passed on, and the other goes on; an error ends both.
pub(super) async fn both_ways(state: &State, mut agent: TcpStream, mut remote: TcpStream) {
    let (from_agent, to_agent) = agent.split();
    let (from_remote, to_remote) = remote.split();
    // Whichever side broke off: the other learns of it when both are dropped.
    let _ended = tokio::try_join!(
        one_way(state, Direction::Out, from_agent, to_remote),
        one_way(state, Direction::In, from_remote, to_agent),
    )
    .is_ok();
}

async fn one_way(
    state: &State,
    direction: Direction,
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = timeout(IDLE_LIMIT, from.read(&mut buffer)).await??;
        let Some(piece) = buffer.get(..count).filter(|piece| !piece.is_empty()) else {
            return to.shutdown().await;
        };
        timeout(IDLE_LIMIT, to.write_all(piece)).await??;
        state.carried(direction, count);
    }
}
