//! `wafd-cluster`: what `wafd` needs of clusters. `wafd` starts it.

use std::process::ExitCode;

use wafcluster::bridge;
use wafengine::files::logbook;

fn main() -> ExitCode {
    let level = env_logger::Env::new().filter_or("WAFD_LOG", "info");
    env_logger::Builder::from_env(level).format(logbook::write).init();
    bridge::run()
}
