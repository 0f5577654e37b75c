//! Asks the engine of a store about it. An engine is started if there is none, since the counts are in the store.

use std::io;
use std::time::Duration;

use super::run::Home;
use crate::client::{Client, Unserved};
use crate::report::question::{Answer, Question, Request};
use crate::settings::{Key, Settings};

/// Removing a whole store from a slow disk takes time.
const WORK_TIME: Duration = Duration::from_secs(600);
/// Reports do not.
const TELL_TIME: Duration = Duration::from_secs(15);
const STOP_TIME: Duration = Duration::from_secs(60);

/// The engine's answer. A refusal is an error.
pub fn ask(settings: &Settings, request: Request) -> Result<Answer, String> {
    let home = Home::of(settings);
    put(&home, request, || home.connect())
}

/// Tells a running engine a new value. An engine that starts later reads its settings itself.
pub fn tell(settings: &Settings, key: Key, value: &str) -> Result<(), String> {
    let home = Home::of(settings);
    let request = Request::Set {
        name: key.name().to_owned(),
        value: value.to_owned(),
    };
    match connect(&home) {
        Err(Unserved::Absent(_)) => Ok(()),
        client => put(&home, request, || client).map(drop),
    }
}

/// Whether an engine runs, with settings of its own.
pub fn is_there(settings: &Settings) -> bool {
    connect(&Home::of(settings)).is_ok()
}

/// Ends the engine when its commands have ended. If no engine runs, nothing is to be done.
pub fn shut_down(settings: &Settings) -> Result<(), String> {
    let home = Home::of(settings);
    let failed = |e: io::Error| format!("the engine did not stop: {e}; `wafd stop --now` ends its commands too");
    match connect(&home) {
        Err(Unserved::Absent(_)) => Ok(()),
        Err(other) => Err(other.to_string()),
        Ok(client) => client.stop(false, Some(STOP_TIME)).map_err(failed),
    }
}

fn connect(home: &Home) -> Result<Client, Unserved> {
    Client::connect(&home.folder, [0; 16], 0, b"wafcc")
}

fn put(home: &Home, request: Request, connect: impl FnOnce() -> Result<Client, Unserved>) -> Result<Answer, String> {
    let nowhere = "there is no place for a store: set WAFCC_DIR or HOME";
    let store = home.store.clone().ok_or(nowhere)?;
    let patience = patience_for(&request);
    let question = Question { store, request }.encode()?;
    let mut client = connect().map_err(|e| e.to_string())?;
    let failed = |e: io::Error| match e.kind() {
        // a time-out of a socket is told in either way
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!(
                "the engine has no answer within {} s: does its store answer?",
                patience.as_secs()
            )
        }
        _ => Unserved::Lost(e).to_string(),
    };
    client.patience(Some(patience)).map_err(failed)?;
    let answer = client.ask_cache(question).map_err(failed)?;
    match Answer::decode(&answer)? {
        Answer::Refusal(why) => Err(why),
        answer => Ok(answer),
    }
}

fn patience_for(request: &Request) -> Duration {
    match request {
        Request::Statistics | Request::Explain { .. } | Request::Set { .. } => TELL_TIME,
        Request::Zero | Request::Clear | Request::Evict { .. } | Request::CleanUp => WORK_TIME,
    }
}
