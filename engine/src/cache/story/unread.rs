//! Leaves out of a compile's facts what generated files say of their checkout and nothing uses: the names of its folders in
//! comments, macros whose values name them, and guards with them in their names. So a compile that includes a project's
//! `config.h`, or what bison made, has the same facts in each checkout. What the key leaves out of the command line is looked
//! at here as well: its name of the checkout becomes a fact if it may show in the result.
//!
//! A macro is used only by its name. The name is a word of some file that was read or of the command line, or `##` makes it
//! of such words. If there is no such word but that of the definition, the value reaches no result. If a guard cannot be
//! named elsewhere, its own name reaches none. `words` and `definitions` of the facts know the texts, and
//! `compiler/macros.rs` knows the options that make a compiler tell more.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use memchr::memmem;

use super::Analysis;
use crate::bytes::digest::Digest;
use crate::facts::comments::parts;
use crate::facts::definitions::{as_name, find_unused, Comments, Unused};
use crate::facts::fact::{Fact, Kind};
use crate::facts::pasting::{Joiners, Pasting};
use crate::facts::path::{below, last_name, Path, Root};
use crate::facts::words::{can_end, directive, AllWords, Vocabulary};
use crate::facts::world::Form;
use crate::observe::access::Bytes;

/// Whether a file may be one of a build. Headers of the system name no checkout, and there are many.
fn is_near(paths: &[Path], folders: &[Bytes]) -> bool {
    let is_in_one = |path: &Path| folders.iter().any(|folder| below(folder, &path.rest).is_some());
    paths.iter().any(|path| path.root != Root::Absolute || is_in_one(path))
}

/// Whether something is there whose path leaves out a folder's name amid it, other than a folder. It may show in the result.
fn is_found_amid(fact: &Fact) -> bool {
    let is_nothing = matches!(fact, Fact::Absent { .. } | Fact::There { kind: Kind::Folder, .. });
    !is_nothing && fact.path().is_some_and(Path::leaves_amid)
}

fn is_in(name: &[u8], messages: &[u8]) -> bool {
    memmem::find(messages, name).is_some()
}

/// Whether a directive of a text may give another number or file to its lines: `#line 1 "p.y"`, `# 1 "p.y"`.
fn renames_lines(text: &[u8]) -> bool {
    let renames = |line: &[u8]| directive(line).is_some_and(|(name, _)| name == b"line" || name[0].is_ascii_digit());
    let is_odd = [&b"%:"[..], b"??=", b"\x0b"].iter().any(|part| is_in(part, text));
    is_odd || parts(text).map_or(true, |parts| parts.code.split(|byte| *byte == b'\n').any(renames))
}

/// The paths by which files of each content were read.
pub(super) type Read = BTreeMap<Digest, Vec<Path>>;

/// What was found about names of the checkout.
#[derive(Default)]
pub(super) struct Unread {
    /// The files whose facts leave out some of them.
    pub headers: Vec<Path>,
    /// What the key leaves out of the command line shows in the result, or may show.
    pub names_checkout: bool,
}

/// A source or header of which something is left out.
struct Reduced<'r> {
    digest: &'r Digest,
    /// The paths by which it was read.
    paths: &'r [Path],
    unused: Unused,
    /// What is left does not name the checkout.
    names_nothing: bool,
}

