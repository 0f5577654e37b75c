//! The engine, looked at again and again; it may be absent, silent, or another one than before.

use serde_json::{json, Value};

use crate::client::{is_end, Client, Unserved};
use crate::files::folder::Folder;

pub struct Engine<'f> {
    folder: &'f Folder,
    client: Option<Client>,
}

/// What is to be told of it.
pub struct Look {
    /// Null where there is none.
    pub report: Value,
    state: &'static str,
    words: String,
}

impl Look {
    pub fn json(&self) -> Value {
        json!({"state": self.state, "words": self.words})
    }

    fn at(report: Value) -> Look {
        Look {
            report,
            state: "running",
            words: String::new(),
        }
    }

    fn nothing(why: &Unserved) -> Look {
        let state = match why {
            Unserved::Absent(_) => "absent",
            Unserved::Refused(..) => "refused",
            Unserved::Lost(_) => "silent",
        };
        Look {
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

    pub fn look(&mut self) -> Look {
        let was_known = self.client.is_some();
        match self.report() {
            // Another one may have taken its place.
            Err(Unserved::Lost(error)) if was_known && is_end(&error) => self.report(),
            found => found,
        }
        .map_or_else(|why| Look::nothing(&why), Look::at)
    }

    /// It may leave when nobody else needs it.
    pub fn let_go(&mut self) {
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
