//! What all workers share, and what a dialect sees of it while it answers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;

use super::dialect::Recognize;
use super::disk_threads::{DiskThreads, Job};
use super::limits::{Count, Counted, Limits};
use super::metrics::{add, Doings, Language, Metrics, Outcome, Turned};
use super::outbox::Outbox;
use super::tokens::{Holder, Tokens};
use super::upload::Dock;
use super::value_store::ValueStore;
use super::writes::{DiskWork, Writes};
use crate::http::asker::Names;

pub struct Shared {
    pub values: Arc<ValueStore>,
    pub disk_threads: DiskThreads,
    pub dock: Dock,
    pub limits: Limits,
    pub metrics: Metrics,
    pub writes: Option<Writes>,
    tls: RwLock<Option<Arc<ServerConfig>>>,
    /// The dialects that are spoken here.
    pub recognize: Recognize,
    /// By which HTTP is asked.
    pub names: Names,
    /// Nobody needs a token. Once there was one, this never becomes true again.
    is_open: AtomicBool,
    /// Connections that have shown a token, or need none.
    pub known: Count,
    /// Metrics need none, from this machine.
    pub are_metrics_open: bool,
    pub is_leaving: AtomicBool,
    tokens: RwLock<Arc<Tokens>>,
}

/// Who somebody is, as the token has it.
pub struct Admission {
    pub holder: Holder,
    pub doings: Arc<Doings>,
    _counted: Counted,
}

/// What an shared is made of.
pub struct Rules {
    pub limits: Limits,
    pub writes: Option<Writes>,
    pub tls: Option<Arc<ServerConfig>>,
    pub are_metrics_open: bool,
    pub tokens: Tokens,
    pub names: Names,
    pub recognize: Recognize,
}

impl Shared {
    pub fn new(values: Arc<ValueStore>, disk_threads: DiskThreads, dock: Dock, rules: Rules) -> Shared {
        Shared {
            values,
            disk_threads,
            dock,
            limits: rules.limits,
            metrics: Metrics::default(),
            writes: rules.writes,
            tls: RwLock::new(rules.tls),
            recognize: rules.recognize,
            names: rules.names,
            is_open: AtomicBool::new(rules.tokens.is_empty()),
            known: Count::default(),
            are_metrics_open: rules.are_metrics_open,
            is_leaving: AtomicBool::new(false),
            tokens: RwLock::new(Arc::new(rules.tokens)),
        }
    }

    pub fn tokens(&self) -> Arc<Tokens> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Without any token nobody is admitted from now on: who takes out the last one does not mean to admit all.
    pub fn set_tokens(&self, tokens: Tokens) {
        if !tokens.is_empty() {
            self.close();
        }
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tokens);
    }

    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::SeqCst)
    }

    /// Everybody needs a token from now on.
    pub fn close(&self) {
        self.is_open.store(false, Ordering::SeqCst);
    }

    /// So many connections may have shown no token. Where none is wanted, that is true of all.
    pub fn most_strangers(&self) -> usize {
        match self.is_open() {
            true => self.limits.connections,
            false => self.limits.strangers(),
        }
    }

    /// Connections that have shown no token yet.
    pub fn strangers(&self) -> usize {
        let open = self.metrics.open.load(Ordering::Relaxed) as usize;
        open.saturating_sub(self.known.now())
    }

    /// Of connections that come now.
    pub fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_tls(&self, tls: Arc<ServerConfig>) {
        *self.tls.write().unwrap_or_else(PoisonError::into_inner) = Some(tls);
    }

    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// Who shows this token.
    pub fn admit(&self, shown: &[u8]) -> Option<Admission> {
        let holder = match self.is_open() {
            true => Holder::anyone(),
            false => self.tokens().holder(shown).cloned()?,
        };
        let doings = self.metrics.namespace(&holder.namespace);
        let _counted = self.known.one_more();
        Some(Admission {
            holder,
            doings,
            _counted,
        })
    }

    /// The token still holds.
    pub fn knows(&self, admission: &Admission) -> bool {
        self.is_open() || self.tokens().holds(&admission.holder)
    }
}

/// A connection as its dialect sees it.
pub struct Exchange<'a> {
    pub shared: &'a Shared,
    pub peer: SocketAddr,
    pub out: &'a mut Outbox,
    pub admission: &'a mut Option<Arc<Admission>>,
    /// What is to be carried before this connection goes on.
    pub job: &'a mut Option<Job>,
}

impl Exchange<'_> {
    pub fn count(&self, language: Language, outcome: Outcome) {
        self.shared.metrics.count(language, outcome);
        if let Some(admission) = &*self.admission {
            admission.doings.count(outcome);
        }
    }

    /// A content of this size is sent.
    pub fn gave(&self, size: u64) {
        if let Some(admission) = &*self.admission {
            add(&admission.doings.bytes_out, size);
        }
    }

    /// Somebody has written something.
    pub fn wrote(&self, what: &'static str, key: &str, size: u64) {
        let Some(admission) = &*self.admission else { return };
        add(&admission.doings.bytes_in, size);
        if let Some(writes) = &self.shared.writes {
            writes.tell(&DiskWork {
                name: &admission.holder.name,
                peer: self.peer,
                namespace: &admission.holder.namespace,
                what,
                key,
                size,
            });
        }
    }

    /// Takes whoever shows this token as its holder.
    pub fn admit(&mut self, shown: &[u8]) -> Option<Arc<Admission>> {
        let admission = self.shared.admit(shown).map(Arc::new);
        if admission.is_none() {
            self.shared.metrics.turn(Turned::Token);
        }
        *self.admission = admission.clone();
        admission
    }
}
