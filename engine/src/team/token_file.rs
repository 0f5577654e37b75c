//! The file of tokens. It is read again when it changes, so a token that is removed from it is revoked at once.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::tokens::{self, Holder, Tokens};
use crate::facts::status::Status;
use crate::room::Rights;

/// The name of the holder of `$WAFD_SERVE_TOKEN`.
const ENVIRONMENT: &str = "environment";

pub struct TokenFile {
    path: Option<PathBuf>,
    /// The status of the file that was read last.
    read: Option<Status>,
    /// The token of the environment, besides those of the file.
    given: Option<Holder>,
}

impl TokenFile {
    /// Opens the file. Also returns the tokens that are valid now.
    pub fn open(path: Option<PathBuf>, given: Option<&str>) -> Result<(TokenFile, Tokens), String> {
        let holder = |token| Holder::new(ENVIRONMENT, tokens::WRITE, "-", token);
        let given = given
            .map(holder)
            .transpose()
            .map_err(|e| format!("WAFD_SERVE_TOKEN: {e}"))?;
        let mut file = TokenFile {
            path,
            read: None,
            given,
        };
        let tokens = file.read()?;
        Ok((file, tokens))
    }

    /// The tokens, if the file has changed. An error, which is returned once, revokes nothing.
    pub fn changed(&mut self) -> Option<Result<Tokens, String>> {
        let path = self.path.as_ref()?;
        let found = status_of(path);
        if found == self.read {
            return None;
        }
        let read = self.read();
        self.read = found;
        Some(read)
    }

    fn read(&mut self) -> Result<Tokens, String> {
        let mut tokens = Tokens::default();
        if let Some(path) = &self.path {
            let (found, status) = read(path)?;
            (tokens, self.read) = (found, Some(status));
        }
        self.given.iter().for_each(|holder| tokens.add(holder.clone()));
        Ok(tokens)
    }
}

/// A changed content changes the status: programs can set back the time of the content, but not that of the status.
pub fn status_of(path: &Path) -> Option<Status> {
    rustix::fs::stat(path).ok().map(Status::from)
}

fn read(path: &Path) -> Result<(Tokens, Status), String> {
    let named = |error: &dyn std::fmt::Display| format!("tokens {}: {error}", path.display());
    let mut file = File::open(path).map_err(|error| named(&error))?;
    let status = rustix::fs::fstat(&file).map_err(|error| named(&std::io::Error::from(error)))?;
    if status.st_mode & 0o077 != 0 {
        return Err(named(&"others may read or write it; chmod 600 it"));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|error| named(&error))?;
    let tokens = Tokens::parse(&text).map_err(|error| named(&error))?;
    Ok((tokens, status.into()))
}

/// Makes a token, adds its digest to the file, and returns it.
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
