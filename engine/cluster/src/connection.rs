//! A connection to a cluster: one for all calls, made when it is first used, and made again when it broke.

use std::fs;
use std::future::Future;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use prost::Message;
use tonic::metadata::{Ascii, BinaryMetadataValue, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::service::Interceptor;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};
use wafengine::settings::address::Address;
pub use wafengine::tier::Fault;

use crate::reapi::{RequestMetadata, ToolDetails};

/// The header with which every call tells for which build it is made.
const METADATA: &str = "build.bazel.remote.execution.v2.requestmetadata-bin";
/// How many bytes may be on their way to us on one call, and on all calls of the connection.
const WINDOW: u32 = 2 << 20;
const WINDOW_OF_ALL: u32 = 8 << 20;
/// A peer that vanished without a word is noticed after both.
const ALIVE_EVERY: Duration = Duration::from_secs(20);
const ALIVE_WITHIN: Duration = Duration::from_secs(10);

/// Why something is declined that a caller may not do.
pub const NOT_PERMITTED: &str = "it does not permit that";

/// What tonic's clients of the API call.
pub type Channel = InterceptedService<tonic::transport::Channel, Credentials>;

#[derive(Clone)]
pub struct Connection {
    channel: tonic::transport::Channel,
    credentials: Credentials,
    instance: Arc<str>,
}

/// Adds to each call who calls, and for which build.
#[derive(Clone)]
pub struct Credentials {
    token: Option<Arc<Token>>,
    metadata: BinaryMetadataValue,
}

enum Token {
    Fixed(MetadataValue<Ascii>),
    /// The first line of a file, which may be renewed at any time.
    File(Box<Path>, Mutex<Option<(Stamp, MetadataValue<Ascii>)>>),
}

/// What tells that a file was not changed.
type Stamp = (SystemTime, u64);

impl Connection {
    /// Makes no connection yet. Must be called in a runtime of tokio.
    pub fn new(address: &Address) -> Result<Connection, String> {
        let wrong = |why: String| format!("{address}: {why}");
        let scheme = if address.is_secure { "https" } else { "http" };
        let host = match address.host.contains(':') {
            true => format!("[{}]", address.host),
            false => address.host.clone(),
        };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{host}:{}", address.port));
        let mut endpoint = endpoint
            .map_err(|error| wrong(format!("no address: {error}")))?
            .connect_timeout(address.limits.connect)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW_OF_ALL)
            .http2_keep_alive_interval(ALIVE_EVERY)
            .keep_alive_timeout(ALIVE_WITHIN);
        if address.is_secure {
            let tls = security(address).map_err(wrong)?;
            endpoint = endpoint
                .tls_config(tls)
                .map_err(|error| wrong(format!("TLS: {}", with_causes(&error))))?;
        }
        let token = match (&address.token_file, &address.user) {
            (Some(path), _) => {
                let token = Token::File(path.clone().into(), Mutex::default());
                token.value().map_err(wrong)?;
                Some(token)
            }
            (None, Some(user)) => Some(Token::Fixed(bearer(user).map_err(wrong)?)),
            (None, None) => None,
        };
        Ok(Connection {
            channel: endpoint.connect_lazy(),
            credentials: Credentials {
                token: token.map(Arc::new),
                metadata: metadata(""),
            },
            instance: address.path.as_str().into(),
        })
    }

    pub fn instance(&self) -> &str {
        &self.instance
    }

    pub fn channel(&self) -> Channel {
        InterceptedService::new(self.channel.clone(), self.credentials.clone())
    }

    /// The same connection. Calls over it tell the cluster to which build they belong.
    #[must_use]
    pub fn with_correlation(&self, invocation: &str) -> Connection {
        let mut connection = self.clone();
        connection.credentials.metadata = metadata(invocation);
        connection
    }
}

fn security(address: &Address) -> Result<ClientTlsConfig, String> {
    let read = |path: &Path| fs::read(path).map_err(|error| format!("read {}: {error}", path.display()));
    let tls = ClientTlsConfig::new();
    let tls = match &address.ca {
        Some(path) => tls.ca_certificate(Certificate::from_pem(read(path)?)),
        None => tls.with_native_roots(),
    };
    Ok(match (&address.cert, &address.key) {
        (Some(cert), Some(key)) => tls.identity(Identity::from_pem(read(cert)?, read(key)?)),
        _ => tls,
    })
}

