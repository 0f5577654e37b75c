//! Signatures of entries that machines share: Ed25519 over the key under which an entry is found, and all of its bytes. See
//! `docs/entry-format.md`.
//!
//! The room knows files of keys, and nothing of settings, tiers or facts. No secret is printed, not even in an error.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::str::FromStr;

use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair, UnparsedPublicKey, ED25519};

use crate::bytes::digest::Digest;

const MAGIC: &[u8; 4] = b"wfg\x01";
/// All signed bytes begin with this, so that a signature of the same key for another purpose is never valid here.
const DOMAIN: &[u8] = b"waflib-extras: an entry of wafcc, signed; version 1\n";
const SIGNATURE: usize = 64;
const PUBLIC: &str = "ed25519:";
const SECRET: &str = "ed25519-secret:";
/// Limit for a file of keys.
const CAP: u64 = 1 << 20;

/// A public key. As text: `ed25519:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey(pub [u8; PublicKey::SIZE]);

impl PublicKey {
    pub const SIZE: usize = 32;

    /// Points of small order, for which anybody can make signatures. No real pair of keys has one, but a line of zeros
    /// does.
    fn is_weak(&self) -> bool {
        let mut point = self.0;
        point[31] &= 0x7f;
        let digits = Digest(point).to_string();
        WEAK.contains(&digits.as_str())
    }
}

/// Their encodings without the sign, including the unusual ones.
const WEAK: [&str; 7] = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
];

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The digits are written in the same way as those of digests.
        write!(f, "{PUBLIC}{}", Digest(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = String;

    fn from_str(text: &str) -> Result<PublicKey, String> {
        let digits = text
            .strip_prefix(PUBLIC)
            .and_then(|digits| digits.parse::<Digest>().ok());
        match digits {
            Some(digits) if PublicKey(digits.0).is_weak() => Err(format!(
                "{text:?} is no key of a pair; wafcc --new-signing-key makes one"
            )),
            Some(digits) => Ok(PublicKey(digits.0)),
            None if text.starts_with(SECRET) => {
                Err("a private key is no trusted key; name the public one that belongs to it".to_owned())
            }
            None => Err(format!(
                "{text:?} is no public key; write {PUBLIC} and 64 hexadecimal digits"
            )),
        }
    }
}

/// A private key.
pub struct Signer(Ed25519KeyPair);

impl Signer {
    fn of(seed: &[u8]) -> Option<Signer> {
        Ed25519KeyPair::from_seed_unchecked(seed).ok().map(Signer)
    }

    /// Reads the private key from a file that no other user may read.
    pub fn load(path: &Path) -> Result<Signer, String> {
        let told = path.display();
        let (file, text) = read(path)?;
        let mode = file.metadata().map_or(0o777, |found| found.mode());
        if mode & 0o077 != 0 {
            return Err(format!("{told}: others may use this private key; chmod 600 it"));
        }
        let mut lines = meant(&text).map(|(_, line)| line);
        let seed = lines
            .next()
            .and_then(|line| line.strip_prefix(SECRET)?.parse::<Digest>().ok());
        let signer = seed
            .filter(|_| lines.next().is_none())
            .and_then(|seed| Signer::of(&seed.0));
        signer.ok_or_else(|| format!("{told}: there is no private key in it; wafcc --new-signing-key makes one"))
    }

    pub fn public(&self) -> PublicKey {
        let mut key = [0; PublicKey::SIZE];
        key.copy_from_slice(self.0.public_key().as_ref());
        PublicKey(key)
    }

    /// Signs an entry that is found under this key.
    pub fn seal(&self, key: &Digest, entry: &[u8]) -> Vec<u8> {
        let signature = self.0.sign(&message(key, entry));
        [&MAGIC[..], &self.public().0, signature.as_ref(), entry].concat()
    }
}

/// Makes a pair of keys. The private one is written to a new file that only its owner may read.
pub fn create(path: &Path) -> Result<PublicKey, String> {
    let told = path.display();
    let mut seed = [0; 32];
    let random = SystemRandom::new().fill(&mut seed);
    random.map_err(|_| "the system gives no random numbers".to_owned())?;
    let public = Signer::of(&seed).ok_or("the key could not be made")?.public();
    let text = format!(
        "# A private key of wafcc. What is signed with it is trusted by readers that name\n# {public}\n{SECRET}{}\n",
        Digest(seed)
    );
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = made.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => format!("{told}: it is there already; name another file"),
        _ => format!("create {told}: {error}"),
    })?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written {
        let _ = fs::remove_file(path);
        return Err(format!("write {told}: {error}"));
    }
    Ok(public)
}

