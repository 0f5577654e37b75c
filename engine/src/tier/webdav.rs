//! A tier that is a server of files by HTTP: `GET`, `HEAD` and `PUT` of names in one folder.

use std::sync::Arc;

use base64::prelude::{Engine, BASE64_STANDARD};

use super::address::Address;
use super::pulse::Pulse;
use super::stream::secret;
use super::values::{Name, Values};
use super::web::{Web, UPLOADS, WORKERS};
use super::{Fault, Shape};

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
            Name::Shelf(key) => format!("{}/{key}.entries", self.folder),
            Name::Blob(digest) => format!("{}/{digest}.blob", self.folder),
        }
    }
}

/// A login is Basic; a token alone is a Bearer.
pub fn authorization(address: &Address) -> Result<Option<String>, String> {
    let secret = secret(address)?;
    Ok(match (&address.user, secret) {
        (Some(user), secret) => {
            let login = format!("{user}:{}", secret.unwrap_or_default());
            Some(format!("Basic {}", BASE64_STANDARD.encode(login)))
        }
        (None, Some(token)) => Some(format!("Bearer {token}")),
        (None, None) => None,
    })
}

/// For servers that answer one name at a time.
pub fn get_each(
    names: &[Name],
    get: impl Fn(&Name) -> Result<Option<Vec<u8>>, Fault>,
) -> Result<Vec<Option<Vec<u8>>>, Fault> {
    names.iter().map(get).collect()
}

impl Values for WebDav {
    fn shape(&self) -> Shape {
        Shape {
            workers: WORKERS,
            batch: 1,
            uploads: UPLOADS,
        }
    }

    fn get(&self, names: &[Name], largest: usize, pulse: &Arc<Pulse>) -> Result<Vec<Option<Vec<u8>>>, Fault> {
        get_each(names, |name| self.web.get(&self.url(name), largest, pulse))
    }

    fn has(&self, name: &Name, pulse: &Arc<Pulse>) -> Result<bool, Fault> {
        self.web.has(&self.url(name), pulse)
    }

    fn put(&self, name: &Name, value: &[u8], pulse: &Arc<Pulse>) -> Result<(), Fault> {
        self.web.put(&self.url(name), value, pulse)
    }
}
