//! The addresses of shared stores, as the setting `remote` has them:
//! `SCHEME://[USER[:PASSWORD]@]HOST[:PORT][/PATH][|NAME[=VALUE]]…`, separated by blanks, and for a Unix socket
//! `redis+unix:[//[[USER:]PASSWORD@localhost]]/PATH[?db=NUMBER][|NAME[=VALUE]]…`. `docs/tiers.md` describes them.
//!
//! Pure, and small: `wafcc` links it to report mistakes. No error contains a secret.

use std::fmt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use percent_encoding::percent_decode_str;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Another `wafd`, run with `wafd serve`.
    Room,
    Redis,
    Http,
    S3,
    /// A server of the Remote Execution API.
    Grpc,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Our own names in one folder.
    WebDav,
    /// `/ac` and `/cas`, as in bazel-remote.
    Bazel,
}

/// Time limits for one store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub connect: Duration,
    /// Until an answer begins, and between two of its bytes.
    pub silence: Duration,
    /// For the whole answer.
    pub whole: Duration,
    /// How long the store is left alone after its first error.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connect: Duration::from_millis(200),
            silence: Duration::from_millis(200),
            whole: Duration::from_secs(5),
            pause: Duration::from_secs(5),
        }
    }
}

/// The most commands that may be on a cluster at once.
const MOST_JOBS: usize = 4096;

#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// As it was written, with its secrets and attributes.
    pub text: String,
    pub scheme: Scheme,
    /// Uses TLS.
    pub is_secure: bool,
    pub user: Option<String>,
    pub password: Option<String>,
    /// For S3, the bucket.
    pub host: String,
    pub port: u16,
    /// A Unix socket in place of host and port.
    pub socket: Option<PathBuf>,
    /// Without the leading slash. For the Remote Execution API, the name of the instance.
    pub path: String,
    pub is_read_only: bool,
    pub limits: Limits,
    pub layout: Layout,
    /// A file whose first line is the password or the token.
    pub token_file: Option<PathBuf>,
    /// Certificates of the authorities to trust, instead of the system's.
    pub ca: Option<PathBuf>,
    /// The certificate by which we show who we are, and its private key. Both are there or none.
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// Commands run there, too.
    pub execution: Option<Execution>,
}

/// Commands for each processor of ours, if the address does not say how many.
const FOR_EACH: usize = 4;

/// How commands run on a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Execution {
    /// How many may be there at once, if that was said.
    pub jobs: Option<usize>,
    /// What a worker must have, by name.
    pub properties: Vec<(String, String)>,
    /// The lower, the sooner.
    pub priority: i32,
    /// Workers need not be ours: commands take along what a worker needs to make entries.
    pub any_worker: bool,
}

impl Execution {
    /// How many commands may be there at once.
    pub fn jobs(&self) -> usize {
        let usual = || FOR_EACH * thread::available_parallelism().map_or(1, |count| count.get());
        self.jobs.unwrap_or_else(usual)
    }
}