fn message(key: &Digest, entry: &[u8]) -> Vec<u8> {
    [DOMAIN, &key.0, entry].concat()
}

/// An entry as it is exchanged between machines, with or without a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed<'a> {
    signature: Option<(PublicKey, &'a [u8])>,
    pub entry: &'a [u8],
}

impl<'a> Sealed<'a> {
    /// Bytes without a signature are taken as an entry.
    pub fn read(bytes: &'a [u8]) -> Sealed<'a> {
        let signed = bytes.strip_prefix(MAGIC).and_then(|rest| {
            let (key, rest) = rest.split_first_chunk::<{ PublicKey::SIZE }>()?;
            let (signature, entry) = rest.split_at_checked(SIGNATURE)?;
            let signature = Some((PublicKey(*key), signature));
            Some(Sealed { signature, entry })
        });
        signed.unwrap_or(Sealed {
            signature: None,
            entry: bytes,
        })
    }

    pub fn signer(&self) -> Option<PublicKey> {
        self.signature.map(|(key, _)| key)
    }

    /// Whether the signature is valid for this entry and this key.
    pub fn is_genuine(&self, key: &Digest) -> bool {
        self.signature.is_some_and(|(public, signature)| {
            let public = UnparsedPublicKey::new(&ED25519, public.0);
            public.verify(&message(key, self.entry), signature).is_ok()
        }) && !self.signer().is_some_and(|signer| signer.is_weak())
    }
}

/// The keys whose entries are accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Trust {
    #[default]
    Anyone,
    Keys(Vec<PublicKey>),
    /// The keys could not be read, for this reason. So no entry is accepted.
    Nobody(String),
}

/// Why an entry is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distrust {
    Unsigned,
    Stranger,
    Wrong,
    Nobody,
}

impl Distrust {
    pub fn name(self) -> &'static str {
        match self {
            Distrust::Unsigned => "not signed",
            Distrust::Stranger => "signed by a key that is not trusted",
            Distrust::Wrong => "its signature is wrong",
            Distrust::Nobody => "the trusted keys cannot be used",
        }
    }
}

impl Trust {
    /// Reads public keys and absolute paths of key files, separated by blanks. With a mistake in them, no key is trusted.
    pub fn load(text: &str) -> Trust {
        match find_keys(text) {
            Ok(None) => Trust::Anyone,
            Ok(Some(keys)) => Trust::Keys(keys),
            Err(why) => Trust::Nobody(why),
        }
    }

    /// Whether this key is trusted.
    pub fn allows(&self, signer: Option<PublicKey>) -> Result<(), Distrust> {
        match (self, signer) {
            (Trust::Anyone, _) => Ok(()),
            (Trust::Nobody(_), _) => Err(Distrust::Nobody),
            (Trust::Keys(_), None) => Err(Distrust::Unsigned),
            (Trust::Keys(keys), Some(signer)) if keys.contains(&signer) => Ok(()),
            (Trust::Keys(_), Some(_)) => Err(Distrust::Stranger),
        }
    }

    /// Whether an entry that was found under this key may be accepted.
    pub fn check(&self, key: &Digest, sealed: &Sealed<'_>) -> Result<(), Distrust> {
        self.allows(sealed.signer())?;
        match self {
            Trust::Keys(_) if !sealed.is_genuine(key) => Err(Distrust::Wrong),
            _ => Ok(()),
        }
    }
}

/// Whether the setting has the form of keys and files. Their content is not checked.
pub fn check_trusted(text: &str) -> Result<(), String> {
    words(text).try_for_each(|word| word.map(drop))
}

/// Whether the setting has the form of a private key's file.
pub fn check_place(text: &str) -> Result<(), String> {
    match text.is_empty() || Path::new(text).is_absolute() {
        true => Ok(()),
        false => Err(format!("{text:?}: write the absolute path of the private key")),
    }
}

