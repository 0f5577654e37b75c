//! The status of the team's server, from its own report.

use std::time::Duration;

use serde_json::{json, Value};

use super::feed::Feed;
use crate::settings::address::Address;
use crate::tier::heartbeat::Heartbeat;
use crate::tier::web::{authorization, Web};

/// Longer than for the engine, since other machines use this server as well.
const INTERVAL: Duration = Duration::from_secs(5);
const LARGEST: usize = 1 << 20;

pub struct Team {
    name: String,
    url: String,
    web: Web,
    heartbeat: Heartbeat,
}

impl Team {
    pub fn new(address: &Address) -> Result<Team, String> {
        let wrong = |why: String| format!("--server {why}");
        let login = authorization(address).map_err(wrong)?;
        let root = Address {
            path: String::new(),
            ..address.clone()
        };
        Ok(Team {
            name: address.to_string(),
            url: format!("{root}/status"),
            web: Web::new(address, address.is_secure, login).map_err(wrong)?,
            heartbeat: Heartbeat::new(address.limits),
        })
    }

    fn read(&self) -> Value {
        self.heartbeat.begin();
        let status = match self.web.get(&self.url, LARGEST, &self.heartbeat) {
            Ok(Some(text)) => serde_json::from_slice::<Value>(&text).map_err(|_| "its answer is no report".to_owned()),
            Ok(None) => Err("it has no report: is it a wafd serve?".to_owned()),
            Err(fault) => Err(fault.words().to_owned()),
        };
        match status {
            Ok(status) => json!({"name": self.name, "status": status}),
            Err(words) => json!({"name": self.name, "words": words}),
        }
    }
}

/// Asks while a page is open, until the dashboard ends.
pub fn ask(feed: &Feed, team: &Team) {
    while feed.is_wanted() {
        feed.set_team(team.read());
        feed.pause(INTERVAL);
    }
}
