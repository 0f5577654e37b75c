//! Our own options: parses the command line into actions.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::error::{ContextKind, ErrorKind};
use clap::parser::ValueSource;
use clap::{value_parser, Arg, ArgAction, Command, Id, ValueHint};

use crate::bytes::quantity;
use crate::files::folder::ENGINE;
use crate::report::misuse;
use crate::report::question::Request;
use crate::settings::Key;

const ABOUT: &str = "\
wafcc runs a compiler, or any command, in the engine of waflib-extras: builds by make, CMake or ninja share the
processors with each other and with Waf's builds, and what was compiled before is not compiled again. Without an engine
it just runs the command.";
const USAGE: &str = "\
wafcc COMMAND [ARGUMENT...]
       wafcc run [--output=FILE...] -- COMMAND [ARGUMENT...]
                                             cache any command, not only compiles; what other machines have stored is used
                                             only where all files that it makes are named
       wafcc run --no-cache -- COMMAND [ARGUMENT...]
       wafcc OPTION...
       a link to wafcc that is called like a compiler runs the next one of that name in PATH";
const MORE: &str = "\
Environment:
  WAFCC_DIR         the store [$XDG_CACHE_HOME/wafcc, or ~/.cache/wafcc]; each store has an engine of its own
  WAFCC_DISABLE     run the command here, without the engine
  WAFCC_CONFIGPATH  the file of settings [$XDG_CONFIG_HOME/wafcc/wafcc.conf, or ~/.config/…; then the store's own]
  WAFD_RUNTIME_DIR  where engines are (see wafd --help)
  WAFD_PATIENCE     seconds for which a build waits, once, for an engine that does not answer [1.5]
  and one variable for each setting: see docs/wafcc.md

Examples:
  make CC='wafcc gcc' -j8
  cmake -DCMAKE_C_COMPILER_LAUNCHER=wafcc -DCMAKE_CXX_COMPILER_LAUNCHER=wafcc ..
  ln -s \"$(command -v wafcc)\" ~/bin/gcc    # with ~/bin before /usr/bin in PATH
  wafcc run -- protoc --cpp_out=gen api.proto
  wafcc --explain build/main.o";

#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Help or version.
    Print(String),
    ShowStats {
        json: bool,
        verbose: bool,
    },
    ShowConfig {
        json: bool,
    },
    GetConfig(String),
    SetConfig(Key, String),
    Request(Request),
    AuditReport,
    NewSigningKey(Option<OsString>),
    /// For these outputs. Without any, for the last requests.
    Explain {
        outputs: Vec<OsString>,
        json: bool,
    },
    /// Into a file. Without one, they are printed.
    DebuggerSettings(Option<OsString>),
    Shutdown,
}

/// The value of an option that may be given without one. No argument can contain a zero.
const NO_VALUE: &str = "\0";

