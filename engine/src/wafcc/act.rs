//! Does what the options ask for, and says what came of it on standard output.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use super::ask;
use super::explanation::Explanation;
use super::options::Act;
use super::place;
use super::quantity::show_size;
use super::question::{Answer, Wish};
use super::run::Home;
use super::settings::{Key, Settings};
use super::settings_file;
use crate::folder::ENGINE;
use crate::signature;

const HELP: &str = "\
wafcc runs a compiler, or any command, in the engine of waflib-extras: builds by make, CMake or ninja share the
processors with each other and with Waf's builds, and what was compiled before is not compiled again. Without an engine
it just runs the command.

Usage: wafcc COMMAND [ARGUMENT...]
       wafcc run [--output=FILE...] -- COMMAND [ARGUMENT...]
                                             cache any command, not only compiles; what other machines have stored is used
                                             only where all files that it makes are named
       wafcc run --no-cache -- COMMAND [ARGUMENT...]
       wafcc OPTION...
       a link to wafcc that is called like a compiler runs the next one of that name in PATH

Options:
  -s, --show-stats [--json] [-v]  hits and misses; -v with all reasons
  -z, --zero-stats                begin counting anew
      --explain [OUTPUT] [--json] why the last request for that file hit or missed, or the last ten
  -C, --clear                     remove all entries
  -c, --cleanup                   bring the store within its limit
      --evict-older-than AGE      remove what was not used for so long (30d, 12h)
  -M, --max-size SIZE             the store's limit (5G, 500Mi; 0 for none)
      --audit PERCENT             compile that share of hits again when idle, and compare
      --audit-report              what came of that; fails if a result was different
  -p, --show-config               all settings, and where each comes from
  -k, --get-config NAME           one setting, or store, runtime_dir, config_path
  -o, --set-config NAME=VALUE     write one into the file of settings
      --new-signing-key [FILE]    make a key that signs uploads, and show its public half, for trusted_keys
      --shutdown                  end the engine of this store
  -V, --version
  -h, --help

