//! All tiers, in the order in which they are asked, and the thread that limits how long callers wait for them.

use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::cluster;
use super::counts::Counts;
use super::distrusted;
use super::executor::Cluster;
use super::heartbeat::Heartbeat;
use super::uploads::Uploads;
use super::window::Window;
use crate::bytes::digest::Digest;
use crate::cache::remote::wrapped::Wrapped;
use crate::cache::remote::{Again, Executor, Findings, Load, Offer, Remote};
use crate::report::remote::Tier;
use crate::settings::address::{Address, Limits, Scheme};

/// How often the windows are checked while a caller waits.
const TICK: Duration = Duration::from_millis(20);
/// No command waits for an upload, so it may take longer.
pub const UPLOAD: Limits = Limits {
    connect: Duration::from_secs(2),
    silence: Duration::from_secs(5),
    whole: Duration::from_secs(30),
    pause: Duration::from_secs(5),
};
/// How long uploads that make progress may go on when the engine ends.
const LAST_UPLOADS: Duration = Duration::from_secs(3);

struct Place {
    window: Arc<Window>,
    /// None if the tier is only read.
    uploads: Option<Arc<Uploads>>,
}

impl Place {
    fn is_distrusted(&self) -> bool {
        distrusted::contains(&self.window.name)
    }
}

pub struct Tiers {
    places: Vec<Place>,
    /// The first address that says so runs commands.
    cluster: Option<Arc<Cluster>>,
    wakeup: Wakeup,
}

/// Wakes the thread that watches the windows, because something may be under way. One signal can wait.
#[derive(Clone)]
struct Wakeup(SyncSender<()>);

impl Wakeup {
    fn send(&self) {
        // If the channel is full, the thread wakes anyway.
        let _ = self.0.try_send(());
    }
}

impl Tiers {
    /// Makes no connection before the first question. A tier that cannot be used is logged, and left out.
    pub fn open(addresses: &[Address], counts: &Arc<Counts>, load: &Arc<Load>) -> Arc<Tiers> {
        let (sender, signals) = sync_channel(1);
        let wakeup = Wakeup(sender);
        let mut places = Vec::new();
        for address in addresses {
            match open_place(address, counts, load, &wakeup) {
                Ok(place) => places.push(place),
                Err(why) => log::error!("remote: {why}"),
            }
        }
        let cluster = addresses.iter().find_map(|address| open_cluster(address, counts));
        let tiers = Arc::new(Tiers {
            places,
            cluster,
            wakeup: wakeup.clone(),
        });
        let weak = Arc::downgrade(&tiers);
        let watch = move || watch(&weak, &signals);
        if let Err(error) = thread::Builder::new().name("tiers".to_owned()).spawn(watch) {
            log::error!("remote: start a thread: {error}");
            return Arc::new(Tiers {
                places: Vec::new(),
                cluster: None,
                wakeup,
            });
        }
        tiers
    }
}

impl Remote for Tiers {
    fn are_there(&self, from: usize) -> bool {
        self.places
            .iter()
            .skip(from)
            .any(|place| !place.is_distrusted() && place.window.why_left_alone().is_none())
    }

    fn name(&self, number: usize) -> &str {
        self.places.get(number).map_or("nobody", |place| &place.window.name)
    }

    fn find(self: Arc<Self>, key: Digest, from: usize, words: Vec<String>, again: Again<Findings>) {
        let Some(place) = self.places.get(from) else {
            return again(Findings {
                words,
                ..Findings::default()
            });
        };
        if place.is_distrusted() {
            let words = [words, vec![format!("{}: {}", place.window.name, distrusted::WHY)]].concat();
            return self.find(key, from + 1, words, again);
        }
        let tiers = self.clone();
        place.window.find(key, move |found| {
            let mut words = words;
            let name = tiers.name(from);
            match found {
                Ok(bundle) if !bundle.is_empty() => {
                    let tier = Some(from);
                    return again(Findings { bundle, tier, words });
                }
                Ok(_) => words.push(format!("{name} does not have it")),
                Err(fault) => words.push(format!("{name}: {}", fault.words())),
            }
            tiers.find(key, from + 1, words, again);
        });
    }

