//! One slot's session with the cluster's Bots service: it gets leases, runs their actions, and tells how they ended.
//!
//! ```text
//! create ─► poll, until there is a lease ─► execute, with a sign of life now and then ─► complete ─► poll …
//!    ▲                                                                                      │
//!    └── the server does not know the session any more ◄────────────────────────────────────┘
//! ```
//!
//! Each slot has a session of its own, so that the server gives no slot more than one command.

use std::sync::Arc;
use std::time::Duration;

use bazel_remote_apis::google::protobuf::Any;
use bazel_remote_apis::google::rpc::Status;
use prost::Message;
use tokio::sync::watch;
use tokio::time::{sleep, timeout, Instant};
use tonic::{Code, Request};

use super::bots::{
    BotSession, BotStatus, BotsClient, CreateBotSessionRequest, Device, Lease, LeaseState, Property,
    UpdateBotSessionRequest, Worker,
};
use super::execute::{Done, Executor};
use super::slot::Slot;
use crate::connection::Connection;

/// How long the server may let us wait for work.
const POLL_TIME: Duration = Duration::from_secs(30);
/// How long it may take to answer otherwise.
const CALL_TIME: Duration = Duration::from_secs(20);
/// What an answer may take beyond the server's own deadline.
const GRACE: Duration = Duration::from_secs(5);
/// How often the server hears of us, and we of a cancelled command, while a command runs.
const SIGN_OF_LIFE: Duration = Duration::from_secs(3);
/// The shortest and the longest pause after a fault.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(15));
/// How long a worker that ends tries to tell the server so.
const FAREWELL: Duration = Duration::from_secs(30);
const RESULT: &str = "type.googleapis.com/build.bazel.remote.execution.v2.ActionResult";

/// How far the end of the worker has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Working,
    /// The commands that run are the last ones.
    Draining,
    /// They end, too.
    Ending,
}

/// What the session of a slot needs.
pub struct Session {
    pub executor: Arc<Executor>,
    pub connection: Connection,
    /// The slot's name, for people.
    pub bot: String,
    /// No other slot has this id, also if its worker has the same name. A server ends the session of a bot when another one
    /// comes with the same id.
    pub id: String,
    pub properties: Vec<(String, String)>,
    pub stage: watch::Receiver<Stage>,
}

/// Why a call to the server failed.
enum Fault {
    /// It does not know the session, or does not want it.
    Gone(String),
    /// It may answer later.
    Passing(String),
}

impl From<tonic::Status> for Fault {
    fn from(status: tonic::Status) -> Fault {
        let told = format!("{}: {}", status.code().description(), status.message());
        match status.code() {
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Unknown
            | Code::Cancelled
            | Code::Internal
            | Code::ResourceExhausted
            | Code::Unauthenticated
            | Code::PermissionDenied => Fault::Passing(told),
            _ => Fault::Gone(told),
        }
    }
}

/// How the work on a lease ended.
enum Worked {
    /// The session goes on.
    On(BotSession),
    Lost,
}

/// Longer from time to time, and short again after a success.
struct Pause(Duration);

impl Pause {
    fn new() -> Pause {
        Pause(PAUSES.0)
    }

    fn next(&mut self) -> Duration {
        let now = self.0;
        self.0 = (now * 2).min(PAUSES.1);
        now
    }
}

impl Session {
    /// Works until the worker drains.
    pub async fn serve(self, mut slot: Slot) {
        let mut pause = Pause::new();
        while self.stage() == Stage::Working {
            match self.create().await {
                Ok(session) => {
                    log::info!("{}: the cluster knows it", self.bot);
                    pause = Pause::new();
                    self.attend(&mut slot, session).await;
                }
                Err(Fault::Gone(why) | Fault::Passing(why)) => {
                    log::warn!("{}: the cluster does not take it: {why}", self.bot);
                    self.rest(pause.next()).await;
                }
            }
        }
        slot.end().await;
    }

    fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Waits, but not longer than the worker works.
    async fn rest(&self, time: Duration) {
        let mut stage = self.stage.clone();
        tokio::select! {
            () = sleep(time) => {}
            _ = stage.wait_for(|stage| *stage > Stage::Working) => {}
        }
    }

    /// Polls for leases until the session is lost, or the worker drains.
    async fn attend(&self, slot: &mut Slot, mut session: BotSession) {
        let mut pause = Pause::new();
        loop {
            if let Some(lease) = next_lease(&session) {
                session = match self.work(slot, session, lease).await {
                    Worked::On(session) => session,
                    Worked::Lost => return,
                };
                continue;
            }
            let is_last = self.stage() > Stage::Working;
            let polled = match is_last {
                true => self.say_farewell(&session).await,
                false => self.poll(&session).await,
            };
            match polled {
                Ok(next) => {
                    pause = Pause::new();
                    session = next;
                    // Work may have come while we said that there is to be no more.
                    if is_last && next_lease(&session).is_none() {
                        return;
                    }
                }
                Err(Fault::Gone(why)) => {
                    log::info!("{}: the cluster has forgotten it: {why}", self.bot);
                    return;
                }
                Err(Fault::Passing(_)) if is_last => return,
                Err(Fault::Passing(why)) => {
                    log::warn!("{}: {why}", self.bot);
                    self.rest(pause.next()).await;
                }
            }
        }
    }