impl Analysis<'_, '_, '_> {
    /// Replaces the facts about headers that say of the checkout what nothing uses, and those about headers with comments if
    /// these are left out, if `may_leave_out`. Looks at what the key has left out.
    pub(super) fn leave_out_unread(&mut self, facts: &mut [Fact], read: &Read, may_leave_out: bool) -> Unread {
        let macros = self.knowledge.macros;
        let mut unread = Unread {
            headers: Vec::new(),
            names_checkout: self.view.place.leaves_amid() && facts.iter().any(is_found_amid),
        };
        let headers = match may_leave_out {
            true => self.reducible_headers(read),
            false => Vec::new(),
        };
        if headers.is_empty() && macros.is_empty() {
            return unread;
        }
        let names_any = |unused: &Unused| !unused.macros.is_empty() || unused.guard.is_some();
        let words_count = !macros.is_empty() || headers.iter().any(|header| names_any(&header.unused));
        let Some(vocabularies) = self.vocabularies(read) else {
            unread.names_checkout |= !macros.is_empty();
            return unread;
        };
        let vocabularies = if words_count { vocabularies } else { Vec::new() };
        let all = AllWords::of(vocabularies.iter().map(|(_, vocabulary)| &**vocabulary).collect());
        let has = |word: &[u8]| all.has_in_code(word);
        let pastings: Vec<&Pasting> = vocabularies.iter().map(|(_, vocabulary)| &vocabulary.pasting).collect();
        let joiners = Joiners::of(&pastings);
        let is_used = |name: &Bytes, own: Option<&Digest>| {
            let mut others = vocabularies.iter().filter(|(of, _)| own.is_none() || *of != own);
            others.any(|(_, vocabulary)| vocabulary.has(name)) || joiners.make(name, &has)
        };
        let is_told = |name: &Bytes| is_in(name, self.knowledge.messages);
        unread.names_checkout |= macros.iter().any(|name| is_told(name) || is_used(name, None));
        let mut free = Vec::new();
        for header in headers {
            let Reduced { digest, unused, .. } = &header;
            let mut guards = unused.guard.iter();
            let is_free = !unused.macros.iter().any(|name| is_used(name, Some(digest)))
                && !guards.any(|guard| can_end(&guard.after, has) || self.is_in_others(&guard.after, read, digest));
            free.extend(is_free.then_some(header));
        }
        let mut counts: HashMap<Digest, usize> = HashMap::new();
        let mut reduced = Vec::new();
        for header in &free {
            let digest = self.digest_by_each_path(header.paths, &header.unused);
            digest
                .into_iter()
                .for_each(|digest| *counts.entry(digest).or_default() += 1);
            reduced.push(digest);
        }
        let mut replaced = HashMap::new();
        for (header, digest) in free.iter().zip(reduced) {
            // In another checkout, these may be the same, and a compiler reads such files once.
            let Some(digest) = digest.filter(|digest| counts[digest] == 1) else {
                continue;
            };
            replaced.extend(header.paths.iter().map(|path| (path, (&header.unused, digest))));
            if header.names_nothing {
                unread.headers.extend(header.paths.iter().cloned());
            }
        }
        replace(facts, &replaced);
        unread
    }

    /// The headers that name the checkout where it may be left out, and those with comments if these are left out.
    fn reducible_headers<'r>(&mut self, read: &'r Read) -> Vec<Reduced<'r>> {
        let folders: Arc<[Bytes]> = self.view.place.known_folders().into();
        if folders.is_empty() || self.knowledge.words.is_none() || !self.all_compile {
            return Vec::new();
        }
        let in_names: Arc<[Bytes]> = folders.iter().map(|folder| as_name(folder)).collect();
        let mut headers = Vec::new();
        for (digest, paths) in read.iter().filter(|(_, paths)| is_near(paths, &folders)) {
            let (view, path) = (&mut *self.view, &paths[0]);
            let tells = view.names_any(path, Form::AsItIs, &folders) || view.names_any(path, Form::AsMacro, &in_names);
            let unused = if tells {
                self.unused_of(*digest, paths, &folders)
            } else {
                None
            };
            let names_nothing = unused.is_some();
            let unused = match self.knowledge.policy.without_comments && self.is_single(paths) {
                true => Some(Unused {
                    comments: Comments::AllTexts,
                    ..unused.unwrap_or_default()
                }),
                false => unused,
            };
            let unused = unused.filter(|unused| !self.is_told(paths, unused));
            headers.extend(unused.map(|unused| Reduced {
                digest,
                paths,
                unused,
                names_nothing,
            }));
        }
        headers
    }

    /// Whether a message may show a line of this file, or name what is left out of it.
    fn is_told(&mut self, paths: &[Path], unused: &Unused) -> bool {
        let messages = self.knowledge.messages;
        if messages.is_empty() {
            return false;
        }
        let is_named = |path: &Path| is_in(last_name(&path.rest), messages);
        let mut names = unused
            .macros
            .iter()
            .chain(unused.guard.iter().map(|guard| &guard.after));
        // A message calls a line as a directive says.
        let text = self.view.content(&paths[0]);
        paths.iter().any(is_named)
            || names.any(|name| is_in(name, messages))
            || text.map_or(true, |text| renames_lines(&text))
    }

    /// Whether the end of a guard's name is in another file, or on the command line. The guard has other names in other
    /// checkouts, and this end in all of them.
    fn is_in_others(&mut self, end: &[u8], read: &Read, own: &Digest) -> bool {
        let words = self.knowledge.words.unwrap_or_default();
        let holds = |text: &[u8]| memmem::find(text, end).is_some();
        let mut others = read.iter().filter(|(digest, _)| *digest != own);
        words.iter().any(|word| holds(word))
            || others.any(|(_, paths)| self.view.content(&paths[0]).map_or(true, |text| holds(&text)))
    }

    /// Whether these are names of one file. Files of the same content may differ in another checkout.
    fn is_single(&mut self, paths: &[Path]) -> bool {
        let identity = |path: &Path| self.view.status(path).map(|status| (status.device, status.inode)).ok();
        let mut identities: Vec<_> = paths.iter().map(identity).collect();
        identities.dedup();
        matches!(identities[..], [Some(_)])
    }

    /// What a file says of these folders, if nothing else there names one.
    fn unused_of(&mut self, digest: Digest, paths: &[Path], folders: &[Bytes]) -> Option<Unused> {
        if !self.is_single(paths) {
            return None;
        }
        let text = self.view.content(&paths[0])?;
        (Digest::of(&text) == digest).then(|| find_unused(&text, folders))?
    }

    /// The words of the command line, and those of each file that was read. None if a file does not tell all its words, or
    /// takes another file as it is, or if not only words count.
    fn vocabularies<'r>(&mut self, read: &'r Read) -> Option<Vec<(Option<&'r Digest>, Arc<Vocabulary>)>> {
        let words = self.knowledge.words.filter(|_| self.all_compile)?;
        let mut all = vec![(None, Arc::new(Vocabulary::of_line(words)))];
        for (digest, paths) in read {
            all.push((Some(digest), self.view.vocabulary(&paths[0])?));
        }
        all.iter().all(|(_, vocabulary)| !vocabulary.takes_raw).then_some(all)
    }

    /// The digest of what is left of a file, if it is the same by each of its paths.
    fn digest_by_each_path(&mut self, paths: &[Path], unused: &Unused) -> Option<Digest> {
        let mut digests = paths.iter().map(|path| self.view.digest_except(path, unused).ok());
        let digest = digests.next()??;
        digests.all(|other| other == Some(digest)).then_some(digest)
    }
}

fn replace(facts: &mut [Fact], by: &HashMap<&Path, (&Unused, Digest)>) {
    for fact in facts {
        let Fact::File { path, .. } = fact else { continue };
        if let Some((unused, digest)) = by.get(&*path) {
            *fact = Fact::Except {
                path: path.clone(),
                unused: (*unused).clone(),
                digest: *digest,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_other_names_are_known() {
        for text in [
            "int a;\n#line 3 \"p.y\"\n",
            " # 3 \"p.y\"\n",
            "/* a */ #line 3\n",
            "#li\\\nne 3\n",
            "%:line 3\n",
            "\x0b#line 3\n",
            "#error don't\n",
        ] {
            assert!(renames_lines(text.as_bytes()), "{text}");
        }
        assert!(!renames_lines(b"#define line 3\n// #line 3\nint line;\n#\n"));
    }
}