/// All options, for the parser, the help, the manual and the completions.
pub fn command() -> Command {
    let flag = |id: &'static str, help: &'static str| Arg::new(id).long(id).help(help).action(ArgAction::SetTrue);
    let option = |id: &'static str, name: &'static str, help: &'static str| {
        let arg = Arg::new(id)
            .long(id)
            .value_name(name)
            .help(help)
            .action(ArgAction::Append);
        arg.value_parser(value_parser!(OsString)).allow_hyphen_values(true)
    };
    let may_lack_value = |arg: Arg| arg.allow_hyphen_values(false).default_missing_value(NO_VALUE);
    Command::new("wafcc")
        .version(ENGINE)
        .about(ABOUT)
        .override_usage(USAGE)
        .after_help(MORE)
        .args([
            flag("show-stats", "hits and misses; -v with all reasons, --json for programs").short('s'),
            flag("zero-stats", "begin counting anew").short('z'),
            may_lack_value(option(
                "explain",
                "OUTPUT",
                "why the last request for that file, or for each of several, hit or missed, or the last ten; --json for programs",
            ))
            .num_args(0..)
            .value_hint(ValueHint::FilePath),
            flag("clear", "remove all entries").short('C'),
            flag("cleanup", "bring the store within its limit").short('c'),
            option("evict-older-than", "AGE", "remove what was not used for so long (30d, 12h)"),
            option("max-size", "SIZE", "the store's limit (5G, 500Mi; 0 for none)").short('M'),
            option("audit", "PERCENT", "compile that share of hits again when idle, and compare"),
            flag("audit-report", "what came of that; fails if a result was different"),
            flag("show-config", "all settings, and where each comes from; --json for programs").short('p'),
            option("get-config", "NAME", "one setting, or store, runtime_dir, config_path").short('k'),
            option("set-config", "NAME=VALUE", "write one into the file of settings").short('o'),
            may_lack_value(option(
                "new-signing-key",
                "FILE",
                "make a key that signs uploads, and show its public half, for trusted_keys",
            ))
            .num_args(0..=1)
            .value_hint(ValueHint::FilePath),
            may_lack_value(option(
                "debugger-settings",
                "FILE",
                "what tells gdb and lldb where the sources of this checkout are, if it shares results; into .gdbinit or .lldbinit if you name one",
            ))
            .num_args(0..=1)
            .value_hint(ValueHint::FilePath),
            flag("shutdown", "end the engine of this store"),
            flag("json", "with --show-stats, --show-config or --explain: for programs"),
            flag("verbose", "with --show-stats: all reasons").short('v'),
        ])
        .args_override_self(true)
}

/// All actions, in the order of the command line.
pub fn parse(args: Vec<OsString>) -> Result<Vec<Action>, String> {
    let args = args.into_iter().flat_map(split_explain);
    let found = match command().no_binary_name(true).try_get_matches_from(args) {
        Ok(found) => found,
        Err(asked) if !asked.use_stderr() => return Ok(vec![Action::Print(asked.to_string())]),
        Err(error) => return Err(describe(&error)),
    };
    let mut actions = Vec::new();
    let is_given = |id: &&str| found.value_source(id) == Some(ValueSource::CommandLine);
    let is_action = |id: &&str| !["json", "verbose"].contains(id);
    for id in found.ids().map(Id::as_str).filter(is_action).filter(is_given) {
        let mut places = found.indices_of(id).into_iter().flatten();
        match found.try_get_occurrences::<OsString>(id) {
            Ok(all) => {
                for values in all.into_iter().flatten() {
                    let values: Vec<_> = values.cloned().collect();
                    let place = values.iter().filter_map(|_| places.next()).last();
                    actions.push((place, action(id, values)?));
                }
            }
            Err(_is_flag) => actions.push((places.last(), action(id, Vec::new())?)),
        }
    }
    actions.sort_by_key(|(place, _)| *place);
    let actions = actions.into_iter().map(|(_, action)| action).collect();
    apply_flags(actions, found.get_flag("json"), found.get_flag("verbose"))
}

/// `--explain=OUTPUT` may be followed by more outputs, as `--explain OUTPUT` may. `clap` accepts only the second form.
fn split_explain(word: OsString) -> Vec<OsString> {
    match word.as_bytes().strip_prefix(b"--explain=") {
        Some(first) => vec!["--explain".into(), OsStr::from_bytes(first).to_owned()],
        None => vec![word],
    }
}

fn describe(error: &clap::Error) -> String {
    match (
        error.kind(),
        error.get(ContextKind::InvalidArg).map(ToString::to_string),
    ) {
        (ErrorKind::UnknownArgument, Some(word)) if !word.starts_with('-') => {
            format!("{word}: options of wafcc and a command do not go together")
        }
        _ => misuse::describe(error),
    }
}