    async fn create(&self) -> Result<BotSession, Fault> {
        let properties = self.properties.iter().map(|(key, value)| Property {
            key: key.clone(),
            value: value.clone(),
        });
        let session = BotSession {
            bot_id: self.id.clone(),
            // Else the answer may wait for work. Whether the cluster takes us is to be known at once.
            status: BotStatus::Unhealthy as i32,
            worker: Some(Worker {
                devices: vec![Device {
                    handle: "machine".to_owned(),
                    properties: properties.collect(),
                }],
                properties: Vec::new(),
            }),
            ..BotSession::default()
        };
        let request = CreateBotSessionRequest {
            parent: self.connection.instance().to_owned(),
            bot_session: Some(session),
        };
        let mut client = BotsClient::new(self.connection.channel());
        let call = client.create_bot_session(within(request, CALL_TIME));
        let mut session = answered(call, CALL_TIME).await?;
        session.status = BotStatus::Ok as i32;
        Ok(session)
    }

    /// Tells the server how its leases are. It answers with the leases that there are to be.
    async fn update(&self, session: &BotSession, time: Duration) -> Result<BotSession, Fault> {
        let request = UpdateBotSessionRequest {
            name: session.name.clone(),
            bot_session: Some(session.clone()),
        };
        let mut client = BotsClient::new(self.connection.channel());
        let call = client.update_bot_session(within(request, time));
        answered(call, time).await
    }

    /// Waits for work, as long as the worker works.
    async fn poll(&self, session: &BotSession) -> Result<BotSession, Fault> {
        let mut stage = self.stage.clone();
        tokio::select! {
            polled = self.update(session, POLL_TIME) => polled,
            _ = stage.wait_for(|stage| *stage > Stage::Working) => Ok(session.clone()),
        }
    }

    async fn say_farewell(&self, session: &BotSession) -> Result<BotSession, Fault> {
        let mut last = session.clone();
        last.status = BotStatus::BotTerminating as i32;
        self.update(&last, CALL_TIME).await
    }

    /// Runs the action of a lease, and tells the server how it ended.
    async fn work(&self, slot: &mut Slot, mut session: BotSession, lease: Lease) -> Worked {
        log::debug!("{}: {} begins", self.bot, lease.id);
        let mut stage = self.stage.clone();
        let mut is_cancelled = false;
        let done = {
            let execution = self.executor.execute(slot, lease.payload.clone());
            tokio::pin!(execution);
            loop {
                let sign = async {
                    sleep(SIGN_OF_LIFE).await;
                    self.update(&session, CALL_TIME).await
                };
                tokio::select! {
                    done = &mut execution => break Some(done),
                    answer = sign => match answer {
                        Ok(next) if next.leases.iter().any(|one| one.id == lease.id) => session = next,
                        Ok(next) => {
                            log::info!("{}: {} was cancelled", self.bot, lease.id);
                            session = next;
                            is_cancelled = true;
                            break None;
                        }
                        Err(Fault::Gone(why)) => {
                            log::info!("{}: the cluster has forgotten it: {why}", self.bot);
                            break None;
                        }
                        Err(Fault::Passing(why)) => log::warn!("{}: {why}", self.bot),
                    },
                    _ = stage.wait_for(|stage| *stage == Stage::Ending) => break Some(Done {
                        status: Status {
                            code: Code::Unavailable as i32,
                            message: "the worker was ended".to_owned(),
                            details: Vec::new(),
                        },
                        result: None,
                    }),
                }
            }
        };
        let was_ended = done.is_none() || self.stage() == Stage::Ending;
        if was_ended {
            // Its command may still run.
            slot.end().await;
        }
        match done {
            Some(done) => self.complete(session, &lease, done).await,
            None if is_cancelled => Worked::On(session),
            None => Worked::Lost,
        }
    }

    /// Tells the result until the server has it.
    async fn complete(&self, mut session: BotSession, lease: &Lease, done: Done) -> Worked {
        let result = done.result.as_ref().map(|result| Any {
            type_url: RESULT.to_owned(),
            value: result.encode_to_vec(),
        });
        session.leases = vec![Lease {
            payload: None,
            result,
            state: LeaseState::Completed as i32,
            status: Some(done.status),
            ..lease.clone()
        }];
        if self.stage() > Stage::Working {
            session.status = BotStatus::BotTerminating as i32;
        }
        let mut pause = Pause::new();
        let begun = Instant::now();
        loop {
            match self.update(&session, CALL_TIME).await {
                Ok(mut next) => {
                    next.leases.retain(|one| one.id != lease.id);
                    return Worked::On(next);
                }
                Err(Fault::Gone(why)) => {
                    log::info!("{}: the cluster has forgotten it: {why}", self.bot);
                    return Worked::Lost;
                }
                Err(Fault::Passing(why)) => log::warn!("{}: {why}", self.bot),
            }
            if self.stage() > Stage::Working && begun.elapsed() > FAREWELL {
                return Worked::Lost;
            }
            sleep(pause.next()).await;
        }
    }
}

/// What the server wants to be done.
fn next_lease(session: &BotSession) -> Option<Lease> {
    let is_new = |lease: &&Lease| [LeaseState::Pending as i32, LeaseState::Active as i32].contains(&lease.state);
    session.leases.iter().find(is_new).cloned()
}

fn within<T>(message: T, time: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(time);
    request
}

async fn answered(
    call: impl std::future::Future<Output = Result<BotSession, tonic::Status>>,
    time: Duration,
) -> Result<BotSession, Fault> {
    match timeout(time + GRACE, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Fault::Passing("it does not answer".to_owned())),
    }
}
