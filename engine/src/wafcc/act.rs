//! Performs what the options ask for, and prints the results.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{json, Value};

use super::ask;
use super::debugger;
use super::distant;
use super::options::Action;
use super::run::Home;
use super::trouble;
use crate::bytes::path_text;
use crate::bytes::quantity::show_size;
use crate::report::explanation::Explanation;
use crate::report::print;
use crate::report::question::{Answer, Request};
use crate::report::statistics::Statistics;
use crate::settings::address;
use crate::settings::place;
use crate::settings::settings_file;
use crate::settings::{Distant, Key, Settings};
use crate::trust::signature;

pub fn perform(act: Action) -> Result<(), String> {
    if let Action::Print(text) = &act {
        return print(text);
    }
    let settings = Settings::load(distant::look_at);
    if settings.distant == Some(Distant::Silent) {
        let store = place::store(&settings).unwrap_or_default();
        let shown = path_text::show(store.as_os_str());
        return Err(format!(
            "the store {shown} does not answer: is its file system to be had? WAFCC_DIR names another store"
        ));
    }
    match act {
        Action::Print(_) => Ok(()),
        Action::ShowConfig { json } => show_config(&settings, json),
        Action::GetConfig(name) => get_config(&settings, &name),
        Action::SetConfig(key, value) => set_config(&settings, key, &value),
        Action::ShowStats { json, verbose } => show_stats(&settings, json, verbose),
        Action::AuditReport => report_audits(&settings),
        Action::Explain { outputs, json } => explain(&settings, &outputs, json),
        Action::NewSigningKey(file) => make_key(file),
        Action::DebuggerSettings(file) => debugger::tell(&settings, file),
        Action::Request(request) => answer(&ask::ask(&settings, request)?),
        Action::Shutdown => ask::shut_down(&settings),
    }
}

/// The engine knows outputs by absolute paths.
fn absolute(output: &OsStr) -> Result<PathBuf, String> {
    std::path::absolute(output).map_err(|e| format!("{}: {e}", path_text::show(output)))
}

/// Commands that ran without the engine are not in its counts.
fn warn_of_trouble(settings: &Settings) {
    if let Some(trouble) = trouble::read_note(&Home::of(settings).folder) {
        let (count, reason) = (trouble.commands, trouble.reason);
        eprintln!("wafcc: {count} commands ran without the engine: {reason}");
    }
}

fn show_stats(settings: &Settings, json: bool, verbose: bool) -> Result<(), String> {
    warn_of_trouble(settings);
    let statistics = statistics(settings)?;
    print(match json {
        true => format!("{:#}\n", statistics.json()),
        false => statistics.show(verbose),
    })
}

fn statistics(settings: &Settings) -> Result<Box<Statistics>, String> {
    match ask::ask(settings, Request::Statistics)? {
        Answer::Statistics(statistics) => Ok(statistics),
        _ => Err("the engine did not answer with statistics".to_owned()),
    }
}

fn explain(settings: &Settings, outputs: &[OsString], json: bool) -> Result<(), String> {
    warn_of_trouble(settings);
    let paths: Vec<_> = outputs
        .iter()
        .map(|output| absolute(output))
        .collect::<Result<_, _>>()?;
    if paths.is_empty() {
        let last = explanations(settings, None)?;
        return match &last[..] {
            all if json => print_json(all),
            [] => print("nothing was asked for, or all is forgotten\n"),
            all => print(all.iter().map(Explanation::show_dated).collect::<String>()),
        };
    }
    let told = paths.iter().map(|path| {
        let mut found = explanations(settings, Some(path_text::show(path)))?.pop();
        if let Some(found) = found.as_mut().filter(|found| was_written_after(path, found.at)) {
            found.why.push(WRITTEN_AFTER.to_owned());
        }
        Ok((path, found))
    });
    let told = told.collect::<Result<Vec<_>, String>>()?;
    if json {
        return print_json(&told.into_iter().filter_map(|(_, found)| found).collect::<Vec<_>>());
    }
    let line = |(path, found): &(&PathBuf, Option<Explanation>)| match found {
        Some(found) => found.show(),
        None => format!("{}: not asked for, or forgotten\n", path_text::show(path)),
    };
    print(told.iter().map(line).collect::<String>())
}

const WRITTEN_AFTER: &str = "it was written again after that, by something that the cache was not asked for";
/// How much the clocks of a file system and of the machine may differ, in seconds.
const CLOCK_SKEW: u64 = 2;

/// The user asks about the file as it is now.
fn was_written_after(path: &Path, at: u64) -> bool {
    // A link into the store has the time of its last use, in whichever folder.
    let found = fs::metadata(path).ok().filter(|status| status.nlink() == 1);
    let modified = found.and_then(|status| status.modified().ok());
    let since = modified.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.is_some_and(|since| since.as_secs() > at + CLOCK_SKEW)
}

fn explanations(settings: &Settings, output: Option<String>) -> Result<Vec<Explanation>, String> {
    match ask::ask(settings, Request::Explain { output })? {
        Answer::Explanations(all) => Ok(all),
        _ => Err("the engine answered something else".to_owned()),
    }
}

fn print_json(all: &[Explanation]) -> Result<(), String> {
    let all: Vec<_> = all.iter().map(Explanation::json).collect();
    print(format!("{:#}\n", Value::from(all)))
}