enum Word<'a> {
    Key(PublicKey),
    File(&'a Path),
}

fn words(text: &str) -> impl Iterator<Item = Result<Word<'_>, String>> {
    text.split_ascii_whitespace().map(|word| match word.starts_with('/') {
        true => Ok(Word::File(Path::new(word))),
        false => word
            .parse()
            .map(Word::Key)
            .map_err(|why| format!("{why}, or the absolute path of a file of keys")),
    })
}

fn find_keys(text: &str) -> Result<Option<Vec<PublicKey>>, String> {
    let (mut keys, mut is_set) = (Vec::new(), false);
    for word in words(text) {
        is_set = true;
        match word? {
            Word::Key(key) => keys.push(key),
            Word::File(path) => keys.extend(read_keys(path)?),
        }
    }
    Ok(is_set.then_some(keys))
}

fn read_keys(path: &Path) -> Result<Vec<PublicKey>, String> {
    let (_, text) = read(path)?;
    let told = path.display();
    let key = |(number, line): (usize, &str)| line.parse().map_err(|why| format!("{told}:{number}: {why}"));
    let keys: Vec<_> = meant(&text).map(key).collect::<Result<_, _>>()?;
    if keys.is_empty() {
        return Err(format!("{told}: there is no key in it; write one per line"));
    }
    Ok(keys)
}

/// Lines with their numbers, without comments.
fn meant(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    let lines = lines.map(|(at, line)| (at + 1, line.split('#').next().unwrap_or_default().trim()));
    lines.filter(|(_, line)| !line.is_empty())
}

