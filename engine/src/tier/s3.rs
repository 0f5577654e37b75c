//! A tier on a bucket of S3, or of a server with the same protocol. The crate signs addresses, which are then requested by
//! HTTP.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use rusty_s3::actions::{GetObject, HeadObject, PutObject, S3Action};
use rusty_s3::{Bucket, Credentials, UrlStyle};

use super::heartbeat::Heartbeat;
use super::stream::secret;
use super::values::{Name, Values};
use super::web::{self, Web};
use super::{Fault, Shape};
use crate::settings::address::Address;

/// How long a signature is valid. Clocks may differ.
const VALIDITY: Duration = Duration::from_secs(900);

pub struct S3 {
    web: Web,
    bucket: Bucket,
    /// None for a public bucket.
    credentials: Option<Credentials>,
    prefix: String,
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

impl S3 {
    pub fn new(address: &Address) -> Result<S3, String> {
        let region = address.region.clone();
        let region = region
            .or_else(|| variable("AWS_REGION"))
            .or_else(|| variable("AWS_DEFAULT_REGION"))
            .unwrap_or_else(|| "us-east-1".to_owned());
        let endpoint = address.endpoint.clone();
        let endpoint = endpoint
            .or_else(|| variable("AWS_ENDPOINT_URL_S3"))
            .or_else(|| variable("AWS_ENDPOINT_URL"));
        // Except at Amazon, a bucket has no host name of its own.
        let style = match endpoint {
            Some(_) => UrlStyle::Path,
            None => UrlStyle::VirtualHost,
        };
        let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let wrong = || format!("{address}: its endpoint is no address; write endpoint=https://HOST[:PORT]");
        let url = endpoint.parse().map_err(|_| wrong())?;
        let bucket = Bucket::new(url, style, address.host.clone(), region).map_err(|_| wrong())?;
        let credentials = credentials(address)?;
        let prefix = match address.path.as_str() {
            "" => String::new(),
            path => format!("{path}/"),
        };
        Ok(S3 {
            web: Web::new(address, endpoint.starts_with("https:"), None)?,
            bucket,
            credentials,
            prefix,
        })
    }

    fn name(&self, name: &Name) -> String {
        match name {
            Name::Bundle(key) => format!("{}{key}.entries", self.prefix),
            Name::Blob(digest) => format!("{}{digest}.blob", self.prefix),
        }
    }
}

/// The keys of the address, otherwise those of the environment.
fn credentials(address: &Address) -> Result<Option<Credentials>, String> {
    let own = (address.user.clone(), secret(address)?);
    match own {
        (Some(key), Some(secret)) => return Ok(Some(Credentials::new(key, secret))),
        (None, None) => {}
        _ => {
            return Err(format!(
                "{address}: give access-key and secret-key, or neither and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            ))
        }
    }
    let (Some(key), Some(secret)) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) else {
        return Ok(None);
    };
    Ok(Some(match variable("AWS_SESSION_TOKEN") {
        Some(token) => Credentials::new_with_token(key, secret, token),
        None => Credentials::new(key, secret),
    }))
}

impl Values for S3 {
    fn shape(&self) -> Shape {
        web::SHAPE
    }

    fn get(&self, names: &[Name], largest: usize, heartbeat: &Arc<Heartbeat>) -> Result<Vec<Option<Vec<u8>>>, Fault> {
        let get = |name| {
            let name = self.name(name);
            let url = GetObject::new(&self.bucket, self.credentials.as_ref(), &name).sign(VALIDITY);
            self.web.get(url.as_str(), largest, heartbeat)
        };
        names.iter().map(get).collect()
    }

    fn has(&self, name: &Name, heartbeat: &Arc<Heartbeat>) -> Result<bool, Fault> {
        let name = self.name(name);
        let url = HeadObject::new(&self.bucket, self.credentials.as_ref(), &name).sign(VALIDITY);
        self.web.has(url.as_str(), heartbeat)
    }

    fn put(&self, name: &Name, value: &[u8], heartbeat: &Arc<Heartbeat>) -> Result<(), Fault> {
        let name = self.name(name);
        let url = PutObject::new(&self.bucket, self.credentials.as_ref(), &name).sign(VALIDITY);
        self.web.put(url.as_str(), value, heartbeat)
    }
}
