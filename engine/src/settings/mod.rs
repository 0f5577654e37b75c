//! The settings and their values: variables override the user's file, which overrides the store's file and the
//! defaults.
//!
//! Pure except for `Settings::load`. A mistake in a setting never stops a command: the next lower value applies, and
//! `wafcc --show-config` reports the mistake.

pub mod address;
pub mod place;
pub mod settings_file;
pub mod table;

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub use self::table::Key;
use self::table::{Kind, Reader, Row, ROWS};
use crate::bytes::path_text;
use crate::bytes::quantity;
use crate::trust::signature;

/// As `MOST_BASES` of paths in facts.
const MOST_FOLDERS: usize = 12;

/// The compression of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// If it makes the entry smaller.
    Auto,
    No,
    Level(u8),
}

/// What is compared of the texts of sources and headers that have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    No,
    /// What is left without the texts of comments.
    Comments,
    /// The same, and what the preprocessor leaves.
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    File(PathBuf),
    Variable(&'static str),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => write!(f, "{}", path.display()),
            Origin::Variable(name) => write!(f, "environment: {name}"),
        }
    }
}

impl Key {
    pub fn all() -> impl Iterator<Item = Key> {
        ROWS.iter().map(|row| row.key)
    }

    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    pub fn name(self) -> &'static str {
        self.row().name
    }

    pub fn variable(self) -> &'static str {
        self.row().variable
    }

    /// Whether a running engine can take over a new value. Other settings are read at its start.
    pub fn holds_at_once(self) -> bool {
        self.row().reader == Reader::Engine
    }

    pub fn concerns_the_engine(self) -> bool {
        self.row().reader != Reader::Client
    }

    /// The setting of this name. For an unknown name, the error has the nearest known one.
    pub fn named(name: &str) -> Result<Key, String> {
        if let Some(key) = Key::all().find(|key| key.name() == name) {
            return Ok(key);
        }
        let nearest = Key::all().min_by_key(|key| distance(key.name(), name));
        let hint = nearest.filter(|key| distance(key.name(), name) <= 3);
        let hint = hint.map_or(String::new(), |key| format!("; did you mean {}?", key.name()));
        Err(format!("there is no setting {name}{hint}"))
    }

    /// Checks a value. The error says which values are allowed.
    pub fn check(self, value: &OsStr) -> Result<(), String> {
        let text = || value.to_str().ok_or_else(|| "not UTF-8".to_owned());
        let checked = match self.row().kind {
            Kind::Folder | Kind::Files => Ok(()),
            Kind::Folders => check_folders(value),
            Kind::Switch => switch(value).map(drop).ok_or_else(|| "set it to yes or no".to_owned()),
            Kind::Size => quantity::size(text()?).map(drop),
            Kind::Level => level(text()?).map(drop),
            Kind::Text => text().map(drop),
            Kind::Percent => quantity::percent(text()?).map(drop),
            Kind::Addresses => address::parse_all(text()?).map(drop),
            Kind::PrivateKey => signature::check_place(text()?),
            Kind::PublicKeys => signature::check_trusted(text()?),
            Kind::Memory => room(text()?).map(drop),
            Kind::Comparison => comparison(text()?).map(drop),
        };
        if value.as_bytes().contains(&b'\n') {
            return Err(format!("{}: one line only", self.name()));
        }
        checked.map_err(|why| format!("{}: {why}", self.name()))
    }
}

pub fn switch(value: &OsStr) -> Option<bool> {
    match value.to_str()?.to_ascii_lowercase().as_str() {
        "yes" | "true" | "on" | "1" => Some(true),
        "no" | "false" | "off" | "0" | "disable" => Some(false),
        _ => None,
    }
}

/// Folders whose names a compiler can leave out.
fn check_folders(value: &OsStr) -> Result<(), String> {
    let folders = split_folders(value);
    if folders.len() > MOST_FOLDERS {
        return Err(format!(
            "{} folders are too many: name {MOST_FOLDERS} at most",
            folders.len()
        ));
    }
    let is_plain = |folder: &PathBuf| {
        let folder = Path::new("/").join(folder);
        path_text::is_plain(folder.as_os_str().as_bytes())
    };
    match folders.iter().find(|folder| !is_plain(folder)) {
        None => Ok(()),
        Some(folder) if folder.parent().is_none() => Err("/ is every folder: name one below it".to_owned()),
        Some(folder) => Err(format!(
            "{folder:?}: compilers cannot leave this name out: use letters, digits, blanks and ._-+@"
        )),
    }
}