Environment:
  WAFCC_DIR         the store [$XDG_CACHE_HOME/wafcc, or ~/.cache/wafcc]; each store has an engine of its own
  WAFCC_DISABLE     run the command here, without the engine
  WAFCC_CONFIGPATH  the file of settings [$XDG_CONFIG_HOME/wafcc/wafcc.conf, or ~/.config/…; then the store's own]
  WAFD_RUNTIME_DIR  where engines are (see wafd --help)
  and one variable for each setting: see docs/wafcc.md

Examples:
  make CC='wafcc gcc' -j8
  cmake -DCMAKE_C_COMPILER_LAUNCHER=wafcc -DCMAKE_CXX_COMPILER_LAUNCHER=wafcc ..
  ln -s \"$(command -v wafcc)\" ~/bin/gcc    # with ~/bin before /usr/bin in PATH
  wafcc run -- protoc --cpp_out=gen api.proto
  wafcc --explain build/main.o
";

pub fn perform(act: Act) -> Result<(), String> {
    let settings = Settings::load();
    match act {
        Act::Help => say(HELP),
        Act::Version => say(&format!("wafcc {ENGINE}\n")),
        Act::ShowConfig => show_config(&settings),
        Act::GetConfig(name) => get_config(&settings, &name),
        Act::SetConfig(key, value) => set_config(&settings, key, &value),
        Act::ShowStats { json, verbose } => show_stats(&settings, json, verbose),
        Act::AuditReport => report_audits(&settings),
        Act::Explain { output, json } => explain(&settings, output.as_deref(), json),
        Act::NewSigningKey(file) => make_key(file),
        Act::Wish(wish) => answer(&ask::ask(&settings, wish)?),
        Act::Shutdown => ask::shut_down(&settings),
    }
}

/// As the engine knows outputs: absolute, and in JSON.
fn absolute(output: &OsStr) -> Result<String, String> {
    let path = std::path::absolute(output).map_err(|e| format!("{}: {e}", output.to_string_lossy()))?;
    let path = path.into_os_string().into_string();
    path.map_err(|path| format!("{}: its name is not UTF-8", path.to_string_lossy()))
}

fn show_stats(settings: &Settings, json: bool, verbose: bool) -> Result<(), String> {
    match ask::ask(settings, Wish::Statistics)? {
        Answer::Statistics(statistics) if json => say(&format!("{:#}\n", statistics.json())),
        Answer::Statistics(statistics) => say(&statistics.show(verbose)),
        _ => Err("the engine answered something else".to_owned()),
    }
}

fn explain(settings: &Settings, output: Option<&OsStr>, json: bool) -> Result<(), String> {
    let asked = output.map(absolute).transpose()?;
    let wish = Wish::Explain { output: asked.clone() };
    let Answer::Explanations(all) = ask::ask(settings, wish)? else {
        return Err("the engine answered something else".to_owned());
    };
    if json {
        let all: Vec<_> = all.iter().map(Explanation::json).collect();
        return say(&format!("{:#}\n", serde_json::Value::from(all)));
    }
    match (&all[..], asked) {
        ([], Some(output)) => say(&format!("{output}: not asked for, or forgotten\n")),
        ([], None) => say("nothing was asked for, or all is forgotten\n"),
        (all, Some(_)) => say(&all.iter().map(Explanation::show).collect::<String>()),
        (all, None) => say(&all.iter().map(Explanation::show_dated).collect::<String>()),
    }
}

fn answer(answer: &Answer) -> Result<(), String> {
    match answer {
        Answer::Removed { entries, bytes } => say(&format!("Removed {entries} entries, {}\n", show_size(*bytes))),
        _ => Ok(()),
    }
}

/// A difference is an error, for whoever runs this at the end of a test.
fn report_audits(settings: &Settings) -> Result<(), String> {
    let Answer::Statistics(statistics) = ask::ask(settings, Wish::Statistics)? else {
        return Err("the engine did not answer with statistics".to_owned());
    };
    say(&statistics.show_audit_report())?;
    match statistics.different {
        0 => Ok(()),
        n => Err(format!(
            "{n} results of the cache were different from a compile's: please report that; --zero-stats forgets it"
        )),
    }
}

/// Each setting with its origin, and the places that follow from them; what was set wrongly is an error.
fn show_config(settings: &Settings) -> Result<(), String> {
    let mut text = String::new();
    for key in Key::all() {
        let value = settings.shown(key);
        text.push_str(&format!("({}) {} = {value}\n", settings.origin(key), key.name()));
    }
    for place in PLACES {
        text.push_str(&format!("(place) {place} = {}\n", place_of(settings, place)?));
    }
    say(&text)?;
    match &settings.mistakes[..] {
        [] => Ok(()),
        mistakes => Err(mistakes.join("; ")),
    }
}

/// The public half goes to standard output, for whoever puts it into a setting by a script.
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
    say(&format!("{public}\n"))
}

const PLACES: [&str; 3] = ["store", "runtime_dir", "config_path"];

fn place_of(settings: &Settings, name: &str) -> Result<String, String> {
    let shown = |path: Option<PathBuf>| path.map_or("(none)".to_owned(), |path| path.display().to_string());
    match name {
        "store" => Ok(shown(place::store(settings))),
        "runtime_dir" => Ok(shown(Some(Home::of(settings).folder.path().to_owned()))),
        "config_path" => Ok(shown(place::file_to_change(settings))),
        other => Err(format!("there is no place {other}")),
    }
}

fn get_config(settings: &Settings, name: &str) -> Result<(), String> {
    let value = if PLACES.contains(&name) {
        place_of(settings, name)?
    } else {
        settings.shown(Key::named(name)?)
    };
    say(&format!("{value}\n"))
}

fn set_config(settings: &Settings, key: Key, value: &str) -> Result<(), String> {
    let path = place::file_to_change(settings).ok_or("there is no file of settings: set WAFCC_CONFIGPATH or HOME")?;
    if key == Key::CacheDir && Some(&path) == place::store_file(settings).as_ref() {
        return Err("cache_dir: a store's own file cannot say where the store is; unset WAFCC_DIR first".to_owned());
    }
    settings_file::write(&path, key.name(), value)?;
    // A variable is above the file: what holds is what the engine has to hear.
    let settings = Settings::load();
    match settings.text(key).to_str() {
        Some(holds) if key.concerns_the_engine() && key.holds_at_once() => ask::tell(&settings, key, holds),
        Some(_) if key.concerns_the_engine() && ask::is_there(&settings) => {
            let name = key.name();
            say(&format!(
                "{name} holds from the engine's next start on: wafcc --shutdown\n"
            ))
        }
        _ => Ok(()),
    }
}

fn say(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout();
    let said = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    said.map_err(|e| format!("write to standard output: {e}"))
}
