//! Starting and ending a gateway.

use std::{
    net,
    sync::{Arc, Mutex, OnceLock, atomic::AtomicU64},
};

use stockade_core::event::EventKind;
use tokio::{
    net::{TcpListener, UdpSocket},
    sync::mpsc,
};

use crate::{
    activity::Activity,
    dial::Dialer,
    egress::{self, Egress, EgressTotals},
    error::GatewayError,
    facts::Facts,
    inbound, names,
    policy::ModelPolicy,
    pool::Pool,
    purse::Purse,
    read::Budget,
    shared::Shared,
    storm::Storm,
    tasks::Tasks,
    tls::Tls,
    upstream::Scheme,
};

/// The gateway of one run. Dropping it ends it at once; [`Gateway::shutdown`] lets its last facts out first.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    egress: Option<Arc<egress::State>>,
}

impl Gateway {
    /// Starts serving. Has to be called inside a runtime, whose tasks then do the work.
    ///
    /// `listener` takes the model calls, `names` the look-ups of names and `egress` everything else that may leave, where
    /// the fence has such listeners. Facts are sent as they are seen; while the channel is full, requests wait.
    pub fn start(
        policy: ModelPolicy,
        listener: net::TcpListener,
        names: Option<net::UdpSocket>,
        egress: Option<Egress>,
        facts: mpsc::Sender<EventKind>,
    ) -> Result<Self, GatewayError> {
        let prepared = policy.prepare()?;
        let tls = match policy.upstream.scheme() {
            Scheme::Http => None,
            Scheme::Https => Some(Tls::new(&policy.upstream, policy.extra_ca_pem.as_deref())?),
        };
        let listener = register(listener, "model")?;
        let names = names.map(register_names).transpose()?;
        let egress = egress.map(|e| Ok((register(e.listener, "egress")?, e.allowed))).transpose()?;
        let tasks = Arc::new(Tasks::new());
        let shared = Arc::new(Shared {
            facts: Facts::new(facts, tasks.stop()),
            activity: Arc::new(Activity::new()),
            dialer: Dialer { upstream: policy.upstream.clone(), tls, tasks: Arc::clone(&tasks) },
            pool: Pool::default(),
            budget: Budget::new(),
            refused: OnceLock::new(),
            storm: Mutex::new(Storm::new(
                policy.failures_before_stop,
                prepared.stop.is_known(),
                policy.classes.len(),
            )),
            requests: AtomicU64::new(0),
            purse: Purse::new(policy.budget.clone()),
            tasks,
            prepared,
            policy,
        });
        shared.tasks.spawn(inbound::listen(Arc::clone(&shared), listener));
        if let Some(socket) = names {
            shared.tasks.spawn(names::listen(Arc::clone(&shared), socket));
        }
        let egress = egress.map(|(listener, allowed)| {
            let state = Arc::new(egress::State::new(Arc::clone(&shared), allowed));
            shared.tasks.spawn(egress::listen(Arc::clone(&state), listener));
            state
        });
        Ok(Self { shared, egress })
    }

    /// Bytes and the time of the last one, for the idle watch.
    pub fn activity(&self) -> Arc<Activity> {
        Arc::clone(&self.shared.activity)
    }

    /// Ends every connection and tells what went through the egress listener, where there was one. Returns within half a
    /// second, whatever the endpoint, the agent and the reader of the facts do.
    pub async fn shutdown(self) -> Option<EgressTotals> {
        self.shared.tasks.end().await;
        self.shared.pool.clear();
        self.egress.as_ref().map(|state| state.totals())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.shared.tasks.abort();
        self.shared.pool.clear();
    }
}

fn register(listener: net::TcpListener, name: &'static str) -> Result<TcpListener, GatewayError> {
    listener
        .set_nonblocking(true)
        .and_then(|()| TcpListener::from_std(listener))
        .map_err(|source| GatewayError::Listener { listener: name, source })
}

fn register_names(socket: net::UdpSocket) -> Result<UdpSocket, GatewayError> {
    socket
        .set_nonblocking(true)
        .and_then(|()| UdpSocket::from_std(socket))
        .map_err(|source| GatewayError::Listener { listener: "names", source })
}