/// Without slashes at their ends.
fn split_folders(value: &OsStr) -> Vec<PathBuf> {
    let folders = env::split_paths(value).filter(|folder| !folder.as_os_str().is_empty());
    folders.map(|folder| folder.components().collect()).collect()
}

fn level(text: &str) -> Result<Compression, String> {
    match (text, text.parse()) {
        ("auto", _) => Ok(Compression::Auto),
        ("no", _) => Ok(Compression::No),
        (_, Ok(level @ 1..=19)) => Ok(Compression::Level(level)),
        _ => Err("set it to auto, no, or a level from 1 to 19".to_owned()),
    }
}

/// A comparison, or the word for a switch.
pub fn comparison(text: &str) -> Result<Comparison, String> {
    match (text, switch(text.as_ref())) {
        ("comments", _) => Ok(Comparison::Comments),
        (_, Some(true)) => Ok(Comparison::All),
        (_, Some(false)) => Ok(Comparison::No),
        _ => Err("set it to no, comments or yes".to_owned()),
    }
}

/// A limit for memory or disk: None for `off`, 0 for what is available, or a size in bytes.
pub fn room(text: &str) -> Result<Option<u64>, String> {
    match text {
        "off" => Ok(None),
        "auto" => Ok(Some(0)),
        _ => match quantity::size(text) {
            Ok(size) if size > 0 => Ok(Some(size)),
            _ => Err("set it to auto, off, or a size such as 4G".to_owned()),
        },
    }
}

/// Edit distance: letters to change, add or remove to turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let changed = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

struct Value {
    value: OsString,
    origin: Origin,
}

pub struct Settings {
    values: Vec<Value>,
    /// Descriptions of wrong values, which do not apply.
    pub mistakes: Vec<String>,
    /// Whether the store answers, if its file system may hang. A silent store's file of settings is not read.
    pub distant: Option<Distant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distant {
    Answers,
    Silent,
}

impl Settings {
    pub fn defaults() -> Settings {
        let value = |row: &Row| Value {
            value: row.default.into(),
            origin: Origin::Default,
        };
        Settings {
            values: ROWS.iter().map(value).collect(),
            mistakes: Vec::new(),
            distant: None,
        }
    }

    /// The settings of this process. `look` finds out whether a store on a file system that may hang answers.
    pub fn load(look: fn(&Path) -> Option<Distant>) -> Settings {
        Settings::load_with(None, look)
    }

    /// The settings as if this were the store. For the engine, which has threads that can wait for a store.
    pub fn load_of(store: Option<&Path>) -> Settings {
        Settings::load_with(store, |_| None)
    }

    fn load_with(store: Option<&Path>, look: fn(&Path) -> Option<Distant>) -> Settings {
        let variables = || {
            let set = |key: Key| match (key, store) {
                (Key::CacheDir, Some(store)) => Some(store.into()),
                _ => env::var_os(key.variable()),
            };
            Key::all().filter_map(move |key| Some((key, set(key)?)))
        };
        let mut settings = Settings::defaults();
        let user = place::user_file();
        if let Some(file) = &user {
            settings.take_file(file);
        }
        settings.take_variables(variables());
        // The store's own file has the lowest priority, but the other sources say which store it is.
        let own = place::store_file(&settings).filter(|own| user.as_ref() != Some(own));
        let distant = place::store(&settings).and_then(|store| look(&store));
        settings.distant = distant;
        let may_read = distant != Some(Distant::Silent) && !place::is_file_chosen();
        if let Some(own) = own.filter(|_| may_read) {
            let above = settings;
            settings = Settings::defaults();
            settings.take_file(&own);
            settings.take_all(above);
            settings.distant = distant;
        }
        settings
    }

    fn take_file(&mut self, path: &Path) {
        let text = match settings_file::read(path) {
            Ok(Some(text)) => text,
            Ok(None) => return,
            Err(error) => return self.mistakes.push(error),
        };
        for (number, line) in settings_file::lines(&text) {
            let origin = Origin::File(path.to_owned());
            let taken = line.and_then(|(name, value)| self.set(Key::named(name)?, value.into(), origin));
            if let Err(why) = taken {
                self.mistakes.push(format!("{}:{number}: {why}", path.display()));
            }
        }
    }

    /// An empty variable counts as not set. A switch is on for every word that does not mean *no*.
    fn take_variables(&mut self, variables: impl Iterator<Item = (Key, OsString)>) {
        for (key, mut value) in variables.filter(|(_, value)| !value.is_empty()) {
            if matches!(key.row().kind, Kind::Switch) && switch(&value).is_none() {
                value = "yes".into();
            }
            if let Err(why) = self.set(key, value, Origin::Variable(key.variable())) {
                self.mistakes.push(format!("{}: {why}", key.variable()));
            }
        }
    }

