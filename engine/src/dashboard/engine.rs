//! Asks the engine for its status. It may be absent, silent, or another engine than before.

use serde_json::{json, Value};

use crate::client::{is_end, Client, Unserved};
use crate::files::folder::Folder;

pub struct Engine<'f> {
    folder: &'f Folder,
    client: Option<Client>,
}

/// What the page is told about the engine.
pub struct EngineState {
    /// Null if no engine answers.
    pub report: Value,
    state: &'static str,
    words: String,
}

impl EngineState {
    pub fn json(&self) -> Value {
        json!({"state": self.state, "words": self.words})
    }

    fn running(report: Value) -> EngineState {
        EngineState {
            report,
            state: "running",
            words: String::new(),
        }
    }

    fn unavailable(why: &Unserved) -> EngineState {
        let state = match why {
            Unserved::Absent(_) => "absent",
            Unserved::Refused(..) => "refused",
            Unserved::Lost(_) => "silent",
        };
        EngineState {
            report: Value::Null,
            state,
            words: why.to_string(),
        }
    }
}

impl Engine<'_> {
    pub fn of(folder: &Folder) -> Engine<'_> {
        Engine { folder, client: None }
    }

    pub fn read(&mut self) -> EngineState {
        let was_known = self.client.is_some();
        match self.report() {
            // Another engine may have replaced the one that we were connected to.
            Err(Unserved::Lost(error)) if was_known && is_end(&error) => self.report(),
            found => found,
        }
        .map_or_else(|why| EngineState::unavailable(&why), EngineState::running)
    }

    /// Disconnects, so that the engine can leave when it is idle.
    pub fn disconnect(&mut self) {
        self.client = None;
    }

    fn report(&mut self) -> Result<Value, Unserved> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(self.folder, [0; 16], 0, b"wafd dashboard")?,
        };
        let report = client.report()?;
        self.client = Some(client);
        Ok(report)
    }
}
