//! The stores that machines share, by how they were named: by the setting, or by a build for itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{Executor, Remote};

/// How many settings of builds are remembered. Their stores stay open after the build, for uploads and for the next build.
const MOST: usize = 8;

/// Stores of a build that could not be opened are tried again after this time: a file that was missing may be there now.
const AGAIN: Duration = Duration::from_secs(5);

/// Opens the stores that a text names. `None` if it names none.
pub type OpenNamed = dyn Fn(&str) -> Result<Option<Arc<dyn Remote>>, String> + Send + Sync;

struct Named {
    text: Arc<str>,
    stores: Option<Arc<dyn Remote>>,
    /// When they could not be opened.
    failed: Option<Instant>,
}

impl Named {
    fn new(text: &str, opened: Result<Option<Arc<dyn Remote>>, String>) -> Named {
        let failed = opened.is_err().then(Instant::now);
        let stores = opened.unwrap_or_else(|why| {
            log::warn!("remote: {why}");
            None
        });
        Named {
            text: text.into(),
            stores,
            failed,
        }
    }

    fn is_due(&self) -> bool {
        self.failed.is_some_and(|failed| failed.elapsed() >= AGAIN)
    }
}

#[derive(Default)]
struct State {
    setting: Option<Named>,
    /// The one that was opened last is at the end.
    of_builds: Vec<Named>,
}

pub struct NamedStores {
    state: Mutex<State>,
    /// Held while stores of a build are opened, which may read files.
    opening: Mutex<()>,
    open: Box<OpenNamed>,
}

impl State {
    fn all(&self) -> impl Iterator<Item = &Arc<dyn Remote>> {
        let named = self.setting.iter().chain(&self.of_builds);
        named.filter_map(|named| named.stores.as_ref())
    }

    fn find(&self, text: &str) -> Option<&Named> {
        let mut named = self.setting.iter().chain(&self.of_builds);
        named.find(|named| *named.text == *text && !named.is_due())
    }
}

impl NamedStores {
    pub fn new(open: Box<OpenNamed>) -> NamedStores {
        NamedStores {
            state: Mutex::default(),
            opening: Mutex::default(),
            open,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the stores of the setting. If it has a mistake, the former ones stay.
    pub fn set(&self, text: &str) -> Result<(), String> {
        let stores = (self.open)(text)?;
        let old = self.state().setting.replace(Named::new(text, Ok(stores)));
        if let Some(old) = old.and_then(|old| old.stores) {
            old.close();
        }
        Ok(())
    }

    /// The stores that a build has named, or those of the setting.
    pub fn find(&self, asked: Option<&Arc<str>>) -> Option<Arc<dyn Remote>> {
        let Some(asked) = asked else {
            return self.state().setting.as_ref()?.stores.clone();
        };
        let known = || Some(self.state().find(asked)?.stores.clone());
        if let Some(stores) = known() {
            return stores;
        }
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stores) = known() {
            return stores;
        }
        // The client has checked the text, so an error is about a file that it names.
        let named = Named::new(asked, (self.open)(asked));
        let stores = named.stores.clone();
        let mut state = self.state();
        state.of_builds.retain(|other| other.text != named.text);
        let oldest = (state.of_builds.len() == MOST).then(|| state.of_builds.remove(0));
        state.of_builds.push(named);
        drop(state);
        if let Some(oldest) = oldest.and_then(|oldest| oldest.stores) {
            // No caller can wait for its uploads.
            thread::spawn(move || oldest.close());
        }
        stores
    }

    /// All stores that are open.
    pub fn all(&self) -> Vec<Arc<dyn Remote>> {
        self.state().all().cloned().collect()
    }

    /// Those of them that run commands. The one of the setting comes first.
    pub fn executors(&self) -> Vec<Arc<dyn Executor>> {
        self.state().all().filter_map(|stores| stores.executor()).collect()
    }

    /// Closes all at the same time. Each gives its uploads a short time to finish.
    pub fn close(&self) {
        let all = self.all();
        thread::scope(|scope| {
            for stores in &all {
                scope.spawn(|| stores.close());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{channel, Sender};

    use super::super::{Again, Findings, Offer};
    use super::*;
    use crate::bytes::digest::Digest;
    use crate::cache::remote::wrapped::Wrapped;
    use crate::report::remote::Tier;

    /// Stores with nothing in them, which tell when they are closed.
    struct Empty {
        name: String,
        closed: Mutex<Sender<String>>,
    }

    impl Remote for Empty {
        fn are_there(&self, _from: usize) -> bool {
            false
        }

        fn name(&self, _number: usize) -> &str {
            &self.name
        }

        fn find(self: Arc<Self>, _key: Digest, _from: usize, _words: Vec<String>, again: Again<Findings>) {
            again(Findings::default());
        }

        fn fetch(&self, _tier: usize, _wanted: Vec<Digest>, again: Again<Vec<(Digest, Wrapped)>>) {
            again(Vec::new());
        }

        fn offer(&self, _offer: &Offer, _end: usize) {}

        fn take_offers(&self, _end: usize) -> bool {
            false
        }

        fn executor(&self) -> Option<Arc<dyn Executor>> {
            None
        }

        fn describe(&self) -> Vec<Tier> {
            Vec::new()
        }

        fn close(&self) {
            self.closed.lock().unwrap().send(self.name.clone()).unwrap();
        }
    }

    fn find(stores: &NamedStores, text: &str) -> Option<String> {
        Some(stores.find(Some(&Arc::from(text)))?.name(0).to_owned())
    }

    #[test]
    fn stores_that_could_not_be_opened_are_tried_again_after_a_while() {
        let opened = Arc::new(Mutex::new(0));
        let count = opened.clone();
        let (closed, _closed) = channel();
        let stores = NamedStores::new(Box::new(move |text| {
            *count.lock().unwrap() += 1;
            if *count.lock().unwrap() == 1 {
                return Err("the token-file is missing".to_owned());
            }
            let (name, closed) = (text.to_owned(), Mutex::new(closed.clone()));
            Ok(Some(Arc::new(Empty { name, closed })))
        }));
        assert_eq!((find(&stores, "a"), find(&stores, "a")), (None, None));
        assert_eq!(*opened.lock().unwrap(), 1);
        stores.state().of_builds[0].failed = Instant::now().checked_sub(AGAIN);
        assert_eq!(
            (find(&stores, "a"), find(&stores, "a")),
            (Some("a".to_owned()), Some("a".to_owned()))
        );
        assert_eq!((*opened.lock().unwrap(), stores.state().of_builds.len()), (2, 1));
    }

    #[test]
    fn the_oldest_of_too_many_is_closed() {
        let (closed, gone) = channel();
        let stores = NamedStores::new(Box::new(move |text| {
            let (name, closed) = (text.to_owned(), Mutex::new(closed.clone()));
            Ok(Some(Arc::new(Empty { name, closed })))
        }));
        for number in 0..MOST {
            find(&stores, &number.to_string());
        }
        assert!(gone.try_recv().is_err());
        find(&stores, "one more");
        assert_eq!(gone.recv_timeout(Duration::from_secs(60)).as_deref(), Ok("0"));
        assert_eq!(stores.all().len(), MOST);
        stores.close();
        assert_eq!(gone.iter().take(MOST).count(), MOST);
    }
}
