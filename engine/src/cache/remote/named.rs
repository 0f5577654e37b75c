//! The stores that machines share, by how they were named: by the setting, or by a build for itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::{Executor, Remote};

/// How many settings of builds are remembered. Their stores stay open after the build, for uploads and for the next build.
const MOST: usize = 8;

/// Opens the stores that a text names. `None` if it names none.
pub type OpenNamed = dyn Fn(&str) -> Result<Option<Arc<dyn Remote>>, String> + Send + Sync;

struct Named {
    text: Arc<str>,
    stores: Option<Arc<dyn Remote>>,
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
        named.find(|named| *named.text == *text)
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
        let named = Named {
            text: text.into(),
            stores,
        };
        let old = self.state().setting.replace(named);
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
        let stores = (self.open)(asked).unwrap_or_else(|why| {
            log::warn!("remote: {why}");
            None
        });
        let mut state = self.state();
        let oldest = (state.of_builds.len() == MOST).then(|| state.of_builds.remove(0));
        let text = asked.clone();
        state.of_builds.push(Named {
            text,
            stores: stores.clone(),
        });
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