/// Without secrets, so it may be shown.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match (self.scheme, self.is_secure) {
            (Scheme::Room, false) => "tcp",
            (Scheme::Room, true) => "tcps",
            (Scheme::Redis, false) => "redis",
            (Scheme::Redis, true) => "rediss",
            (Scheme::Http, false) => "http",
            (Scheme::Http, true) => "https",
            (Scheme::S3, _) => "s3",
            (Scheme::Grpc, false) => "grpc",
            (Scheme::Grpc, true) => "grpcs",
        };
        if let Some(socket) = &self.socket {
            write!(f, "{SOCKET}{}", socket.display())?;
            return match &self.path[..] {
                "" => Ok(()),
                database => write!(f, "?db={database}"),
            };
        }
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        write!(f, "{name}://{host}")?;
        if self.scheme != Scheme::S3 {
            write!(f, ":{}", self.port)?;
        }
        if !self.path.is_empty() {
            write!(f, "/{}", self.path)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// All addresses of the setting, in order.
pub fn parse_all(text: &str) -> Result<Vec<Address>, String> {
    text.split_ascii_whitespace().map(parse).collect()
}

fn parse(text: &str) -> Result<Address, String> {
    let told = without_secrets(text);
    let wrong = |why: String| format!("{told}: {why}");
    const SCHEMES: &str =
        "write tcp://, tcps://, redis://, rediss://, redis+unix:, http://, https://, s3://, grpc:// or grpcs://";
    if let Some(rest) = text.strip_prefix(SOCKET) {
        let mut parts = rest.split('|');
        let address = Address {
            text: text.to_owned(),
            ..unix_socket(parts.next().unwrap_or_default()).map_err(wrong)?
        };
        return address.with(parts).map_err(wrong);
    }
    let (scheme, rest) = text
        .split_once("://")
        .ok_or_else(|| wrong(format!("not an address; {SCHEMES}")))?;
    let (scheme, is_secure, usual) = match scheme {
        "tcp" => (Scheme::Room, false, None),
        "tcps" => (Scheme::Room, true, None),
        "redis" => (Scheme::Redis, false, Some(6379)),
        "rediss" => (Scheme::Redis, true, Some(6379)),
        "http" => (Scheme::Http, false, Some(80)),
        "https" => (Scheme::Http, true, Some(443)),
        "s3" => (Scheme::S3, true, Some(443)),
        "grpc" => (Scheme::Grpc, false, None),
        "grpcs" => (Scheme::Grpc, true, None),
        other => return Err(wrong(format!("there is no scheme {other}; {SCHEMES}"))),
    };
    let mut parts = rest.split('|');
    let (authority, path) = split_path(parts.next().unwrap_or_default());
    let (login, place) = authority
        .rsplit_once('@')
        .map_or((None, authority), |(l, p)| (Some(l), p));
    let (host, port) = host_and_port(place).map_err(wrong)?;
    let port = port
        .or(usual)
        .ok_or_else(|| wrong("it lacks a port; write HOST:PORT".to_owned()))?;
    let (user, password) = match login.map(|login| login.split_once(':').map_or((login, None), |(u, p)| (u, Some(p)))) {
        None => (None, None),
        Some((user, password)) => (
            Some(decoded(user).map_err(wrong)?).filter(|user| !user.is_empty()),
            password.map(decoded).transpose().map_err(wrong)?,
        ),
    };
    let address = Address {
        text: text.to_owned(),
        user,
        password,
        port,
        path: path.trim_end_matches('/').to_owned(),
        ..Address::new(scheme, is_secure, host)
    };
    address.with(parts).map_err(wrong)
}

/// Redis behind a Unix socket, in the form that ccache has.
fn unix_socket(text: &str) -> Result<Address, String> {
    let (place, query) = text
        .split_once('?')
        .map_or((text, None), |(place, query)| (place, Some(query)));
    let (login, path) = match place.strip_prefix("//") {
        None => (None, place),
        // A socket's own name may have an @, but not the host's.
        Some(rest) => {
            let (authority, _) = split_path(rest);
            let login = authority.rsplit_once('@').map(|(login, _)| login);
            (login, &rest[authority.len()..])
        }
    };
    if !path.starts_with('/') {
        return Err("its socket is no absolute path; write redis+unix:/PATH".to_owned());
    }
    let database = match query {
        None => "",
        Some(query) => query
            .strip_prefix("db=")
            .ok_or("only its database can be named; write redis+unix:/PATH?db=0")?,
    };
    let mut address = Address {
        socket: Some(decoded(path)?.into()),
        path: database.to_owned(),
        ..Address::new(Scheme::Redis, false, "localhost".to_owned())
    };
    if let Some(login) = login {
        let (user, password) = login.split_once(':').unwrap_or(("", login));
        address.user = Some(decoded(user)?).filter(|user| !user.is_empty());
        address.password = Some(decoded(password)?);
    }
    Ok(address)
}

fn split_path(text: &str) -> (&str, &str) {
    text.split_once('/').unwrap_or((text, ""))
}

fn host_and_port(text: &str) -> Result<(String, Option<u16>), String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest
                .split_once(']')
                .ok_or("the bracket around its host is not closed")?;
            (host, port.strip_prefix(':'))
        }
        None => text.rsplit_once(':').map_or((text, None), |(h, p)| (h, Some(p))),
    };
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '@') {
        return Err("it lacks a host; write SCHEME://HOST".to_owned());
    }
    let number = |text: &str| text.parse().ok().filter(|port| *port != 0);
    match port {
        None => Ok((host.to_owned(), None)),
        Some(text) => match number(text) {
            Some(port) => Ok((host.to_owned(), Some(port))),
            None => Err("its port is not a number from 1 to 65535".to_owned()),
        },
    }
}

fn decoded(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded
        .map(|text| text.into_owned())
        .map_err(|_| "its login is not UTF-8".to_owned())
}

fn jobs(text: Option<&str>) -> Result<Option<usize>, String> {
    match text.map(str::parse) {
        None => Ok(None),
        Some(Ok(number @ 1..=MOST_JOBS)) => Ok(Some(number)),
        Some(_) => Err(format!(
            "execute is a number of commands up to {MOST_JOBS}; write execute=64"
        )),
    }
}

