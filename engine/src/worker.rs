//! The command line of `wafd worker`, which `wafd` checks before it becomes `wafd-cluster`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueHint};

use crate::bytes::quantity;
use crate::report::misuse::WITHOUT_ABOUT;
use crate::settings::address::{self, Address, Scheme};

const ABOUT: &str = "\
wafd worker runs the commands of a cluster on this machine: compiles for wafcc, and what other clients of the
Remote Execution API send. It ends when it gets SIGTERM and its commands have ended; a second SIGTERM ends them.";
const USAGE: &str = "wafd worker [--slots N] [--property NAME=VALUE ...] [--folder PATH] ... ADDRESS";
const MORE: &str = "\
ADDRESS is grpc://HOST:PORT[/INSTANCE] or grpcs://…, with attributes as in the setting `remote` of wafcc, for example
grpcs://build.example.com:443/team|token-file=/etc/wafd/token

Environment:
  WAFD_LOG  error, warn, info or debug [info]

Examples:
  wafd worker grpc://10.0.0.7:50051/team
  wafd worker --slots 8 --property pool=large 'grpcs://build.example.com:443/team|token-file=/etc/wafd/token'";

#[derive(Debug, Parser)]
#[command(before_help = ABOUT, help_template = WITHOUT_ABOUT, override_usage = USAGE, after_help = MORE)]
pub struct Options {
    /// how many commands run at once [the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub slots: Option<u16>,
    /// what the cluster is told of this machine besides OSFamily and ISA
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = property)]
    pub properties: Vec<(String, String)>,
    /// where inputs are kept and commands run [$XDG_CACHE_HOME/wafd-worker, or ~/.cache/wafd-worker]
    #[arg(long, value_name = "PATH", value_parser = absolute, value_hint = ValueHint::DirPath)]
    pub folder: Option<PathBuf>,
    /// how much of the disk inputs may take that no command uses
    #[arg(long, value_name = "SIZE", default_value = "10G", value_parser = size)]
    pub size: u64,
    /// how logs and results call this worker; several may have the same name [the name of the machine]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// how long a command may take at most
    #[arg(long, value_name = "SECONDS", default_value = "1800", value_parser = seconds)]
    pub timeout: Duration,
    /// a folder of this machine that commands may read, besides /usr, /etc, /opt and others of the system
    #[arg(long = "share", value_name = "PATH", value_parser = absolute, value_hint = ValueHint::DirPath)]
    pub shared: Vec<PathBuf>,
    /// run commands with all rights of this user, where namespaces are not permitted
    #[arg(long)]
    pub no_isolation: bool,
    /// the cluster, as in the setting remote of wafcc
    #[arg(value_name = "ADDRESS", value_parser = one_address)]
    pub address: Address,
}

fn property(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it is not NAME=VALUE".to_owned()),
    }
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(text).map_err(|error| error.to_string())
}

fn size(text: &str) -> Result<u64, String> {
    quantity::size(text)
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 1..=604_800) => Ok(Duration::from_secs(seconds)),
        _ => Err("it is not between 1 and 604800".to_owned()),
    }
}

fn one_address(text: &str) -> Result<Address, String> {
    let mut addresses = address::parse_all(text)?.into_iter();
    match (addresses.next(), addresses.next()) {
        (Some(address), None) if address.scheme == Scheme::Grpc => Ok(address),
        (Some(_), None) => Err("its scheme is not grpc or grpcs".to_owned()),
        _ => Err("it is not one address".to_owned()),
    }
}
