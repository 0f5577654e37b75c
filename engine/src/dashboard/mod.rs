//! `wafd dashboard`: a page in the browser that shows what the engine does.
//!
//! ```text
//! host ─► visit, a thread each ─► page
//!           └──────► news ◄── feed ◄── engine, team, the machine's memory
//! ```
//!
//! It is a process of its own and an ordinary client of the engine. While no page is open, the engine is not asked. The
//! engine knows nothing of pages. The dashboard listens on 127.0.0.1 only, and its address contains a token.
//! `docs/dashboard.md` is the user's guide.

mod browser;
mod connection_limits;
mod engine;
mod feed;
mod history;
mod host;
mod options;
mod page;
mod reply;
mod team;
mod visit;

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread;

use self::browser::RedirectFile;
use self::feed::Feed;
use self::host::Host;
pub use self::options::Options;
use self::team::Team;
use crate::files::folder::Folder;
use crate::http::asker::{Elsewhere, Names};
use crate::http::head::{Method, Port};
use crate::process::service::open_signals;
use crate::report::print;
use crate::settings::address::Address;
use crate::trust::token::Token;

/// The requests that the dashboard accepts. Other pages may link here, as does the file that the desktop's browser is
/// given. The page itself needs the token.
pub const PORT: Port = Port {
    methods: &[("GET", Method::Get), ("HEAD", Method::Head)],
    other_methods: "this page is only read",
    elsewhere: Elsewhere::Leads,
    has_logins: false,
    takes_hosts: false,
};

/// Runs `wafd dashboard`.
pub fn run(options: &Options) -> Result<(), String> {
    let server = options
        .server()
        .map_err(|error| format!("dashboard: {error}; see wafd dashboard --help"))?;
    show(options, server)
}

fn show(options: &Options, server: Option<Address>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("dashboard: {error}");
    // Before there are threads, all of which must have the signals blocked.
    let signals = open_signals().map_err(failed)?;
    let listener = listen(options.port)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let token = Token::random().map_err(failed)?;
    let address = format!("http://127.0.0.1:{port}/{}/", token.text());
    let feed = Arc::new(Feed::default());
    let team = server.as_ref().map(Team::new).transpose()?;
    let folder = Folder::from_environment();
    let (for_thread, engine_folder) = (feed.clone(), folder.clone());
    spawn("feed", move || feed::ask(&for_thread, &engine_folder))?;
    if let Some(team) = team {
        let for_thread = feed.clone();
        spawn("team", move || team::ask(&for_thread, &team))?;
    }
    let names = Names::new([Ipv4Addr::LOCALHOST.into()], &options.hosts);
    let host = Host::new(token, names, feed);
    print(format!("serves {address}\n"))?;
    let _redirect_file = (!options.no_open).then(|| RedirectFile::open(&folder, &address));
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