    fn fetch(&self, tier: usize, wanted: Vec<Digest>, again: Again<Vec<(Digest, Wrapped)>>) {
        let Some(place) = self.places.get(tier) else {
            return again(Vec::new());
        };
        let digests = wanted.clone();
        place.window.fetch(wanted, move |fetched| {
            let fetched = fetched.unwrap_or_default();
            let whole = digests.into_iter().zip(fetched);
            again(whole.filter_map(|(digest, blob)| Some((digest, blob?))).collect());
        });
    }

    fn offer(&self, offer: &Offer, end: usize) {
        let places = self.places.iter().take(end).filter(|place| !place.is_distrusted());
        let uploads = places.filter_map(|place| place.uploads.as_ref());
        uploads.for_each(|uploads| uploads.push(offer.clone()));
    }

    fn take_offers(&self, end: usize) -> bool {
        self.places.iter().take(end).any(|place| place.uploads.is_some())
    }

    fn executor(&self) -> Option<Arc<dyn Executor>> {
        let cluster = self.cluster.clone()?;
        Some(cluster)
    }

    fn describe(&self) -> Vec<Tier> {
        let describe = |place: &Place| {
            let wrong = place.is_distrusted().then(|| distrusted::WHY.to_owned());
            let why_not = wrong.or_else(|| place.window.why_left_alone());
            let is_asked = why_not.is_none();
            let mut state = why_not.map_or("is asked".to_owned(), |why| format!("left alone, since {why}"));
            match &place.uploads {
                None => state.push_str(", only read"),
                Some(uploads) if uploads.waiting() > 0 => {
                    state.push_str(&format!(", {} uploads to do", uploads.waiting()));
                }
                Some(_) => {}
            }
            let name = place.window.name.clone();
            Tier { name, is_asked, state }
        };
        self.places.iter().map(describe).collect()
    }

    fn close(&self) {
        let began = Instant::now();
        self.places.iter().for_each(|place| place.window.close());
        let uploads = self.places.iter().filter_map(|place| place.uploads.as_ref());
        uploads.for_each(|uploads| uploads.close(began, began + LAST_UPLOADS));
        self.wakeup.send();
    }
}

fn open_cluster(address: &Address, counts: &Arc<Counts>) -> Option<Arc<Cluster>> {
    Cluster::new(address, counts).unwrap_or_else(|why| {
        log::error!("remote: {why}");
        None
    })
}

fn open_place(address: &Address, counts: &Arc<Counts>, load: &Arc<Load>, wakeup: &Wakeup) -> Result<Place, String> {
    let tier: Arc<dyn super::Tier> = super::open(address, counts)?.into();
    let name = address.to_string();
    let (wakeup, allowed) = (wakeup.clone(), patience(address, address.limits));
    let bell = move || wakeup.send();
    let window = Window::new(
        name.clone(),
        tier.clone(),
        || Heartbeat::new(allowed),
        counts.clone(),
        bell,
    );
    let window = Arc::new(window);
    let failed = |error: std::io::Error| format!("{address}: start a thread: {error}");
    window.start().map_err(failed)?;
    let uploads = match address.is_read_only {
        true => None,
        false => {
            let pause = address.limits.pause;
            let limits = patience(address, Limits { pause, ..UPLOAD });
            Some(Uploads::start(name, tier, limits, counts.clone(), load.clone()).map_err(failed)?)
        }
    };
    Ok(Place { window, uploads })
}

/// How long we wait for what may take this long.
fn patience(address: &Address, limits: Limits) -> Limits {
    match address.scheme {
        Scheme::Grpc => cluster::patient(limits),
        _ => limits,
    }
}

/// Runs until the tiers are not needed any more.
fn watch(tiers: &Weak<Tiers>, signals: &Receiver<()>) {
    while let Some(tiers) = tiers.upgrade() {
        let now = Instant::now();
        let looks: Vec<_> = tiers.places.iter().map(|place| place.window.look(now)).collect();
        drop(tiers);
        let is_busy = looks.iter().any(|(is_busy, _)| *is_busy);
        let next = looks.iter().filter_map(|(_, next)| *next).min();
        let next = next.map(|at| at.saturating_duration_since(now).max(Duration::from_millis(1)));
        match if is_busy { Some(TICK) } else { next } {
            Some(time) => drop(signals.recv_timeout(time)),
            None => drop(signals.recv()),
        }
    }
}

impl Drop for Tiers {
    fn drop(&mut self) {
        self.places.iter().for_each(|place| place.window.close());
        self.wakeup.send();
    }
}