fn answer(answer: &Answer) -> Result<(), String> {
    match answer {
        Answer::Removed { entries, bytes } => print(format!("Removed {entries} entries, {}\n", show_size(*bytes))),
        _ => Ok(()),
    }
}

/// A difference is an error, so that a test script fails.
fn report_audits(settings: &Settings) -> Result<(), String> {
    let statistics = statistics(settings)?;
    print(statistics.show_audit_report())?;
    match statistics.different {
        0 => Ok(()),
        n => Err(format!(
            "{n} results of the cache were different from a compile's: please report that; --zero-stats forgets it"
        )),
    }
}

/// Prints each setting with its origin, and the paths that follow from them. A wrong value is an error.
fn show_config(settings: &Settings, json: bool) -> Result<(), String> {
    let text = match json {
        true => format!("{:#}\n", config_json(settings)?),
        false => config_text(settings)?,
    };
    print(&text)?;
    match &settings.mistakes[..] {
        [] => Ok(()),
        mistakes => Err(mistakes.join("; ")),
    }
}

fn config_text(settings: &Settings) -> Result<String, String> {
    let mut text = String::new();
    for key in Key::all() {
        let value = settings.shown(key);
        text.push_str(&format!("({}) {} = {value}\n", settings.origin(key), key.name()));
    }
    for place in PLACES {
        let path = place_of(settings, place)?.map_or(NOWHERE.to_owned(), path_text::show);
        text.push_str(&format!("(place) {place} = {path}\n"));
    }
    Ok(text)
}

/// The same for programs: a switch is true or false, and a missing place is null.
fn config_json(settings: &Settings) -> Result<Value, String> {
    let told = |key: Key| json!({"value": settings.json(key), "origin": settings.origin(key).to_string()});
    let values: serde_json::Map<_, _> = Key::all().map(|key| (key.name().to_owned(), told(key))).collect();
    let mut places = serde_json::Map::new();
    for place in PLACES {
        let path = place_of(settings, place)?;
        places.insert(place.to_owned(), path.as_ref().map(path_text::show).into());
        let bytes = path.as_deref().and_then(path_text::exact);
        places.insert(format!("{place}_bytes"), bytes.into());
    }
    let elsewhere = jobs_elsewhere(settings);
    Ok(json!({"settings": values, "places": places, "mistakes": settings.mistakes, "elsewhere": elsewhere}))
}

/// How many commands may run on a cluster.
fn jobs_elsewhere(settings: &Settings) -> usize {
    let addresses = address::parse_all(&settings.text(Key::Remote).to_string_lossy()).unwrap_or_default();
    let mut executions = addresses.into_iter().filter_map(|address| address.execution);
    executions.next().map_or(0, |execution| execution.jobs())
}

/// The public key goes to standard output, so that scripts can use it.
fn make_key(file: Option<OsString>) -> Result<(), String> {
    let usual = || place::user_folder().map(|folder| folder.join("signing.key"));
    let is_usual = file.is_none();
    let path = file.map(PathBuf::from).or_else(usual);
    let path = path.ok_or("there is no place for a key: write --new-signing-key FILE")?;
    let path = std::path::absolute(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    if let Some(folder) = path.parent().filter(|_| is_usual) {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|e| format!("make {}: {e}", folder.display()))?;
    }
    let public = signature::create(&path)?;
    eprintln!(
        "the private key is in {0}: on machines that write, signing_key = {0}",
        path.display()
    );
    eprintln!("on machines that read, trusted_keys = the public key:");
    print(format!("{public}\n"))
}

pub const PLACES: [&str; 3] = ["store", "runtime_dir", "config_path"];
const NOWHERE: &str = "(none)";

fn place_of(settings: &Settings, name: &str) -> Result<Option<PathBuf>, String> {
    match name {
        "store" => Ok(place::store(settings)),
        "runtime_dir" => Ok(Some(Home::of(settings).folder.path().to_owned())),
        "config_path" => Ok(place::file_to_change(settings)),
        other => Err(format!("there is no place {other}")),
    }
}

/// A place as raw bytes, so that `rm -rf "$(wafcc --get-config store)"` works for any name.
fn get_config(settings: &Settings, name: &str) -> Result<(), String> {
    let mut value = if PLACES.contains(&name) {
        let path = place_of(settings, name)?.unwrap_or_else(|| NOWHERE.into());
        path.into_os_string().into_vec()
    } else {
        settings.shown(Key::named(name)?).into_bytes()
    };
    value.push(b'\n');
    print(&value)
}

fn set_config(settings: &Settings, key: Key, value: &str) -> Result<(), String> {
    let path = place::file_to_change(settings).ok_or("there is no file of settings: set WAFCC_CONFIGPATH or HOME")?;
    if key == Key::CacheDir && Some(&path) == place::store_file(settings).as_ref() {
        return Err("cache_dir: a store's own file cannot say where the store is; unset WAFCC_DIR first".to_owned());
    }
    settings_file::write(&path, key.name(), value)?;
    // A variable overrides the file. The engine has to hear the value that applies.
    let settings = Settings::load(distant::look_at);
    match settings.text(key).to_str() {
        Some(holds) if key.concerns_the_engine() && key.holds_at_once() => ask::tell(&settings, key, holds),
        Some(_) if key.concerns_the_engine() && ask::is_there(&settings) => {
            let name = key.name();
            print(format!(
                "{name} holds from the engine's next start on: wafcc --shutdown\n"
            ))
        }
        _ => Ok(()),
    }
}
