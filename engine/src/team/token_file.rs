//! The file of tokens: read again whenever it has changed, so that a token that is taken out is revoked at once.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::stamp::Stamp;
use super::tokens::{self, Holder, Tokens};
use crate::room::Rights;

/// The name of the holder of `$WAFD_SERVE_TOKEN`.
const ENVIRONMENT: &str = "environment";

pub struct TokenFile {
    path: Option<PathBuf>,
    stamp: Option<Stamp>,
    /// From the environment, beside those of the file.
    given: Option<Holder>,
}

impl TokenFile {
    /// With the tokens that hold now.
    pub fn open(path: Option<PathBuf>, given: Option<&str>) -> Result<(TokenFile, Tokens), String> {
        let holder = |token| Holder::new(ENVIRONMENT, tokens::WRITE, "-", token);
        let given = given
            .map(holder)
            .transpose()
            .map_err(|e| format!("WAFD_SERVE_TOKEN: {e}"))?;
        let mut file = TokenFile {
            path,
            stamp: None,
            given,
        };
        let tokens = file.read()?;
        Ok((file, tokens))
    }

    /// The tokens, if they have changed. A file that cannot be read, or is wrong, revokes nothing and is told of.
    pub fn changed(&mut self) -> Option<Result<Tokens, String>> {
        let path = self.path.as_ref()?;
        let stamp = Stamp::at(path);
        if stamp == self.stamp {
            return None;
        }
        let read = self.read();
        // Told once, not every second.
        self.stamp = stamp;
        Some(read)
    }

    fn read(&mut self) -> Result<Tokens, String> {
        let mut tokens = Tokens::default();
        if let Some(path) = &self.path {
            let (found, stamp) = read(path)?;
            (tokens, self.stamp) = (found, Some(stamp));
        }
        self.given.iter().for_each(|holder| tokens.add(holder.clone()));
        Ok(tokens)
    }
}

fn read(path: &Path) -> Result<(Tokens, Stamp), String> {
    let named = |error: &dyn std::fmt::Display| format!("tokens {}: {error}", path.display());
    let mut file = File::open(path).map_err(|error| named(&error))?;
    let found = file.metadata().map_err(|error| named(&error))?;
    if found.mode() & 0o077 != 0 {
        return Err(named(&"others may read or write it; chmod 600 it"));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|error| named(&error))?;
    let tokens = Tokens::parse(&text).map_err(|error| named(&error))?;
    Ok((tokens, Stamp::of(&found)))
}

/// Adds a token that was not there before, and tells it: the file has only its hash.
pub fn add(path: &Path, name: &str, rights: Rights, namespace: &str) -> Result<String, String> {
    let named = |error: &dyn std::fmt::Display| format!("tokens {}: {error}", path.display());
    let is_word = |text: &str| !text.is_empty() && !text.contains(char::is_whitespace) && !text.starts_with('#');
    if !is_word(name) || !is_word(namespace) {
        return Err(format!("token {name:?} {namespace:?}: names are words without spaces"));
    }
    if path.exists() && read(path)?.0.is_name_taken(name) {
        return Err(named(&format_args!(
            "there is a token {name} already; remove its line first"
        )));
    }
    let token = tokens::random()?;
    let holder = Holder::new(name, rights, namespace, &token)?;
    let open = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    let mut file = open.map_err(|error| named(&error))?;
    file.write_all(holder.line().as_bytes())
        .map_err(|error| named(&error))?;
    Ok(token)
}