/// The text of a plain file. A pipe or another file that would block has none.
fn read(path: &Path) -> Result<(File, String), String> {
    let told = path.display();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path).map_err(|error| format!("open {told}: {error}"))?;
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Err(format!("{told}: it is no plain file; name a file of keys"));
    }
    let mut text = String::new();
    match (&file).take(CAP).read_to_string(&mut text) {
        Ok(_) => Ok((file, text)),
        Err(error) => Err(format!("read {told}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    fn signer(seed: u8) -> Signer {
        Signer::of(&[seed; 32]).unwrap()
    }

    fn key() -> Digest {
        Digest::of(b"a command")
    }

    /// A file that is removed at the end.
    struct Made(PathBuf);

    impl Made {
        fn new(name: &str, text: &str, mode: u32) -> Made {
            let path = std::env::temp_dir().join(format!("signature-{}-{name}", std::process::id()));
            let _ = fs::remove_file(&path);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Made(path)
        }

        fn name(&self) -> &str {
            self.0.to_str().unwrap()
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    /// The first test of RFC 8032, 7.1: from the same seed we make the same key and signature.
    #[test]
    fn the_key_of_a_seed_is_as_in_the_standard() {
        let seed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
        let public = "ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        let seed: Digest = seed.parse().unwrap();
        assert_eq!(Signer::of(&seed.0).unwrap().public().to_string(), public);
    }

    #[test]
    fn only_an_unchanged_entry_of_this_key_is_genuine() {
        let bytes = signer(1).seal(&key(), b"an entry");
        let sealed = Sealed::read(&bytes);
        assert_eq!(sealed.entry, b"an entry");
        assert_eq!(sealed.signer(), Some(signer(1).public()));
        assert!(sealed.is_genuine(&key()));
        assert!(!sealed.is_genuine(&Digest::of(b"another command")));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(!Sealed::read(&changed).is_genuine(&key()), "{at}");
            assert!(!Sealed::read(&bytes[..at]).is_genuine(&key()), "{at}");
        }
    }

    /// With a point of small order as the key, the signature of the neutral point and zero is valid for at least one message
    /// in eight.
    #[test]
    fn a_key_for_which_anybody_can_sign_is_refused() {
        let mut signature = [0; SIGNATURE];
        signature[0] = 1;
        for digits in WEAK {
            let weak = PublicKey(digits.parse::<Digest>().unwrap().0);
            let is_forged = |entry: &[u8]| {
                let public = UnparsedPublicKey::new(&ED25519, weak.0);
                public.verify(&message(&key(), entry), &signature).is_ok()
            };
            let forged = (0..2000u32).map(u32::to_le_bytes).find(|entry| is_forged(entry));
            if let Some(entry) = forged {
                let bytes = [&MAGIC[..], &weak.0, &signature, &entry].concat();
                assert!(!Sealed::read(&bytes).is_genuine(&key()), "{digits}");
            }
            // Some versions of the library refuse unusual encodings.
            assert!(
                forged.is_some() || digits.starts_with("ed") || digits.starts_with("ee"),
                "{digits}"
            );
            assert!(weak.to_string().parse::<PublicKey>().is_err(), "{digits}");
        }
        assert!(!signer(1).public().is_weak());
    }

    #[test]
    fn only_entries_of_trusted_keys_are_accepted_unless_anyone_is_trusted() {
        let trusted = Trust::Keys(vec![signer(2).public(), signer(1).public()]);
        let ours = signer(1).seal(&key(), b"entry");
        let theirs = signer(3).seal(&key(), b"entry");
        let mut forged = ours.clone();
        *forged.last_mut().unwrap() ^= 1;
        for (bytes, expected) in [
            (&ours[..], Ok(())),
            (&theirs, Err(Distrust::Stranger)),
            (&forged, Err(Distrust::Wrong)),
            (b"entry", Err(Distrust::Unsigned)),
            (b"wfg\x01", Err(Distrust::Unsigned)),
        ] {
            let sealed = Sealed::read(bytes);
            assert_eq!(trusted.check(&key(), &sealed), expected);
            assert_eq!(Trust::Anyone.check(&key(), &sealed), Ok(()));
            assert!(Trust::Nobody(String::new()).check(&key(), &sealed).is_err());
        }
        assert!(Trust::Keys(Vec::new()).allows(Some(signer(1).public())).is_err());
    }

    #[test]
    fn a_new_key_is_private_and_replaces_none() {
        let made = Made::new("new", "", 0o600);
        assert!(create(&made.0).unwrap_err().contains("there already"));
        fs::remove_file(&made.0).unwrap();
        let public = create(&made.0).unwrap();
        assert_eq!(fs::metadata(&made.0).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(Signer::load(&made.0).unwrap().public(), public);
        fs::set_permissions(&made.0, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(Signer::load(&made.0).err().unwrap().contains("chmod 600"));
    }

    #[test]
    fn an_error_names_a_file_without_a_key_and_shows_nothing_of_it() {
        for text in ["", "geheim", "ed25519-secret:geheim", "# geheim\n"] {
            let made = Made::new("wrong", text, 0o600);
            let error = Signer::load(&made.0).err().unwrap();
            assert!(
                error.contains("--new-signing-key") && !error.contains("geheim"),
                "{error}"
            );
        }
        let missing = Signer::load(Path::new("/missing")).err().unwrap();
        assert!(missing.contains("/missing"), "{missing}");
    }

    #[test]
    fn trusted_keys_are_named_or_in_files_with_comments() {
        let [one, two] = [signer(1).public(), signer(2).public()];
        let made = Made::new("keys", &format!("# of CI\n\n{two} # the new one\n"), 0o644);
        let set = format!("{one} {}", made.name());
        assert_eq!(Trust::load(&set), Trust::Keys(vec![one, two]));
        assert_eq!(Trust::load(" "), Trust::Anyone);
    }

    #[test]
    fn a_mistake_trusts_nobody_and_is_named() {
        let empty = Made::new("empty", "# none\n", 0o644);
        let wrong = Made::new("bad", "\nssh-ed25519 AAAA\n", 0o644);
        let secret = format!("{SECRET}{}", Digest([7; 32]));
        let private = Made::new("private", &secret, 0o600);
        for (text, words) in [
            ("keys/ci", "absolute path"),
            ("ed25519:abc", "64 hexadecimal digits"),
            ("/missing/keys", "open /missing/keys"),
            ("/dev/null", "no plain file"),
            (empty.name(), "one per line"),
            (wrong.name(), ":2: "),
            (&secret, "name the public one"),
            (private.name(), ":1: a private key is no trusted key"),
        ] {
            let Trust::Nobody(why) = Trust::load(text) else {
                panic!("{text} is trusted");
            };
            assert!(why.contains(words) && !why.contains(&secret), "{text}: {why}");
        }
    }
}