fn milliseconds(name: &str, text: Option<&str>) -> Result<Duration, String> {
    let number = text.and_then(|text| text.parse::<u64>().ok());
    match number {
        Some(number @ 1..=600_000) => Ok(Duration::from_millis(number)),
        _ => Err(format!("{name} is a number of milliseconds; write {name}=200")),
    }
}

impl Address {
    fn new(scheme: Scheme, is_secure: bool, host: String) -> Address {
        Address {
            text: String::new(),
            scheme,
            is_secure,
            user: None,
            password: None,
            host,
            port: 0,
            socket: None,
            path: String::new(),
            is_read_only: false,
            limits: Limits::default(),
            layout: Layout::WebDav,
            token_file: None,
            ca: None,
            cert: None,
            key: None,
            endpoint: None,
            region: None,
            execution: None,
        }
    }

    fn with<'a>(mut self, attributes: impl Iterator<Item = &'a str>) -> Result<Address, String> {
        for attribute in attributes {
            self.set(attribute)?;
        }
        self.check()?;
        Ok(self)
    }

    fn set(&mut self, attribute: &str) -> Result<(), String> {
        let (name, value) = attribute
            .split_once('=')
            .map_or((attribute, None), |(n, v)| (n, Some(v)));
        let text = || value.filter(|value| !value.is_empty()).map(str::to_owned);
        let needed = |what: &str| text().ok_or_else(|| format!("{name} needs {what}; write {name}=…"));
        match name {
            "read-only" => {
                self.is_read_only = match value {
                    None | Some("yes" | "true" | "1") => true,
                    Some("no" | "false" | "0") => false,
                    Some(_) => return Err("read-only is yes or no".to_owned()),
                }
            }
            "timeout" => self.limits.silence = milliseconds(name, value)?,
            "connect-timeout" => self.limits.connect = milliseconds(name, value)?,
            "operation-timeout" => self.limits.whole = milliseconds(name, value)?,
            "pause" => self.limits.pause = milliseconds(name, value)?,
            "token-file" => self.token_file = Some(needed("a file")?.into()),
            "ca" => self.ca = Some(needed("a file")?.into()),
            "cert" if self.scheme == Scheme::Grpc => self.cert = Some(needed("a file")?.into()),
            "key" if self.scheme == Scheme::Grpc => self.key = Some(needed("a file")?.into()),
            "execute" if self.scheme == Scheme::Grpc => self.execution_mut().jobs = jobs(value)?,
            "property" if self.scheme == Scheme::Grpc => {
                let property = value.and_then(|value| value.split_once('='));
                let property = property.filter(|(name, _)| !name.is_empty());
                let (name, value) =
                    property.ok_or("property needs a name and a value; write property=OSFamily=linux")?;
                let properties = &mut self.execution_mut().properties;
                properties.push((name.to_owned(), value.to_owned()));
            }
            "priority" if self.scheme == Scheme::Grpc => {
                let number = value.and_then(|value| value.parse().ok());
                self.execution_mut().priority = number.ok_or("priority is a number; write priority=10")?;
            }
            "workers" if self.scheme == Scheme::Grpc => {
                self.execution_mut().any_worker = match value {
                    Some("ours") => false,
                    Some("any") => true,
                    _ => return Err("workers is ours or any; write workers=any".to_owned()),
                }
            }
            "layout" if self.scheme == Scheme::Http => {
                self.layout = match value {
                    Some("webdav") => Layout::WebDav,
                    Some("bazel") => Layout::Bazel,
                    _ => return Err("layout is webdav or bazel".to_owned()),
                }
            }
            "endpoint" if self.scheme == Scheme::S3 => self.endpoint = Some(needed("an address")?),
            "region" if self.scheme == Scheme::S3 => self.region = Some(needed("a name")?),
            "access-key" if self.scheme == Scheme::S3 => self.user = Some(needed("a key")?),
            "secret-key" if self.scheme == Scheme::S3 => self.password = Some(needed("a key")?),
            other => {
                let which = "read-only, timeout, connect-timeout, operation-timeout, pause, token-file, ca";
                let more = match self.scheme {
                    Scheme::Http => ", layout",
                    Scheme::S3 => ", endpoint, region, access-key, secret-key",
                    Scheme::Grpc => ", cert, key, execute, property, priority, workers",
                    Scheme::Room | Scheme::Redis => "",
                };
                return Err(format!("there is no attribute {other} here; there are {which}{more}"));
            }
        }
        Ok(())
    }

    fn execution_mut(&mut self) -> &mut Execution {
        self.execution.get_or_insert_with(Execution::default)
    }

    fn check(&self) -> Result<(), String> {
        let is_number = || self.path.parse::<u32>().is_ok();
        match self.scheme {
            Scheme::Redis if self.socket.is_some() && !self.path.is_empty() && !is_number() => {
                Err("its database is a number; write redis+unix:/PATH?db=0".to_owned())
            }
            Scheme::Redis if !self.path.is_empty() && !is_number() => {
                Err("its database is a number; write redis://HOST/0".to_owned())
            }
            Scheme::Room if self.password.is_some() => {
                Err("it takes a token alone; write tcp://TOKEN@HOST:PORT".to_owned())
            }
            Scheme::Grpc if self.password.is_some() => {
                Err("it takes a token alone; write grpcs://TOKEN@HOST:PORT, or token-file".to_owned())
            }
            Scheme::Grpc if self.cert.is_some() != self.key.is_some() => {
                Err("a certificate and its key belong together; write cert=PATH|key=PATH".to_owned())
            }
            Scheme::Grpc if self.cert.is_some() && !self.is_secure => {
                Err("a certificate is shown with TLS only; write grpcs://".to_owned())
            }
            _ => Ok(()),
        }
    }
}

