//! The options of our own: words to acts.

use std::ffi::OsString;

use lexopt::prelude::*;

use crate::bytes::quantity;
use crate::report::question::Request;
use crate::settings::Key;

/// One thing to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Act {
    Help,
    Version,
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
    /// Of these outputs; without any, of the last requests.
    Explain {
        outputs: Vec<OsString>,
        json: bool,
    },
    Shutdown,
}

/// All of them, in the order in which they were named.
pub fn parse(args: Vec<OsString>) -> Result<Vec<Act>, String> {
    parse_words(args).map_err(|error| match error {
        lexopt::Error::UnexpectedOption(option) => format!("there is no option {option}"),
        other => other.to_string(),
    })
}

fn parse_words(args: Vec<OsString>) -> Result<Vec<Act>, lexopt::Error> {
    let mut parser = lexopt::Parser::from_args(args);
    let mut acts = Vec::new();
    let (mut json, mut verbose) = (false, false);
    while let Some(arg) = parser.next()? {
        acts.push(match arg {
            Short('h') | Long("help") => Act::Help,
            Short('V') | Long("version") => Act::Version,
            Short('s') | Long("show-stats") => Act::ShowStats { json, verbose },
            Short('z') | Long("zero-stats") => Act::Request(Request::Zero),
            Short('C') | Long("clear") => Act::Request(Request::Clear),
            Short('c') | Long("cleanup") => Act::Request(Request::CleanUp),
            Short('p') | Long("show-config") => Act::ShowConfig { json },
            Short('k') | Long("get-config") => Act::GetConfig(parser.value()?.string()?),
            Short('M') | Long("max-size") => set(Key::MaxSize, parser.value()?.string()?)?,
            Long("audit-report") => Act::AuditReport,
            Long("audit") => set(Key::Audit, parser.value()?.string()?)?,
            Short('o') | Long("set-config") => set_named(&parser.value()?.string()?)?,
            Long("explain") => explain(&mut parser)?,
            Long("shutdown") => Act::Shutdown,
            Long("new-signing-key") => Act::NewSigningKey(optional(&mut parser)?),
            Long("evict-older-than") => Act::Request(Request::Evict {
                seconds: quantity::age(&parser.value()?.string()?)?,
            }),
            Long("json") => {
                json = true;
                continue;
            }
            Short('v') | Long("verbose") => {
                verbose = true;
                continue;
            }
            Value(word) => {
                let word = word.to_string_lossy();
                return Err(format!("{word}: options of wafcc and a command do not go together").into());
            }
            _ => return Err(arg.unexpected()),
        });
    }
    settle(acts, json, verbose)
}

/// A value that may be left out.
fn optional(parser: &mut lexopt::Parser) -> Result<Option<OsString>, lexopt::Error> {
    match parser.optional_value() {
        Some(value) => Ok(Some(value)),
        None => Ok(parser
            .raw_args()?
            .next_if(|word| !word.as_encoded_bytes().starts_with(b"-"))),
    }
}

/// Which outputs may be left out.
fn explain(parser: &mut lexopt::Parser) -> Result<Act, lexopt::Error> {
    let mut outputs = Vec::from_iter(parser.optional_value());
    let mut words = parser.raw_args()?;
    while let Some(word) = words.next_if(|word| !word.as_encoded_bytes().starts_with(b"-")) {
        outputs.push(word);
    }
    let json = false;
    Ok(Act::Explain { outputs, json })
}

/// How things are shown may be said before or after that they are.
fn settle(mut acts: Vec<Act>, json: bool, verbose: bool) -> Result<Vec<Act>, lexopt::Error> {
    let mut count = 0;
    for act in &mut acts {
        match act {
            Act::ShowStats { json: j, verbose: v } => (*j, *v) = (json, verbose),
            Act::Explain { json: j, .. } | Act::ShowConfig { json: j } if !verbose => *j = json,
            _ => continue,
        }
        count += 1;
    }
    if acts.is_empty() && !json && !verbose {
        return Ok(vec![Act::Help]);
    }
    if count == 0 && (json || verbose) {
        return Err(
            "--json says how to --show-stats, --show-config or --explain, --verbose how to --show-stats".into(),
        );
    }
    Ok(acts)
}

fn set(key: Key, value: String) -> Result<Act, String> {
    key.check(value.as_ref())?;
    Ok(Act::SetConfig(key, value))
}

fn set_named(pair: &str) -> Result<Act, String> {
    let split = pair.split_once('=');
    let (name, value) = split.ok_or_else(|| format!("--set-config {pair}: write it as NAME=VALUE"))?;
    set(Key::named(name.trim())?, value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Vec<Act>, String> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn several_things_are_done_in_their_order() {
        let acts = parsed("-z -M 5G --show-stats --json").unwrap();
        let size = Act::SetConfig(Key::MaxSize, "5G".to_owned());
        let show = Act::ShowStats {
            json: true,
            verbose: false,
        };
        assert_eq!(acts, [Act::Request(Request::Zero), size, show]);
    }

    #[test]
    fn without_any_word_there_is_help() {
        assert_eq!(parsed(""), Ok(vec![Act::Help]));
    }

    #[test]
    fn what_is_shown_may_be_for_programs() {
        let explain = |outputs: &[&str], json| Act::Explain {
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
            ("--show-config", Act::ShowConfig { json: false }),
            ("-p --json", Act::ShowConfig { json: true }),
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
