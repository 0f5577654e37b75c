//! `wafd-cluster`: what `wafd` needs of clusters. `wafd` starts it.

use std::process::ExitCode;

use log::LevelFilter;
use wafcluster::bridge;
use wafcluster::executing::carried::WORD;
use wafcluster::worker::{self, carried, keeper};
use wafengine::files::logbook;

fn main() -> ExitCode {
    let level = env_logger::Env::new().filter_or("WAFD_LOG", "info");
    let mut log = env_logger::Builder::from_env(level);
    // They tell of each frame.
    for library in ["h2", "hyper", "hyper_util", "rustls", "tower"] {
        log.filter_module(library, LevelFilter::Warn);
    }
    log.format(logbook::write).init();
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        None => bridge::run(),
        Some(word) if word == "worker" => worker::run(args).into(),
        Some(word) if word == keeper::WORD => keeper::keep().into(),
        Some(word) if word == WORD => carried::run().into(),
        Some(_) => {
            eprintln!("wafd-cluster: wafd starts it; see wafd worker --help");
            ExitCode::FAILURE
        }
    }
}
