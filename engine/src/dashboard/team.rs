//! How a team's server does, by its own report.

use std::time::Duration;

use serde_json::{json, Value};

use super::feed::Feed;
use crate::settings::address::Address;
use crate::tier::heartbeat::Heartbeat;
use crate::tier::web::{authorization, Web};

/// It is somebody else's machine.
const INTERVAL: Duration = Duration::from_secs(5);
const LARGEST: usize = 1 << 20;

pub struct Team {
    /// Without secrets.
    name: String,
    url: String,
    web: Web,
    heartbeat: Heartbeat,
}

impl Team {
    pub fn new(address: &Address) -> Result<Team, String> {
        let wrong = |why: String| format!("--server {why}");
        let login = authorization(address).map_err(wrong)?;
        Ok(Team {
            name: address.to_string(),
            url: format!(
                "{}/status",
                Address {
                    path: String::new(),
                    ..address.clone()
                }
            ),
            web: Web::new(address, address.is_secure, login).map_err(wrong)?,
            heartbeat: Heartbeat::new(address.limits),
        })
    }

    fn look(&self) -> Value {
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

/// Asks while somebody looks, until it is over.
pub fn ask(feed: &Feed, team: &Team) {
    while feed.is_wanted() {
        feed.set_team(team.look());
        feed.pause(INTERVAL);
    }
}