    fn take_all(&mut self, above: Settings) {
        self.mistakes.extend(above.mistakes);
        for (mine, value) in self.values.iter_mut().zip(above.values) {
            if value.origin != Origin::Default {
                *mine = value;
            }
        }
    }

    fn set(&mut self, key: Key, value: OsString, origin: Origin) -> Result<(), String> {
        let checked = key.check(&value);
        // A mistake in keys must not mean that every key is trusted. So the wrong value applies, and the engine then
        // accepts nothing.
        if checked.is_ok() || matches!(key, Key::SigningKey | Key::TrustedKeys) {
            self.values[key as usize] = Value { value, origin };
        }
        checked
    }

    pub fn text(&self, key: Key) -> &OsStr {
        &self.values[key as usize].value
    }

    /// Without secrets.
    pub fn shown(&self, key: Key) -> String {
        let text = self.text(key).to_string_lossy();
        match key.row().kind {
            Kind::Addresses => address::without_secrets(&text),
            _ => text.into_owned(),
        }
    }

    /// The same as JSON.
    pub fn json(&self, key: Key) -> serde_json::Value {
        match key.row().kind {
            Kind::Switch => self.is_on(key).into(),
            _ => self.shown(key).into(),
        }
    }

    pub fn origin(&self, key: Key) -> &Origin {
        &self.values[key as usize].origin
    }

    pub fn is_on(&self, key: Key) -> bool {
        switch(self.text(key)) == Some(true)
    }

    /// An absolute folder. `None` if it is not set.
    pub fn folder(&self, key: Key) -> Option<PathBuf> {
        let text = Some(self.text(key)).filter(|text| !text.is_empty())?;
        std::path::absolute(text).ok()
    }

    /// Absolute folders, without slashes at their ends.
    pub fn folders(&self, key: Key) -> Vec<PathBuf> {
        let folders = split_folders(self.text(key));
        folders
            .iter()
            .filter_map(|folder| std::path::absolute(folder).ok())
            .collect()
    }

    pub fn max_size(&self) -> u64 {
        self.parsed(Key::MaxSize, quantity::size).unwrap_or_default()
    }

    pub fn compression(&self) -> Compression {
        self.parsed(Key::Compression, level).unwrap_or(Compression::Auto)
    }

    pub fn audit(&self) -> f64 {
        self.parsed(Key::Audit, quantity::percent).unwrap_or_default()
    }

    /// As `Policy::memory`.
    pub fn memory(&self) -> Option<u64> {
        self.parsed(Key::Memory, room).flatten()
    }

    /// How much disk preambles may use, as `room` reads it.
    pub fn preambles(&self) -> Option<u64> {
        self.parsed(Key::Preambles, room).flatten()
    }

    pub fn comparison(&self) -> Comparison {
        self.parsed(Key::CompareTexts, comparison).unwrap_or(Comparison::No)
    }

    fn parsed<T>(&self, key: Key, parse: fn(&str) -> Result<T, String>) -> Option<T> {
        self.text(key).to_str().and_then(|text| parse(text).ok())
    }

