//! The command line of `wafd serve`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueHint};

use super::limits::Limits;
use crate::bytes::quantity;
use crate::http::asker;
use crate::report::misuse::WITHOUT_ABOUT;

const ABOUT: &str = "\
wafd serve keeps a cache for a team: other machines' wafd, and programs that store in HTTP or Redis, ask it over TCP.";
const USAGE: &str = "\
wafd serve --listen ADDR [--listen ADDR ...] [--plain ADDR ...] [OPTIONS]
       wafd serve --new-token NAME [--write] [--namespace NAME] --tokens FILE";
const MORE: &str = "\
Environment:
  WAFD_SERVE_TOKEN  a token that may read and write
  WAFD_LOG          error, warn, info or debug [info]

Without any token it serves every program of this machine, and listens on loopback only.
It ends with SIGTERM, after what is under way. Exit status: 0, or 1 with one line that says why.

Examples:
  wafd serve --new-token ci --write --tokens /etc/wafd/tokens
  wafd serve --listen 0.0.0.0:7117 --tokens /etc/wafd/tokens --tls-cert cert.pem --tls-key key.pem
  CCACHE_REMOTE_STORAGE='http://127.0.0.1:7117|layout=bazel' ccache gcc -c x.c";

#[derive(Debug, Args)]
#[command(before_help = ABOUT, help_template = WITHOUT_ABOUT, override_usage = USAGE, after_help = MORE)]
pub struct Options {
    /// address and port; port 0 is any that is free. It prints those it listens on
    #[arg(long, value_name = "ADDR", value_parser = addresses, action = ArgAction::Append)]
    listen: Vec<Addresses>,
    /// the same without TLS, where --listen has it: for clients that do not speak it
    #[arg(long, value_name = "ADDR", value_parser = addresses, action = ArgAction::Append)]
    plain: Vec<Addresses>,
    /// a name or address by which HTTP may be asked, beside those of this machine; may be repeated
    #[arg(long = "host", value_name = "NAME", value_parser = asker::host, action = ArgAction::Append)]
    pub hosts: Vec<String>,
    /// folder of the store [$XDG_CACHE_HOME/wafd-serve, or ~/.cache/wafd-serve]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    store: Option<PathBuf>,
    /// of the store; what was not used longest goes first
    #[arg(long, value_name = "SIZE", default_value = "50G", value_parser = quantity::size)]
    pub max_size: u64,
    /// of what a namespace holds, - is the common one; what it did not use longest goes first [none]
    #[arg(long = "quota", value_name = "NAME=SIZE", value_parser = quota, action = ArgAction::Append)]
    #[arg(allow_hyphen_values = true)]
    pub quotas: Vec<(String, u64)>,
    /// for contents that were asked for lately
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = quantity::size)]
    pub memory: u64,
    /// who may do what: lines of "NAME read|write NAMESPACE TOKEN", mode 0600; it is read again when it changes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tokens: Option<PathBuf>,
    /// certificates of this server, PEM; then all speak TLS
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tls_cert: Option<PathBuf>,
    /// their private key, PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tls_key: Option<PathBuf>,
    /// clients have to show a certificate that one of these has signed
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tls_client_ca: Option<PathBuf>,
    /// a line of JSON for whatever somebody writes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log_writes: Option<PathBuf>,
    /// /metrics and /status take no token from this machine
    #[arg(long)]
    pub open_metrics: bool,
    #[command(flatten)]
    pub limits: Limits,
    /// threads that serve [one for two processors, at most 8]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    workers: Option<usize>,
    /// add a token to the file of --tokens, and print it; it may read
    #[arg(long, value_name = "NAME")]
    pub new_token: Option<String>,
    /// it may also write
    #[arg(long)]
    pub write: bool,
    /// its keys are its own namespace's; - is the common one
    #[arg(long, value_name = "NAME", default_value = "-")]
    pub namespace: String,
}

/// The addresses of a name, which can be several.
#[derive(Debug, Clone)]
struct Addresses(Vec<SocketAddr>);

fn addresses(text: &str) -> Result<Addresses, String> {
    let found = text.to_socket_addrs();
    let found = found.map_err(|error| format!("{error}; write it like 127.0.0.1:7117"))?;
    Ok(Addresses(found.collect()))
}

fn quota(text: &str) -> Result<(String, u64), String> {
    let parts = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let (name, size) = parts.ok_or("write it like team=10G")?;
    let namespace = if name == "-" { "" } else { name };
    Ok((namespace.to_owned(), quantity::size(size)?))
}

impl Options {
    /// The first mistake in the options of a server. `--new-token` starts none.
    pub fn check(&self) -> Result<(), &'static str> {
        let has_tls = self.tls_cert.is_some();
        let wrong = [
            (self.write, "--write is for --new-token"),
            (
                self.listen.is_empty(),
                "--listen is missing; say where, like --listen 127.0.0.1:7117",
            ),
            (
                has_tls != self.tls_key.is_some(),
                "--tls-cert and --tls-key want each other",
            ),
            (
                self.tls_client_ca.is_some() && !has_tls,
                "--tls-client-ca wants --tls-cert and --tls-key",
            ),
            (
                !self.plain.is_empty() && !has_tls,
                "--plain is for a server with --tls-cert; without one say --listen",
            ),
            (
                !self.plain.is_empty() && self.tls_client_ca.is_some(),
                "--plain would admit clients without the certificate that --tls-client-ca asks for",
            ),
            (
                self.workers == Some(0) || self.limits.patience.is_zero(),
                "--workers and --patience are at least 1",
            ),
        ];
        match wrong.iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, why)) => Err(why),
            None => Ok(()),
        }
    }

    /// The addresses on which it listens, and whether each is one of `--plain`.
    pub fn ports(&self) -> impl Iterator<Item = (SocketAddr, bool)> + '_ {
        let all = |given: &'_ [Addresses]| given.iter().flat_map(|one| one.0.clone()).collect::<Vec<_>>();
        let usual = all(&self.listen).into_iter().map(|address| (address, false));
        usual.chain(all(&self.plain).into_iter().map(|address| (address, true)))
    }

    /// The folder of the store. It is not that of this machine's own cache, which only one process at a time can use.
    pub fn store(&self) -> Result<PathBuf, &'static str> {
        let set = |name| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let base = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
        let store = self.store.clone().or_else(|| Some(base()?.join("wafd-serve")));
        store.ok_or("there is no place for a store: set --store")
    }

    /// By default half of the processors. The others are busy with the network, or with clients on this machine.
    pub fn workers(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self.workers.unwrap_or_else(|| (processors() / 2).clamp(1, 8))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::report::misuse;

    #[derive(Debug, Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(words: &[&str]) -> Result<Options, String> {
        let line = Line::try_parse_from(words).map_err(|error| misuse::describe(&error))?;
        line.options.check()?;
        Ok(line.options)
    }

    #[test]
    fn a_missing_or_wrong_option_is_named() {
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
            (vec!["--write"], "--write is for --new-token"),
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
    fn options_are_read() {
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
        let options = parse(&words).unwrap();
        assert_eq!(options.ports().count(), 2);
        assert_eq!((options.limits.blob, options.limits.rate), (3_000_000, 9));
        assert_eq!(options.quotas, [("a=b".to_owned(), 1_000), (String::new(), 2_000_000)]);
        assert_eq!(options.store(), Ok(PathBuf::from("s")));
    }
}
