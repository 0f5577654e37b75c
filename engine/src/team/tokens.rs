//! Tokens, each with a name, rights and a namespace.
//!
//! Pure. Only the digests of tokens are kept. A lookup takes the same time for each token, so the time reveals nothing.

use subtle::{Choice, ConstantTimeEq};

use crate::bytes::digest::Digest;
use crate::room::{Rights, MOST_NAME};

/// The prefix of a digest in the file. A word without it is a token.
const HASHED: &str = "blake3:";
/// Shorter tokens could be guessed.
const SHORTEST: usize = 16;

/// A holder of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub name: String,
    pub rights: Rights,
    pub namespace: String,
    digest: Digest,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens {
    pub holders: Vec<Holder>,
}

pub const READ: Rights = Rights {
    read: true,
    write: false,
};
pub const WRITE: Rights = Rights {
    read: true,
    write: true,
};

impl Holder {
    pub fn new(name: &str, rights: Rights, namespace: &str, token: &str) -> Result<Holder, String> {
        let digest = match token.strip_prefix(HASHED) {
            Some(digest) => digest.parse().map_err(|error| format!("the hash of {name}: {error}"))?,
            None if token.len() < SHORTEST => {
                return Err(format!(
                    "the token of {name} is too short: it takes {SHORTEST} characters"
                ))
            }
            None => Digest::of(token.as_bytes()),
        };
        if name.len() > MOST_NAME || namespace.len() > MOST_NAME {
            return Err("a name is too long".to_owned());
        }
        Ok(Holder {
            name: name.to_owned(),
            rights,
            namespace: if namespace == "-" { "" } else { namespace }.to_owned(),
            digest,
        })
    }

    /// The holder for all clients of a server without tokens.
    pub fn anyone() -> Holder {
        Holder {
            name: "anyone".to_owned(),
            rights: WRITE,
            namespace: String::new(),
            digest: Digest::of(b""),
        }
    }

    /// The holder's line in the file.
    pub fn line(&self) -> String {
        let rights = if self.rights.write { "write" } else { "read" };
        let namespace = if self.namespace.is_empty() {
            "-"
        } else {
            &self.namespace
        };
        format!("{} {rights} {namespace} {HASHED}{}\n", self.name, self.digest)
    }
}

impl Tokens {
    /// Parses a file: a line per token, `name read|write namespace token`; `#` begins a comment, `-` is the common namespace.
    pub fn parse(text: &str) -> Result<Tokens, String> {
        let lines = (1..).zip(text.lines().map(str::trim));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let holders = lines.map(|(number, line)| parse_line(line).map_err(|error| format!("line {number}: {error}")));
        Ok(Tokens {
            holders: holders.collect::<Result<_, _>>()?,
        })
    }

    pub fn add(&mut self, holder: Holder) {
        self.holders.push(holder);
    }

    /// The holder of a token. Compares all tokens, even after a match.
    pub fn holder(&self, shown: &[u8]) -> Option<&Holder> {
        let shown = Digest::of(shown);
        let mut found = None;
        for holder in &self.holders {
            let same: Choice = holder.digest.0.ct_eq(&shown.0);
            if same.into() {
                found = Some(holder);
            }
        }
        found
    }

    /// Whether this holder was neither removed nor changed.
    pub fn holds(&self, holder: &Holder) -> bool {
        self.holders.contains(holder)
    }

    pub fn is_name_taken(&self, name: &str) -> bool {
        self.holders.iter().any(|holder| holder.name == name)
    }

    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }
}

fn parse_line(line: &str) -> Result<Holder, String> {
    let words: Vec<_> = line.split_whitespace().collect();
    let [name, rights, namespace, token] = words[..] else {
        return Err("not of the form \"name read|write namespace token\"".to_owned());
    };
    let rights = match rights {
        "read" => READ,
        "write" => WRITE,
        other => return Err(format!("the rights are {other:?}: make them read or write")),
    };
    Holder::new(name, rights, namespace, token)
}

/// A random token.
pub fn random() -> Result<String, String> {
    let mut bytes = [0u8; Digest::SIZE];
    getrandom::fill(&mut bytes).map_err(|error| format!("draw a token: {error}"))?;
    Ok(format!("wafr_{}", Digest(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_token_has_a_holder() {
        let token = random().unwrap();
        let hashed = Holder::new("ci", WRITE, "team", &token).unwrap();
        let text = format!("# who\n\n{}dev read - {}\n", hashed.line(), "plain".repeat(4));
        let tokens = Tokens::parse(&text).unwrap();
        assert_eq!(tokens.holder(token.as_bytes()), Some(&hashed));
        let dev = tokens.holder("plain".repeat(4).as_bytes()).unwrap();
        assert_eq!((dev.rights, dev.namespace.as_str()), (READ, ""));
        assert_eq!(tokens.holder(&token.as_bytes()[1..]), None);
        assert_eq!(tokens.holder(b""), None);
        let shown = hashed.line().split_whitespace().last().unwrap().to_owned();
        assert_eq!(tokens.holder(shown.as_bytes()), None, "a hash is no token");
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, error) in [
            ("a read -", "line 1: not of the form"),
            ("\na all - 0123456789abcdef", "line 2: the rights are \"all\""),
            ("a read - short", "too short"),
            ("a read - blake3:12", "64 hexadecimal digits"),
        ] {
            let found = Tokens::parse(text).unwrap_err();
            assert!(found.contains(error), "{found}");
        }
    }
}
