//! Command lines: help, and mistakes in one line that names the word and what is wrong with it.

use std::error::Error;

use clap::error::{ContextKind, ErrorKind};

/// Template for the help of a command that is described at the top, so its line in the list of commands is left out.
pub const WITHOUT_ABOUT: &str = "{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// The error of `clap` in one line of our words. The original has several lines.
pub fn describe(error: &clap::Error) -> String {
    let said = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let option = said(ContextKind::InvalidArg);
    let name = option.split([' ', '=']).next().unwrap_or_default();
    let value = said(ContextKind::InvalidValue);
    match error.kind() {
        ErrorKind::UnknownArgument if option.starts_with('-') => format!("there is no option {option}"),
        ErrorKind::UnknownArgument => format!("unexpected argument {option:?}"),
        ErrorKind::InvalidSubcommand => format!("there is no command {}", said(ContextKind::InvalidSubcommand)),
        ErrorKind::MissingRequiredArgument => format!("{} is missing", option.trim_matches(['<', '>'])),
        ErrorKind::InvalidValue if value.is_empty() => format!("missing argument for option '{name}'"),
        ErrorKind::ValueValidation => match error.source() {
            Some(why) if name.starts_with('-') => format!("{name} {value}: {why}"),
            Some(why) => why.to_string(),
            None => format!("{name} {value}: not such a value"),
        },
        _ => {
            let whole = error.to_string();
            let first = whole.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    }
}
