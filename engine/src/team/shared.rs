//! The state that all workers share, and the part of it that a dialect sees while it answers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;

use super::dialect::Recognize;
use super::disk_threads::{DiskThreads, Job};
use super::limits::Limits;
use super::metrics::{add, Language, Metrics, NamespaceCounts, Outcome, Rejection};
use super::outbox::Outbox;
use super::tokens::{Holder, Tokens};
use super::upload::Uploads;
use super::value_store::ValueStore;
use super::writes::{Write, WriteLog};
use crate::http::asker::Names;

pub struct Shared {
    pub values: Arc<ValueStore>,
    pub disk_threads: DiskThreads,
    pub uploads: Uploads,
    pub limits: Limits,
    pub metrics: Metrics,
    pub writes: Option<WriteLog>,
    tls: RwLock<Option<Arc<ServerConfig>>>,
    /// Selects the dialect of a connection.
    pub recognize: Recognize,
    /// The host names by which HTTP may be requested.
    pub names: Names,
    /// No client needs a token. Once there was a token, this never becomes true again.
    is_open: AtomicBool,
    /// Each connection that has shown a token, or needs none, holds one reference.
    authenticated: Arc<()>,
    /// Clients on this machine need no token for metrics.
    pub are_metrics_open: bool,
    pub is_leaving: AtomicBool,
    tokens: RwLock<Arc<Tokens>>,
}

/// The holder of the token that a connection has shown.
pub struct Admission {
    pub holder: Holder,
    pub counts: Arc<NamespaceCounts>,
    _authenticated: Arc<()>,
}

/// The settings of a server.
pub struct ServerSettings {
    pub limits: Limits,
    pub writes: Option<WriteLog>,
    pub tls: Option<Arc<ServerConfig>>,
    pub are_metrics_open: bool,
    pub tokens: Tokens,
    pub names: Names,
    pub recognize: Recognize,
}

impl Shared {
    pub fn new(
        values: Arc<ValueStore>,
        disk_threads: DiskThreads,
        uploads: Uploads,
        settings: ServerSettings,
    ) -> Shared {
        Shared {
            values,
            disk_threads,
            uploads,
            limits: settings.limits,
            metrics: Metrics::default(),
            writes: settings.writes,
            tls: RwLock::new(settings.tls),
            recognize: settings.recognize,
            names: settings.names,
            is_open: AtomicBool::new(settings.tokens.is_empty()),
            authenticated: Arc::new(()),
            are_metrics_open: settings.are_metrics_open,
            is_leaving: AtomicBool::new(false),
            tokens: RwLock::new(Arc::new(settings.tokens)),
        }
    }

    pub fn tokens(&self) -> Arc<Tokens> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the tokens. Without any token, no client is admitted: removing the last one does not open the server.
    pub fn set_tokens(&self, tokens: Tokens) {
        if !tokens.is_empty() {
            self.close();
        }
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tokens);
    }

    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::SeqCst)
    }

    /// Every client needs a token from now on.
    pub fn close(&self) {
        self.is_open.store(false, Ordering::SeqCst);
    }

    /// How many connections may have shown no token. On an open server, all may.
    pub fn max_unauthenticated(&self) -> usize {
        match self.is_open() {
            true => self.limits.connections,
            false => self.limits.max_unauthenticated(),
        }
    }

    /// How many connections have shown a token, or need none.
    pub fn authenticated(&self) -> usize {
        Arc::strong_count(&self.authenticated) - 1
    }

    /// How many connections have shown no token yet.
    pub fn unauthenticated(&self) -> usize {
        let open = self.metrics.open.load(Ordering::Relaxed) as usize;
        open.saturating_sub(self.authenticated())
    }

    /// The configuration for new connections.
    pub fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_tls(&self, tls: Arc<ServerConfig>) {
        *self.tls.write().unwrap_or_else(PoisonError::into_inner) = Some(tls);
    }

    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// Admits a client that shows this token, if the token is valid.
    pub fn admit(&self, shown: &[u8]) -> Option<Admission> {
        let holder = match self.is_open() {
            true => Holder::anyone(),
            false => self.tokens().holder(shown).cloned()?,
        };
        Some(Admission {
            counts: self.metrics.namespace(&holder.namespace),
            holder,
            _authenticated: self.authenticated.clone(),
        })
    }

    /// Whether the token is still valid.
    pub fn knows(&self, admission: &Admission) -> bool {
        self.is_open() || self.tokens().holds(&admission.holder)
    }
}

/// The view that a dialect has of its connection.
pub struct Exchange<'a> {
    pub shared: &'a Shared,
    pub peer: SocketAddr,
    pub out: &'a mut Outbox,
    pub admission: &'a mut Option<Arc<Admission>>,
    /// The job that must be done before the dialect goes on.
    pub job: &'a mut Option<Job>,
}

impl Exchange<'_> {
    pub fn count(&self, language: Language, outcome: Outcome) {
        self.shared.metrics.count(language, outcome);
        if let Some(admission) = &*self.admission {
            admission.counts.count(outcome);
        }
    }

    /// Counts a content of this size that is sent.
    pub fn count_sent(&self, size: u64) {
        if let Some(admission) = &*self.admission {
            add(&admission.counts.bytes_out, size);
        }
    }

    /// Counts and logs a change by the client.
    pub fn log_write(&self, what: &'static str, key: &str, size: u64) {
        let Some(admission) = &*self.admission else { return };
        add(&admission.counts.bytes_in, size);
        if let Some(writes) = &self.shared.writes {
            writes.append(&Write {
                name: &admission.holder.name,
                peer: self.peer,
                namespace: &admission.holder.namespace,
                what,
                key,
                size,
            });
        }
    }

    /// Identifies the client by the token that it shows.
    pub fn admit(&mut self, shown: &[u8]) -> Option<Arc<Admission>> {
        let admission = self.shared.admit(shown).map(Arc::new);
        if admission.is_none() {
            self.shared.metrics.count_rejection(Rejection::Token);
        }
        *self.admission = admission.clone();
        admission
    }
}
