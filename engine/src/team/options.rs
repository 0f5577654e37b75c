//! The command line of `wafd serve`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use lexopt::prelude::*;

use super::limits::Limits;
use crate::bytes::quantity;
use crate::http::asker;

pub const HELP: &str = "\
wafd serve keeps a cache for a team: other machines' wafd, and programs that store in HTTP or Redis, ask it over TCP.

Usage: wafd serve --listen ADDR [--listen ADDR ...] [--plain ADDR ...] [OPTIONS]
       wafd serve --new-token NAME [--write] [--namespace NAME] --tokens FILE

Options:
  --listen ADDR         address and port; port 0 is any that is free. It prints those it listens on
  --plain ADDR          the same without TLS, where --listen has it: for clients that do not speak it
  --host NAME           a name or address by which HTTP may be asked, beside those of this machine; may be repeated
  --store DIR           folder of the store [$XDG_CACHE_HOME/wafd-serve, or ~/.cache/wafd-serve]
  --max-size SIZE       of the store; what was not used longest goes first [50G]
  --quota NAME=SIZE     of what a namespace holds, - is the common one; what it did not use longest goes first [none]
  --memory SIZE         for contents that were asked for lately [256M]
  --tokens FILE         who may do what: lines of \"NAME read|write NAMESPACE TOKEN\", mode 0600; it is read again when it changes
  --tls-cert FILE       certificates of this server, PEM; then all speak TLS
  --tls-key FILE        their private key, PEM
  --tls-client-ca FILE  clients have to show a certificate that one of these has signed
  --log-writes FILE     a line of JSON for whatever somebody writes
  --open-metrics        /metrics and /status take no token from this machine
  --max-connections N   [10500]
  --max-blob SIZE       of one blob or value [1G]
  --uploads SIZE        memory for what comes in; the rest of it goes to files [256M]
  --rate N              requests per second and connection; 0 is any number [0]
  --patience SECONDS    for what has begun and does not go on [30]
  --workers N           threads that serve [one for two processors, at most 8]
  --new-token NAME      add a token to the file of --tokens, and print it; it may read
  --write               it may also write
  --namespace NAME      its keys are its own namespace's; - is the common one [-]

Environment:
  WAFD_SERVE_TOKEN  a token that may read and write
  WAFD_LOG          error, warn, info or debug [info]

Without any token it serves every program of this machine, and listens on loopback only.
It ends with SIGTERM, after what is under way. Exit status: 0, or 1 with one line that says why.

Examples:
  wafd serve --new-token ci --write --tokens /etc/wafd/tokens
  wafd serve --listen 0.0.0.0:7117 --tokens /etc/wafd/tokens --tls-cert cert.pem --tls-key key.pem
  CCACHE_REMOTE_STORAGE='http://127.0.0.1:7117|layout=bazel' ccache gcc -c x.c
";

