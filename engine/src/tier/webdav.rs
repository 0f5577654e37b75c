//! A tier on an HTTP server of files: `GET`, `HEAD` and `PUT` of names in one folder.

use std::sync::Arc;

use super::heartbeat::Heartbeat;
use super::values::{Name, Values};
use super::web::{self, authorization, Web};
use super::{Fault, Shape};
use crate::settings::address::Address;

pub struct WebDav {
    web: Web,
    folder: String,
}

impl WebDav {
    pub fn new(address: &Address) -> Result<WebDav, String> {
        Ok(WebDav {
            web: Web::new(address, address.is_secure, authorization(address)?)?,
            folder: address.to_string(),
        })
    }

    fn url(&self, name: &Name) -> String {
        match name {
            Name::Bundle(key) => format!("{}/{key}.entries", self.folder),
            Name::Blob(digest) => format!("{}/{digest}.blob", self.folder),
        }
    }
}

impl Values for WebDav {
    fn shape(&self) -> Shape {
        web::SHAPE
    }

    fn get(&self, names: &[Name], largest: usize, heartbeat: &Arc<Heartbeat>) -> Result<Vec<Option<Vec<u8>>>, Fault> {
        let get = |name| self.web.get(&self.url(name), largest, heartbeat);
        names.iter().map(get).collect()
    }

    fn has(&self, name: &Name, heartbeat: &Arc<Heartbeat>) -> Result<bool, Fault> {
        self.web.has(&self.url(name), heartbeat)
    }

    fn put(&self, name: &Name, value: &[u8], heartbeat: &Arc<Heartbeat>) -> Result<(), Fault> {
        self.web.put(&self.url(name), value, heartbeat)
    }
}