const SOCKET: &str = "redis+unix:";
const SECRETS: [&str; 2] = ["access-key=", "secret-key="];

/// The setting with its secrets hidden, even if it is malformed.
pub fn without_secrets(text: &str) -> String {
    let all: Vec<_> = text.split_ascii_whitespace().map(hide).collect();
    all.join(" ")
}

fn hide(address: &str) -> String {
    let mut parts = address.split('|');
    let first = parts.next().unwrap_or_default();
    let (scheme, rest) = first.split_once("://").unwrap_or(("", first));
    // A user may forget to write %2F for a slash in a password. Everything before the last @ is hidden.
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    let mut shown = match scheme {
        "" => String::new(),
        scheme => format!("{scheme}://"),
    };
    if place.len() < rest.len() {
        shown.push_str("***@");
    }
    shown.push_str(place);
    for part in parts {
        let secret = SECRETS.iter().find(|name| part.starts_with(**name));
        shown.push('|');
        match secret {
            Some(name) => shown.push_str(&format!("{name}***")),
            None => shown.push_str(part),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Address {
        let mut all = parse_all(text).unwrap();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    #[test]
    fn addresses_are_read_in_order() {
        let all = parse_all(" tcp://t0k@h:4000/team  redis://h https://u:p%40@h/a/b/|layout=bazel|read-only ").unwrap();
        let told: Vec<_> = all.iter().map(Address::to_string).collect();
        assert_eq!(told, ["tcp://h:4000/team", "redis://h:6379", "https://h:443/a/b"]);
        assert_eq!(all[0].user.as_deref(), Some("t0k"));
        assert_eq!(all[2].password.as_deref(), Some("p@"));
        assert_eq!((all[2].layout, all[2].is_read_only), (Layout::Bazel, true));
        assert_eq!(parse_all(""), Ok(Vec::new()));
    }

    #[test]
    fn a_password_needs_no_user() {
        let redis = one("redis://:geheim@[::1]:7000/2|timeout=90|connect-timeout=50");
        assert_eq!((redis.user, redis.password.as_deref()), (None, Some("geheim")));
        assert_eq!(
            (redis.host.as_str(), redis.port, redis.path.as_str()),
            ("::1", 7000, "2")
        );
        assert_eq!(redis.limits.silence, Duration::from_millis(90));
        assert_eq!(redis.limits.connect, Duration::from_millis(50));
    }

    #[test]
    fn redis_may_be_behind_a_socket() {
        for (text, shown, user, password) in [
            ("redis+unix:/run/r.sock", "redis+unix:/run/r.sock", None, None),
            (
                "redis+unix:///run/r.sock?db=3",
                "redis+unix:/run/r.sock?db=3",
                None,
                None,
            ),
            ("redis+unix://localhost/a%20b", "redis+unix:/a b", None, None),
            ("redis+unix://p%40@localhost/r", "redis+unix:/r", None, Some("p@")),
            (
                "redis+unix://u:p@localhost/r?db=0|read-only",
                "redis+unix:/r?db=0",
                Some("u"),
                Some("p"),
            ),
        ] {
            let address = one(text);
            assert_eq!(address.to_string(), shown, "{text}");
            assert_eq!(
                (address.user.as_deref(), address.password.as_deref()),
                (user, password),
                "{text}"
            );
            assert_eq!(address.is_read_only, text.contains('|'));
        }
        assert_eq!(
            without_secrets("redis+unix://u:p@localhost/r"),
            "redis+unix://***@localhost/r"
        );
    }

    #[test]
    fn a_server_of_the_remote_execution_api_has_an_instance_and_a_certificate() {
        let text = "grpcs://t%40k@h:8980/builds/main|cert=/c.pem|key=/k.pem|ca=/a.pem";
        let address = one(text);
        assert_eq!(address.to_string(), "grpcs://h:8980/builds/main");
        assert_eq!((address.scheme, address.is_secure), (Scheme::Grpc, true));
        assert_eq!(address.user.as_deref(), Some("t@k"));
        let files = [&address.cert, &address.key, &address.ca].map(|path| path.as_ref().unwrap().to_str());
        assert_eq!(files, [Some("/c.pem"), Some("/k.pem"), Some("/a.pem")]);
        // The text is all that another program needs to have the same address.
        assert_eq!(one(&address.text), address);
        assert_eq!(one("grpc://h:1").to_string(), "grpc://h:1");
    }

    #[test]
    fn commands_run_on_a_cluster_if_that_is_asked_for() {
        assert_eq!(one("grpc://h:1").execution, None);
        assert_eq!(one("grpc://h:1|execute").execution, Some(Execution::default()));
        let text = "grpc://h:1|execute=40|property=OSFamily=linux|property=pool=a=b|priority=-3|workers=any";
        let execution = one(text).execution.unwrap();
        assert_eq!(
            (execution.jobs, execution.priority, execution.any_worker),
            (Some(40), -3, true)
        );
        let expected = [("OSFamily", "linux"), ("pool", "a=b")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(execution.properties, expected);
    }

    #[test]
    fn a_mistake_is_named_with_its_remedy_and_without_secrets() {
        for (text, words) in [
            ("host", "not an address; write tcp://"),
            ("ftp://x:geheim@h", "there is no scheme ftp"),
            ("tcp://geheim@h", "it lacks a port"),
            ("tcp://x:geheim@h:1", "tcp://TOKEN@HOST:PORT"),
            ("redis://:geheim@", "it lacks a host"),
            ("redis://:geheim@h:0", "its port"),
            ("redis://:geheim@h/x", "its database"),
            ("redis://[::1", "bracket"),
            ("redis+unix://x:geheim@localhost", "no absolute path"),
            ("redis+unix:run/r.sock", "no absolute path"),
            ("redis+unix://x:geheim@localhost/r?db=x", "its database"),
            ("redis+unix:/r?key=1", "only its database"),
            ("redis://:geh/eim@h", "it lacks a host"),
            ("http://u:geheim@h|timeout=fast", "milliseconds"),
            ("http://u:geheim@h|layout=flat", "webdav or bazel"),
            ("redis://:geheim@h|layout=bazel", "there is no attribute layout"),
            ("grpc://geheim@h", "it lacks a port"),
            ("grpc://x:geheim@h:1", "grpcs://TOKEN@HOST:PORT"),
            ("grpcs://geheim@h:1|cert=/c", "belong together"),
            ("grpcs://geheim@h:1|key=/k", "belong together"),
            ("grpc://geheim@h:1|cert=/c|key=/k", "with TLS only"),
            ("grpcs://geheim@h:1|cert=", "cert needs a file"),
            ("tcps://geheim@h:1|cert=/c", "there is no attribute cert"),
            ("tcp://geheim@h:1|execute", "there is no attribute execute"),
            ("grpc://geheim@h:1|execute=0", "a number of commands"),
            ("grpc://geheim@h:1|execute=many", "a number of commands"),
            ("grpc://geheim@h:1|execute|property=linux", "a name and a value"),
            ("grpc://geheim@h:1|execute|priority=", "priority is a number"),
            ("grpc://geheim@h:1|workers=mine", "workers is ours or any"),
            ("s3://b|secret-key=geheim|region=", "region needs"),
            ("s3://b|secret-key=geheim|nonsense", "there is no attribute nonsense"),
        ] {
            let error = parse_all(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
            assert!(!error.contains("geheim") && !error.contains("eim@"), "{error}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(
            without_secrets("tcp://t@h:1 redis://h/0 s3://b|secret-key=x|region=r"),
            "tcp://***@h:1 redis://h/0 s3://b|secret-key=***|region=r"
        );
        assert_eq!(format!("{:?}", one("redis://:geheim@h")), "redis://h:6379");
    }
}