fn metadata(invocation: &str) -> BinaryMetadataValue {
    let metadata = RequestMetadata {
        tool_details: Some(ToolDetails {
            tool_name: "waflib-extras".to_owned(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        }),
        tool_invocation_id: invocation.to_owned(),
        ..RequestMetadata::default()
    };
    BinaryMetadataValue::from_bytes(&metadata.encode_to_vec())
}

fn bearer(token: &str) -> Result<MetadataValue<Ascii>, String> {
    let value = MetadataValue::from_str(&format!("Bearer {token}"));
    let mut value = value.map_err(|_| "its token has characters that no header may have".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

impl Token {
    fn value(&self) -> Result<MetadataValue<Ascii>, String> {
        let (path, known) = match self {
            Token::Fixed(value) => return Ok(value.clone()),
            Token::File(path, known) => (path, known),
        };
        let failed = |error: std::io::Error| format!("read {}: {error}", path.display());
        let status = fs::metadata(path).map_err(failed)?;
        let stamp = (status.modified().map_err(failed)?, status.len());
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((of, value)) if *of == stamp => Ok(value.clone()),
            _ => {
                let text = fs::read_to_string(path).map_err(failed)?;
                let line = text.lines().next().map(str::trim).unwrap_or_default();
                if line.is_empty() {
                    return Err(format!("the first line of {} is empty", path.display()));
                }
                let value = bearer(line)?;
                *known = Some((stamp, value.clone()));
                Ok(value)
            }
        }
    }
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let headers = request.metadata_mut();
        headers.insert_bin(METADATA, self.metadata.clone());
        if let Some(token) = &self.token {
            headers.insert("authorization", token.value().map_err(Status::unauthenticated)?);
        }
        Ok(request)
    }
}

/// Waits for an answer no longer than this.
pub async fn within<T>(time: Duration, answer: impl Future<Output = Result<T, Status>>) -> Result<T, Fault> {
    match tokio::time::timeout(time, answer).await {
        Ok(answer) => answer.map_err(|status| fault(&status)),
        Err(_) => Err(silent(time)),
    }
}

pub fn silent(time: Duration) -> Fault {
    Fault::Silent(format!("it did not answer within {} ms", time.as_millis()))
}

/// What a status of a call means for us, in one of few texts, under which failures are counted.
pub fn fault(status: &Status) -> Fault {
    log::debug!("{}: {}: {}", status.code(), status.message(), with_causes(status));
    let words = match status.code() {
        Code::DeadlineExceeded => return Fault::Silent("it did not do it in time".to_owned()),
        Code::Unauthenticated => "it does not know the token; name one by token-file".to_owned(),
        Code::PermissionDenied => return Fault::Declined(NOT_PERMITTED.to_owned()),
        Code::ResourceExhausted => return Fault::Declined("it is full, or the message was too large".to_owned()),
        Code::Unimplemented => "it does not offer that".to_owned(),
        Code::InvalidArgument | Code::NotFound if status.message().contains("nstance") => {
            "it has no such instance; write grpc://HOST:PORT/INSTANCE".to_owned()
        }
        Code::Unavailable | Code::Unknown | Code::Cancelled if is_of_connection(status) => {
            return of_connection(status)
        }
        Code::Unavailable => "it is not available".to_owned(),
        code => format!("it failed: {}", code.description()),
    };
    Fault::Failed(words)
}

fn is_of_connection(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

/// Why there is no connection.
fn of_connection(status: &Status) -> Fault {
    let all = with_causes(status);
    let known = [
        ("Connection refused", "nothing listens there"),
        ("dns error", "its name has no address"),
        (
            "UnknownIssuer",
            "TLS: an unknown authority has signed its certificate; name one by ca",
        ),
        ("NotValidForName", "TLS: its certificate is for another name"),
        (
            "CertificateRequired",
            "TLS: it wants a client certificate; name one by cert and key",
        ),
        ("InvalidContentType", "TLS: it speaks no TLS; write grpc://"),
        ("Expired", "TLS: its certificate has expired"),
        (
            "close_notify",
            "TLS: it closed the connection; if it wants a client certificate, name one by cert and key",
        ),
        ("connection closed", "it closed the connection"),
    ];
    if ["deadline has elapsed", "timed out"]
        .iter()
        .any(|cause| all.contains(cause))
    {
        return Fault::Silent("no connection was made in time".to_owned());
    }
    let found = known.iter().find(|(cause, _)| all.contains(cause));
    Fault::Failed(found.map_or("the connection failed", |(_, words)| words).to_owned())
}

/// An error with all that caused it. Only the last cause says what has happened.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
