//! `wafd dashboard`: a page in the browser that shows what the engine does.
//!
//! ```text
//! host ─► visit, a thread each ─► page
//!                        └──────► news ◄── feed ◄── engine, team, the machine's memory
//! ```
//!
//! A process of its own, and a client like others: while nobody looks the engine is not asked, and it does not know what a
//! page is. It listens on 127.0.0.1 alone, and for those who know the token in its address. `docs/dashboard.md` is for whoever
//! opens it.

mod browser;
mod engine;
mod feed;
mod history;
mod host;
mod options;
mod page;
mod places;
mod reply;
mod team;
mod visit;

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread;

use self::browser::Door;
use self::feed::Feed;
use self::host::Host;
pub use self::options::Options;
use self::team::Team;
use crate::files::folder::Folder;
use crate::http::asker::{Elsewhere, Names};
use crate::http::head::{Method, Port};
use crate::process::service::open_signals;
use crate::settings::address::Address;
use crate::trust::token::Token;

/// What the page's host takes. A link may lead here, as the file that the desktop's browser is given does; what it leads to
/// needs the token.
pub const PORT: Port = Port {
    methods: &[("GET", Method::Get), ("HEAD", Method::Head)],
    other_methods: "this page is only read",
    elsewhere: Elsewhere::Leads,
    has_logins: false,
    takes_hosts: false,
};

/// Does what the command line after `wafd dashboard` says.
pub fn run(options: &Options) -> Result<(), String> {
    let server = options.server();
    show(
        options,
        server.map_err(|error| format!("dashboard: {error}; see wafd dashboard --help"))?,
    )
}

fn say(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout();
    let said = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    said.map_err(|error| format!("write to standard output: {error}"))
}

fn show(options: &Options, server: Option<Address>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("dashboard: {error}");
    // Before there are threads, which all are to leave signals alone.
    let signals = open_signals().map_err(failed)?;
    let listener = listen(options.port)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let token = Token::random().map_err(failed)?;
    let address = format!("http://127.0.0.1:{port}/{}/", token.text());
    let feed = Arc::new(Feed::default());
    let team = server.as_ref().map(Team::new).transpose()?;
    let folder = Folder::from_environment();
    let (ours, looks_at) = (feed.clone(), folder.clone());
    spawn("feed", move || feed::ask(&ours, &looks_at))?;
    if let Some(team) = team {
        let ours = feed.clone();
        spawn("team", move || team::ask(&ours, &team))?;
    }
    let names = Names::new([Ipv4Addr::LOCALHOST.into()], &options.hosts);
    let host = Host::new(token, names, feed);
    say(&format!("serves {address}\n"))?;
    let _door = (!options.no_open).then(|| Door::open(&folder, &address));
    host.serve(&listener, &signals).map_err(failed)
}

fn listen(port: u16) -> Result<TcpListener, String> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| {
        format!("listen on 127.0.0.1:{port}: {error}; choose another --port, or none for any that is free")
    })
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(work);
    spawned
        .map(drop)
        .map_err(|error| format!("dashboard: start a thread: {error}"))
}