pub enum Act {
    Print(&'static str),
    Serve(Box<Options>),
    NewToken {
        name: String,
        writes: bool,
        namespace: String,
        file: PathBuf,
    },
}

pub struct Options {
    pub listen: Vec<SocketAddr>,
    /// Without TLS.
    pub plain: Vec<SocketAddr>,
    pub hosts: Vec<String>,
    pub store: PathBuf,
    pub max_size: u64,
    /// Of namespaces.
    pub quotas: Vec<(String, u64)>,
    pub memory: u64,
    pub tokens: Option<PathBuf>,
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub tls_client_ca: Option<PathBuf>,
    pub log_writes: Option<PathBuf>,
    pub open_metrics: bool,
    pub workers: usize,
    pub limits: Limits,
}

/// What was said so far.
struct Said {
    options: Options,
    store: Option<PathBuf>,
    new_token: Option<String>,
    writes: bool,
    namespace: String,
}

impl Said {
    fn nothing() -> Said {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Said {
            options: Options {
                listen: Vec::new(),
                plain: Vec::new(),
                hosts: Vec::new(),
                store: PathBuf::new(),
                max_size: 50_000_000_000,
                quotas: Vec::new(),
                memory: 256_000_000,
                tokens: None,
                tls_cert: None,
                tls_key: None,
                tls_client_ca: None,
                log_writes: None,
                open_metrics: false,
                // The other half of the processors is busy with the network, or with who asks from this machine.
                workers: (processors / 2).clamp(1, 8),
                limits: Limits {
                    connections: 10_500,
                    patience: Duration::from_secs(30),
                    blob: 1_000_000_000,
                    rate: 0,
                    uploads: 256_000_000,
                },
            },
            store: None,
            new_token: None,
            writes: false,
            namespace: "-".to_owned(),
        }
    }
}

/// Of what follows `serve`.
pub fn parse(mut parser: lexopt::Parser) -> Result<Act, lexopt::Error> {
    let mut said = Said::nothing();
    while let Some(arg) = parser.next()? {
        let Long(name) = arg else {
            return match arg {
                Short('h') => Ok(Act::Print(HELP)),
                other => Err(other.unexpected()),
            };
        };
        if name == "help" {
            return Ok(Act::Print(HELP));
        }
        let name = name.to_owned();
        if !hear_switch(&mut said, &name) && !hear(&mut said, &name, &mut parser)? {
            return Err(format!("there is no option --{name}").into());
        }
    }
    finish(said).map_err(lexopt::Error::from)
}

fn hear_switch(said: &mut Said, name: &str) -> bool {
    match name {
        "open-metrics" => said.options.open_metrics = true,
        "write" => said.writes = true,
        _ => return false,
    }
    true
}

fn hear(said: &mut Said, name: &str, parser: &mut lexopt::Parser) -> Result<bool, lexopt::Error> {
    let options = &mut said.options;
    let mut path = || parser.value().map(|value| Some(PathBuf::from(value)));
    match name {
        "store" => said.store = path()?,
        "tokens" => options.tokens = path()?,
        "tls-cert" => options.tls_cert = path()?,
        "tls-key" => options.tls_key = path()?,
        "tls-client-ca" => options.tls_client_ca = path()?,
        "log-writes" => options.log_writes = path()?,
        "listen" => options.listen.extend(addresses(name, &parser.value()?.string()?)?),
        "plain" => options.plain.extend(addresses(name, &parser.value()?.string()?)?),
        "host" => options.hosts.push(asker::host(parser.value()?.string()?)?),
        "max-size" => options.max_size = size(parser)?,
        "quota" => options.quotas.push(quota(&parser.value()?.string()?)?),
        "memory" => options.memory = size(parser)?,
        "max-blob" => options.limits.blob = size(parser)?,
        "uploads" => options.limits.uploads = size(parser)? as usize,
        "max-connections" => options.limits.connections = parser.value()?.parse()?,
        "rate" => options.limits.rate = parser.value()?.parse()?,
        "patience" => options.limits.patience = Duration::from_secs(parser.value()?.parse()?),
        "workers" => options.workers = parser.value()?.parse()?,
        "new-token" => said.new_token = Some(parser.value()?.string()?),
        "namespace" => said.namespace = parser.value()?.string()?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn size(parser: &mut lexopt::Parser) -> Result<u64, lexopt::Error> {
    Ok(quantity::size(&parser.value()?.string()?)?)
}

fn quota(text: &str) -> Result<(String, u64), String> {
    let parts = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let (name, size) = parts.ok_or_else(|| format!("--quota {text}: write it like team=10G"))?;
    let size = quantity::size(size).map_err(|error| format!("--quota {text}: {error}"))?;
    let namespace = if name == "-" { "" } else { name };
    Ok((namespace.to_owned(), size))
}

fn addresses(option: &str, text: &str) -> Result<Vec<SocketAddr>, String> {
    let found = text.to_socket_addrs();
    let found = found.map_err(|error| format!("--{option} {text}: {error}; write it like 127.0.0.1:7117"))?;
    Ok(found.collect())
}

fn finish(said: Said) -> Result<Act, String> {
    let mut options = said.options;
    if let Some(name) = said.new_token {
        let file = options.tokens.ok_or("--new-token wants --tokens FILE")?;
        let (writes, namespace) = (said.writes, said.namespace);
        return Ok(Act::NewToken {
            name,
            writes,
            namespace,
            file,
        });
    }
    if said.writes {
        return Err("--write is for --new-token".to_owned());
    }
    if options.listen.is_empty() {
        return Err("--listen is missing; say where, like --listen 127.0.0.1:7117".to_owned());
    }
    if options.tls_cert.is_some() != options.tls_key.is_some() {
        return Err("--tls-cert and --tls-key want each other".to_owned());
    }
    if options.tls_client_ca.is_some() && options.tls_cert.is_none() {
        return Err("--tls-client-ca wants --tls-cert and --tls-key".to_owned());
    }
    if !options.plain.is_empty() && options.tls_cert.is_none() {
        return Err("--plain is for a server with --tls-cert; without one say --listen".to_owned());
    }
    if !options.plain.is_empty() && options.tls_client_ca.is_some() {
        return Err("--plain would admit clients without the certificate that --tls-client-ca asks for".to_owned());
    }
    if options.workers == 0 || options.limits.patience.is_zero() {
        return Err("--workers and --patience are at least 1".to_owned());
    }
    options.store = match said.store {
        Some(store) => store,
        None => default_store().ok_or("there is no place for a store: set --store")?,
    };
    Ok(Act::Serve(Box::new(options)))
}

/// Another than the cache's of this machine, which one process at a time can have.
fn default_store() -> Option<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(base.join("wafd-serve"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Act, String> {
        super::parse(lexopt::Parser::from_args(words)).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (words, error) in [
            (vec![], "--listen is missing"),
            (vec!["--listen", "nowhere"], "write it like 127.0.0.1:7117"),
            (vec!["--listen", "127.0.0.1:0", "--tls-key", "k"], "want each other"),
            (vec!["--listen", "127.0.0.1:0", "--max-size", "much"], "is not a size"),
            (vec!["--quota", "team"], "--quota team: write it like team=10G"),
            (
                vec!["--quota", "team=much"],
                "--quota team=much: \"much\" is not a size",
            ),
            (vec!["--new-token", "ci"], "wants --tokens FILE"),
            (
                vec!["--listen", "127.0.0.1:0", "--plain", "127.0.0.1:0"],
                "--plain is for a server with --tls-cert",
            ),
            (vec!["--plain", "nowhere"], "--plain nowhere: "),
            (
                vec!["--host", "cache:7117"],
                "--host cache:7117: it is a name or an address, without a port",
            ),
            (vec!["--bogus"], "there is no option --bogus"),
        ] {
            let found = parse(&words).err().unwrap();
            assert!(found.contains(error), "{found}");
        }
    }

    #[test]
    fn options_hold() {
        let words = [
            "--listen",
            "127.0.0.1:0",
            "--listen=[::1]:7",
            "--max-blob",
            "3MB",
            "--store",
            "s",
            "--rate=9",
            "--quota=a=b=1K",
            "--quota=-=2M",
        ];
        let Ok(Act::Serve(options)) = parse(&words) else {
            panic!("not to serve");
        };
        assert_eq!(options.listen.len(), 2);
        assert_eq!((options.limits.blob, options.limits.rate), (3_000_000, 9));
        assert_eq!(options.quotas, [("a=b".to_owned(), 1_000), (String::new(), 2_000_000)]);
        assert_eq!(options.store, PathBuf::from("s"));
    }
}
