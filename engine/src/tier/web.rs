//! Values by HTTP: what WebDAV, bazel-remote and S3 have in common.

use std::io;
use std::sync::Arc;

use base64::prelude::{Engine, BASE64_STANDARD};
use ureq::http::{Method, Request, Response};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, AsSendBody, Body, Error, Timeout};

use super::heartbeat::Heartbeat;
use super::stream::{certificates, fault, secret};
use super::{Fault, Shape};
use crate::settings::address::Address;

pub const SHAPE: Shape = Shape {
    workers: 8,
    // No such server answers several names at once.
    batch: 1,
    // Each takes some requests, one after the other, to servers that may be far away.
    uploads: 4,
};

pub struct Web {
    agent: Agent,
    /// The login that is sent with each request, if there is one.
    authorization: Option<String>,
}

impl Web {
    /// With `is_secure`, certificates are needed.
    pub fn new(address: &Address, is_secure: bool, authorization: Option<String>) -> Result<Web, String> {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent("wafd")
            .max_idle_connections_per_host(SHAPE.workers + SHAPE.uploads);
        if is_secure {
            let roots: Vec<_> = certificates(address)?
                .iter()
                .map(|certificate| Certificate::from_der(certificate).to_owned())
                .collect();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let tls = TlsConfig::builder()
                .root_certs(RootCerts::Specific(Arc::new(roots)))
                .unversioned_rustls_crypto_provider(provider);
            config = config.tls_config(tls.build());
        }
        Ok(Web {
            agent: config.build().new_agent(),
            authorization,
        })
    }

    pub fn get(&self, url: &str, largest: usize, heartbeat: &Heartbeat) -> Result<Option<Vec<u8>>, Fault> {
        let mut response = self.ask(Method::GET, url, &[], heartbeat)?;
        match response.status().as_u16() {
            200 => {}
            404 | 410 => return Ok(None),
            status => return Err(unexpected(status)),
        }
        // The answer has begun. This is the limit for all of it.
        heartbeat.allow(heartbeat.limits.whole);
        let body = response.body_mut().with_config().limit(largest as u64 + 1);
        match body.read_to_vec() {
            Ok(bytes) if bytes.len() <= largest => Ok(Some(bytes)),
            Ok(_) => Err(Fault::Failed("its answer is too large".to_owned())),
            Err(error) => Err(failure(error, heartbeat)),
        }
    }

    pub fn has(&self, url: &str, heartbeat: &Heartbeat) -> Result<bool, Fault> {
        match self.ask(Method::HEAD, url, &[], heartbeat)?.status().as_u16() {
            200 | 204 => Ok(true),
            404 | 410 => Ok(false),
            status => Err(unexpected(status)),
        }
    }

    pub fn put(&self, url: &str, value: &[u8], heartbeat: &Heartbeat) -> Result<(), Fault> {
        match self.ask(Method::PUT, url, value, heartbeat)?.status().as_u16() {
            200..=299 => Ok(()),
            status => Err(unexpected(status)),
        }
    }

    fn ask(&self, method: Method, url: &str, body: &[u8], heartbeat: &Heartbeat) -> Result<Response<Body>, Fault> {
        let is_put = method == Method::PUT;
        let mut request = Request::builder().method(method).uri(url);
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let limits = heartbeat.limits;
        let sending = if is_put { limits.whole } else { limits.silence };
        heartbeat.allow(limits.connect + sending + limits.silence);
        if is_put {
            self.run(request.body(body), heartbeat)
        } else {
            self.run(request.body(()), heartbeat)
        }
    }

    fn run<B: AsSendBody>(
        &self,
        request: ureq::http::Result<Request<B>>,
        heartbeat: &Heartbeat,
    ) -> Result<Response<Body>, Fault> {
        let limits = heartbeat.limits;
        let request = request.map_err(|error| failure(error.into(), heartbeat))?;
        let request = self.agent.configure_request(request);
        let request = request
            .timeout_resolve(Some(limits.connect))
            .timeout_connect(Some(limits.connect))
            .timeout_recv_response(Some(limits.silence))
            .timeout_global(Some(limits.connect + limits.whole));
        let response = self.agent.run(request.build());
        response.map_err(|error| failure(error, heartbeat))
    }
}

/// A login is sent as Basic, a token alone as Bearer.
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

fn unexpected(status: u16) -> Fault {
    let remedy = match status {
        401 => ": give the right login, as in http://USER:PASSWORD@HOST",
        403 => ": it is forbidden with this login",
        405 => ": it has to allow GET, HEAD and PUT",
        409 => ": the folder of the address is not there; make it first",
        413 => ": it has to allow larger values",
        _ => "",
    };
    Fault::Failed(format!("it answered with status {status}{remedy}"))
}

fn failure(error: Error, heartbeat: &Heartbeat) -> Fault {
    match error {
        Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
            let time = heartbeat.limits.connect.as_millis();
            Fault::Silent(format!("it took no connection within {time} ms"))
        }
        Error::Timeout(_) => fault(&io::ErrorKind::TimedOut.into(), heartbeat),
        Error::Io(error) => fault(&error, heartbeat),
        Error::HostNotFound => Fault::Failed("its name has no address".to_owned()),
        Error::ConnectionFailed => Fault::Failed("the connection failed".to_owned()),
        Error::BodyExceedsLimit(_) => Fault::Failed("its answer is too large".to_owned()),
        Error::Rustls(error) => Fault::Failed(format!("TLS with it failed: {error}")),
        Error::Tls(_) => Fault::Failed("TLS with it failed".to_owned()),
        other => {
            log::debug!("HTTP: {other}");
            Fault::garbled()
        }
    }
}