    /// Files on which every command depends, even if it does not read them.
    pub fn extra_files(&self) -> Vec<PathBuf> {
        let all = env::split_paths(self.text(Key::ExtraFiles));
        all.filter(|path| !path.as_os_str().is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_variables(pairs: &[(Key, &str)]) -> Settings {
        let mut settings = Settings::defaults();
        settings.take_variables(pairs.iter().map(|(key, value)| (*key, OsString::from(value))));
        settings
    }

    #[test]
    fn every_key_is_found_at_its_place() {
        for (place, row) in ROWS.iter().enumerate() {
            assert_eq!(row.key as usize, place, "{}", row.name);
            assert_eq!(Key::named(row.name), Ok(row.key));
            assert!(row.key.check(row.default.as_ref()).is_ok(), "{}", row.name);
        }
    }

    #[test]
    fn an_unknown_setting_is_named_with_the_nearest() {
        assert_eq!(
            Key::named("max_sise").unwrap_err(),
            "there is no setting max_sise; did you mean max_size?"
        );
        assert_eq!(Key::named("sloppiness").unwrap_err(), "there is no setting sloppiness");
    }

    #[test]
    fn a_variable_is_on_unless_it_says_no() {
        for (value, is_on) in [
            ("1", true),
            ("anything", true),
            ("0", false),
            ("False", false),
            ("", false),
        ] {
            assert_eq!(
                with_variables(&[(Key::Disable, value)]).is_on(Key::Disable),
                is_on,
                "{value}"
            );
        }
    }

    #[test]
    fn a_wrong_value_is_reported_and_does_not_apply() {
        let settings = with_variables(&[(Key::MaxSize, "much"), (Key::Audit, "200"), (Key::Compression, "zip")]);
        assert_eq!((settings.max_size(), settings.audit()), (5_000_000_000, 0.0));
        assert_eq!(settings.compression(), Compression::Auto);
        assert_eq!(settings.mistakes.len(), 3);
        assert!(settings.mistakes[0].starts_with("WAFCC_MAXSIZE: max_size: \"much\""));
    }

    #[test]
    fn base_folders_are_a_list() {
        let folders = |value: &str| with_variables(&[(Key::BaseDir, value)]).folders(Key::BaseDir);
        assert_eq!(folders(""), Vec::<PathBuf>::new());
        assert_eq!(folders("/a b/:/c//d::/e/."), ["/a b", "/c/d", "/e"].map(PathBuf::from));
        let here = env::current_dir().unwrap();
        assert_eq!(folders("x:/y"), [here.join("x"), PathBuf::from("/y")]);
        let many = vec!["/a"; MOST_FOLDERS + 1].join(":");
        for (value, mistake) in [
            ("/a:/", "base_dir: / is every folder: name one below it"),
            (
                "/a:/b=c",
                "base_dir: \"/b=c\": compilers cannot leave this name out: use letters, digits, blanks and ._-+@",
            ),
            (&many, "base_dir: 13 folders are too many: name 12 at most"),
        ] {
            let settings = with_variables(&[(Key::BaseDir, value)]);
            assert_eq!(settings.mistakes, [format!("WAFCC_BASEDIR: {mistake}")]);
            assert!(settings.folders(Key::BaseDir).is_empty());
        }
    }

    #[test]
    fn a_mistake_in_trusted_keys_is_reported_and_trusts_no_key() {
        let settings = with_variables(&[(Key::TrustedKeys, "ed25519:1"), (Key::SigningKey, "keys/ci")]);
        assert_eq!(settings.mistakes.len(), 2);
        assert_eq!(settings.text(Key::TrustedKeys), "ed25519:1");
        assert_eq!(settings.text(Key::SigningKey), "keys/ci");
    }

    #[test]
    fn the_higher_value_applies_with_its_origin() {
        let mut below = with_variables(&[(Key::Namespace, "below"), (Key::MaxSize, "1G")]);
        below.take_all(with_variables(&[(Key::Namespace, "above")]));
        assert_eq!(
            (below.text(Key::Namespace), below.max_size()),
            (OsStr::new("above"), 1_000_000_000)
        );
        assert_eq!(*below.origin(Key::Namespace), Origin::Variable("WAFCC_NAMESPACE"));
        assert_eq!(*below.origin(Key::BaseDir), Origin::Default);
    }

    #[test]
    fn memory_is_a_word_or_a_size() {
        for (value, memory) in [
            ("auto", Some(0)),
            ("off", None),
            ("2GiB", Some(2 << 30)),
            ("0", None),
            ("much", None),
        ] {
            assert_eq!(with_variables(&[(Key::Memory, value)]).memory(), memory, "{value}");
        }
        assert_eq!(Settings::defaults().memory(), None);
        let wrong = Key::Memory.check("much".as_ref()).unwrap_err();
        assert_eq!(wrong, "memory: set it to auto, off, or a size such as 4G");
    }

    #[test]
    fn texts_are_compared_by_a_word_or_as_a_switch() {
        for (value, comparison) in [
            ("comments", Comparison::Comments),
            ("yes", Comparison::All),
            ("1", Comparison::All),
            ("off", Comparison::No),
            ("all", Comparison::Comments),
        ] {
            let settings = with_variables(&[(Key::CompareTexts, value)]);
            assert_eq!(settings.comparison(), comparison, "{value}");
        }
        let wrong = Key::CompareTexts.check("all".as_ref()).unwrap_err();
        assert_eq!(wrong, "compare_texts: set it to no, comments or yes");
    }

    #[test]
    fn extra_files_are_a_list() {
        assert_eq!(with_variables(&[]).extra_files(), Vec::<PathBuf>::new());
        let two = with_variables(&[(Key::ExtraFiles, "/a:/b")]).extra_files();
        assert_eq!(two, [Path::new("/a"), Path::new("/b")]);
    }
}