fn action(option: &str, mut values: Vec<OsString>) -> Result<Action, String> {
    values.retain(|value| value != NO_VALUE);
    let value = || {
        let value = values.first().and_then(|value| value.to_str());
        value
            .map(str::to_owned)
            .ok_or_else(|| format!("--{option}: its value is not UTF-8"))
    };
    Ok(match option {
        "show-stats" => Action::ShowStats {
            json: false,
            verbose: false,
        },
        "zero-stats" => Action::Request(Request::Zero),
        "clear" => Action::Request(Request::Clear),
        "cleanup" => Action::Request(Request::CleanUp),
        "evict-older-than" => Action::Request(Request::Evict {
            seconds: quantity::age(&value()?)?,
        }),
        "explain" => Action::Explain {
            outputs: values,
            json: false,
        },
        "max-size" => set(Key::MaxSize, value()?)?,
        "audit" => set(Key::Audit, value()?)?,
        "audit-report" => Action::AuditReport,
        "show-config" => Action::ShowConfig { json: false },
        "get-config" => Action::GetConfig(value()?),
        "set-config" => set_named(&value()?)?,
        "new-signing-key" => Action::NewSigningKey(values.pop()),
        "debugger-settings" => Action::DebuggerSettings(values.pop()),
        "shutdown" => Action::Shutdown,
        other => return Err(format!("there is no option --{other}")),
    })
}

/// `--json` and `--verbose` may come before or after the option that they belong to.
fn apply_flags(mut actions: Vec<Action>, json: bool, verbose: bool) -> Result<Vec<Action>, String> {
    let mut count = 0;
    for action in &mut actions {
        match action {
            Action::ShowStats { json: j, verbose: v } => (*j, *v) = (json, verbose),
            Action::Explain { json: j, .. } | Action::ShowConfig { json: j } if !verbose => *j = json,
            _ => continue,
        }
        count += 1;
    }
    if actions.is_empty() && !json && !verbose {
        return Ok(vec![Action::Print(command().render_help().to_string())]);
    }
    if count == 0 && (json || verbose) {
        return Err(
            "--json says how to --show-stats, --show-config or --explain, --verbose how to --show-stats".into(),
        );
    }
    Ok(actions)
}

fn set(key: Key, value: String) -> Result<Action, String> {
    key.check(value.as_ref())?;
    Ok(Action::SetConfig(key, value))
}

fn set_named(pair: &str) -> Result<Action, String> {
    let split = pair.split_once('=');
    let (name, value) = split.ok_or_else(|| format!("--set-config {pair}: write it as NAME=VALUE"))?;
    set(Key::named(name.trim())?, value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Vec<Action>, String> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn several_things_are_done_in_their_order() {
        let actions = parsed("-z -M 5G --show-stats --json").unwrap();
        let size = Action::SetConfig(Key::MaxSize, "5G".to_owned());
        let show = Action::ShowStats {
            json: true,
            verbose: false,
        };
        assert_eq!(actions, [Action::Request(Request::Zero), size, show]);
    }

    #[test]
    fn without_options_there_is_help() {
        assert!(matches!(&parsed("").unwrap()[..], [Action::Print(help)] if help.contains("Usage: wafcc COMMAND")));
    }

    #[test]
    fn json_applies_to_each_option_that_shows_something() {
        let explain = |outputs: &[&str], json| Action::Explain {
            outputs: outputs.iter().map(OsString::from).collect(),
            json,
        };
        for (line, expected) in [
            ("--explain", explain(&[], false)),
            ("--explain a.o", explain(&["a.o"], false)),
            ("--explain a.o b.o", explain(&["a.o", "b.o"], false)),
            ("--explain=a.o b.o --json", explain(&["a.o", "b.o"], true)),
            ("--json --explain", explain(&[], true)),
            ("--explain --json", explain(&[], true)),
            ("--show-config", Action::ShowConfig { json: false }),
            ("-p --json", Action::ShowConfig { json: true }),
        ] {
            assert_eq!(parsed(line), Ok(vec![expected]), "{line}");
        }
    }

    #[test]
    fn mistakes_are_named_before_anything_is_done() {
        for (line, part) in [
            ("--fast", "--fast"),
            ("-z --evict-older-than 30", "30d"),
            ("-M much", "5G"),
            ("--set-config max_sise=1G", "did you mean max_size?"),
            ("--set-config max_size", "NAME=VALUE"),
            ("--audit 200", "0 to 100"),
            ("--json", "--show-stats"),
            ("-s gcc", "gcc: "),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
