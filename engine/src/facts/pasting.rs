//! Which names the operator `##` can make of the words of a compile's sources.
//!
//! Pure. `##` joins a word of a macro's definition, or the end of an argument, to another one. A macro that nothing names
//! joins nothing. An argument may be any word of any source, or what was joined before. If a definition is not certain to be
//! understood, all words can be joined. If a name is found that no source makes, some hits are lost. If one is missed, a hit
//! may be wrong.

use memchr::memmem;

use super::words::{directive, is_blank, is_of_word, is_predefined, words};
use crate::observe::access::Bytes;

/// Macros that compilers define themselves join these words to the end of an argument: `__INT64_C(c)`.
const PREDEFINED_ENDS: [&[u8]; 10] = [b"L", b"UL", b"LL", b"ULL", b"U", b"l", b"ul", b"ll", b"ull", b"u"];
/// Spellings of `#` and `##`, the operator that joins what stands in it, and a blank that is seldom one.
const UNCLEAR: [&[u8]; 4] = [b"%:", b"??=", b"__VA_OPT__", b"\x0b"];

/// What `##` joins.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// A word of the definition.
    Word(Bytes),
    Argument,
}

/// Words and arguments with `##` between them.
type Chain = Vec<Part>;

/// A macro that joins words.
#[derive(Debug, PartialEq, Eq)]
struct Paster {
    name: Bytes,
    chains: Vec<Chain>,
}

/// What the macros of a text join.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Pasting {
    pasters: Vec<Paster>,
    /// They may join any words.
    is_unclear: bool,
}

impl Pasting {
    /// Of a text in which definitions cannot be told from other parts.
    pub fn of_unclear(text: &[u8]) -> Pasting {
        Pasting {
            pasters: Vec::new(),
            is_unclear: joins(text),
        }
    }

    /// Of code without comments, in which lines that end with a backslash are joined.
    pub fn of(code: &[u8]) -> Pasting {
        if !joins(code) {
            return Pasting::default();
        }
        if UNCLEAR.iter().any(|part| memmem::find(code, part).is_some()) {
            return Pasting::of_unclear(code);
        }
        let mut found = Pasting::default();
        for line in code.split(|byte| *byte == b'\n') {
            let joining = directive(line).filter(|_| memmem::find(line, b"##").is_some());
            if let Some((b"define", rest)) = joining {
                match Paster::of(rest) {
                    Some(paster) => found.pasters.push(paster),
                    None => return Pasting::of_unclear(code),
                }
            }
        }
        found
    }

    /// The words of code that a macro may name, or have as arguments: all but the names of these macros where a directive only
    /// defines them or asks whether they are defined.
    pub fn usable_words<'t>(&'t self, code: &'t [u8]) -> impl Iterator<Item = &'t [u8]> {
        code.split(|byte| *byte == b'\n').flat_map(|line| {
            let named = directive(line).filter(|(name, _)| NAMING.contains(name));
            let named = named.and_then(|(_, rest)| words(rest).next());
            let is_own = |name: &&[u8]| self.pasters.iter().any(|paster| paster.name == *name);
            // The name is the second word, after that of the directive.
            let left_out = named.filter(is_own).map(|_| 1);
            words(line)
                .enumerate()
                .filter(move |(at, _)| Some(*at) != left_out)
                .map(|(_, word)| word)
        })
    }
}

/// Directives that name a macro without using it.
const NAMING: [&[u8]; 4] = [b"define", b"undef", b"ifdef", b"ifndef"];

/// Whether `##` is in a text, in any spelling.
fn joins(text: &[u8]) -> bool {
    [&b"##"[..], b"%:%:", b"??=??="]
        .iter()
        .any(|operator| memmem::find(text, operator).is_some())
}

impl Paster {
    /// `text` is what follows `#define`. None if it is not understood.
    fn of(text: &[u8]) -> Option<Paster> {
        let text = text.trim_ascii_start();
        let size = text.iter().position(|byte| !is_of_word(*byte))?;
        let (name, rest) = text.split_at(size);
        let (parameters, body): (Vec<&[u8]>, _) = match rest.strip_prefix(b"(") {
            Some(rest) => {
                let (list, body) = rest.split_at(memchr::memchr(b')', rest)?);
                (words(list).chain([&b"__VA_ARGS__"[..]]).collect(), &body[1..])
            }
            None => (Vec::new(), rest),
        };
        // Some compilers have names with other characters.
        let is_whole = rest.is_empty() || rest[0] == b'(' || is_blank(rest[0]);
        let is_name = is_whole && !name.is_empty() && !name[0].is_ascii_digit();
        is_name.then(|| Paster {
            name: name.to_vec(),
            chains: chains(body, &parameters),
        })
    }
}

fn chains(body: &[u8], parameters: &[&[u8]]) -> Vec<Chain> {
    let mut chains: Vec<Chain> = Vec::new();
    let mut chain = Chain::new();
    for (at, operand) in operands(body).into_iter().enumerate() {
        let is_word = |byte: &&u8| is_of_word(**byte);
        let first = operand.iter().take_while(is_word).count();
        let last = operand.iter().rev().take_while(is_word).count();
        if at > 0 {
            chain.extend(part(&operand[..first], parameters));
        }
        // The operators on both sides of a single word join three.
        if at == 0 || operand.is_empty() || first < operand.len() {
            chains.push(std::mem::take(&mut chain));
            chain.extend(part(&operand[operand.len() - last..], parameters));
        }
    }
    chains.push(chain);
    chains.retain(|chain| chain.len() > 1);
    chains
}

/// The parts of a text between the operators.
fn operands(body: &[u8]) -> Vec<&[u8]> {
    let mut start = 0;
    let mut operands = Vec::new();
    for at in memmem::find_iter(body, b"##") {
        operands.push(body[start..at].trim_ascii());
        start = at + 2;
    }
    operands.push(body[start..].trim_ascii());
    operands
}

fn part(word: &[u8], parameters: &[&[u8]]) -> Option<Part> {
    match word {
        [] => None,
        word if parameters.contains(&word) => Some(Part::Argument),
        word => Some(Part::Word(word.to_vec())),
    }
}

/// What all texts of a compile can make with `##`.
pub struct Joiners<'a> {
    pasters: Vec<&'a Paster>,
    /// What compilers define themselves.
    own: Vec<Chain>,
    any: Chain,
    is_unclear: bool,
}

impl<'a> Joiners<'a> {
    pub fn of(all: &[&'a Pasting]) -> Joiners<'a> {
        let ends = PREDEFINED_ENDS.iter();
        Joiners {
            pasters: all.iter().flat_map(|pasting| &pasting.pasters).collect(),
            own: ends.map(|end| vec![Part::Argument, Part::Word(end.to_vec())]).collect(),
            any: vec![Part::Argument, Part::Argument],
            is_unclear: all.iter().any(|pasting| pasting.is_unclear),
        }
    }

    /// Whether they can make a name of two or more words that there are. `has` tells whether a word is usable in any of the
    /// texts.
    pub fn make(&self, name: &[u8], has: &impl Fn(&[u8]) -> bool) -> bool {
        let is_there = can_join(name, &[&self.any], has);
        if !is_there || self.is_unclear {
            return is_there;
        }
        // Macros that nothing names join nothing, unless their own names can be joined.
        let mut named: Vec<&Paster> = Vec::new();
        let mut others: Vec<&Paster> = Vec::new();
        let mut wanted: Vec<&[u8]> = vec![name];
        let mut is_seen = vec![false; self.pasters.len()];
        let mut at = 0;
        while let Some(name) = wanted.get(at).copied() {
            for (number, paster) in self.pasters.iter().enumerate() {
                if is_seen[number] || !paster.may_join(name) {
                    continue;
                }
                is_seen[number] = true;
                if has(&paster.name) {
                    named.push(paster);
                } else {
                    others.push(paster);
                    wanted.push(&paster.name);
                }
            }
            at += 1;
        }
        loop {
            let chains: Vec<&Chain> = named
                .iter()
                .flat_map(|paster| &paster.chains)
                .chain(&self.own)
                .collect();
            if can_join(name, &chains, has) {
                return true;
            }
            let (new, rest): (Vec<&Paster>, Vec<&Paster>) = others
                .into_iter()
                .partition(|paster| can_join(&paster.name, &chains, has));
            if new.is_empty() {
                return false;
            }
            named.extend(new);
            others = rest;
        }
    }
}

impl Paster {
    /// Whether it can make a part of this name, if there are the words for that.
    fn may_join(&self, name: &[u8]) -> bool {
        self.chains.iter().any(|chain| !runs(chain, name).is_empty())
    }
}

/// Whether one of these chains can make a name, or several of them one after the other.
fn can_join(name: &[u8], chains: &[&Chain], has: &impl Fn(&[u8]) -> bool) -> bool {
    let links = links(chains, name);
    if links.is_empty() {
        return false;
    }
    let size = name.len();
    // Whether there is a word, or one can be made, that is this part of the name.
    let mut known = Square::new(size);
    for start in 0..size {
        for end in start + 1..=size {
            let part = &name[start..end];
            known.set(start, end, part.len() < size && (is_predefined(part) || has(part)));
        }
    }
    loop {
        let mut has_grown = false;
        for start in 0..size {
            for end in start + 2..=size {
                if !known.get(start, end) && links.iter().any(|link| link.matches(name, start, end, &known)) {
                    known.set(start, end, true);
                    has_grown = true;
                }
            }
        }
        if known.get(0, size) {
            return true;
        }
        if !has_grown {
            return false;
        }
    }
}

/// Parts that follow each other in a chain, without words that are not in a name.
struct Link<'c>(&'c [Part]);

/// The parts of a chain that follow each other and may be in a name.
fn runs<'c>(chain: &'c Chain, name: &[u8]) -> Vec<&'c [Part]> {
    let is_foreign = |part: &Part| matches!(part, Part::Word(word) if memmem::find(name, word).is_none());
    chain.split(is_foreign).filter(|run| run.len() > 1).collect()
}

fn links<'c>(chains: &[&'c Chain], name: &[u8]) -> Vec<Link<'c>> {
    let mut links: Vec<Link> = Vec::new();
    for run in chains.iter().flat_map(|chain| runs(chain, name)) {
        if !links.iter().any(|link| link.0 == run) {
            links.push(Link(run));
        }
    }
    links
}

impl Link<'_> {
    /// Whether two or more parts that follow each other are this part of the name. An argument may be empty.
    fn matches(&self, name: &[u8], start: usize, end: usize, known: &Square) -> bool {
        (0..self.0.len()).any(|first| {
            let mut places = vec![start];
            for part in &self.0[first..] {
                let mut next = Vec::new();
                for place in places {
                    match part {
                        Part::Word(word) if name[place..end].starts_with(word) => next.push(place + word.len()),
                        Part::Word(_) => {}
                        Part::Argument => {
                            next.push(place);
                            next.extend((place + 1..=end).filter(|to| known.get(place, *to)));
                        }
                    }
                }
                next.sort_unstable();
                next.dedup();
                if next.contains(&end) {
                    return true;
                }
                places = next;
            }
            false
        })
    }
}

/// A truth for each part of a name.
struct Square {
    size: usize,
    truths: Vec<bool>,
}

impl Square {
    fn new(size: usize) -> Square {
        Square {
            size,
            truths: vec![false; (size + 1) * (size + 1)],
        }
    }

    fn get(&self, start: usize, end: usize) -> bool {
        self.truths[start * (self.size + 1) + end]
    }

    fn set(&mut self, start: usize, end: usize, truth: bool) {
        self.truths[start * (self.size + 1) + end] = truth;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(chains: &[Chain]) -> String {
        let part = |part: &Part| match part {
            Part::Word(word) => String::from_utf8(word.clone()).unwrap(),
            Part::Argument => "@".to_owned(),
        };
        let chain = |chain: &Chain| chain.iter().map(part).collect::<Vec<_>>().join("+");
        chains.iter().map(chain).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_definition_tells_what_it_joins() {
        for (definition, expected) in [
            ("F(a,b) a##b", "@+@"),
            ("F(a, b)  a ## b ", "@+@"),
            ("F(a) pre_##a##_post", "pre_+@+_post"),
            ("F(a) a##L; (x)a##UL", "@+L @+UL"),
            ("F(a) f(a ## 1, b##a)", "@+1 b+@"),
            ("F(a) a ## b c ## a", "@+b c+@"),
            ("F(a, ...) f(a, ## __VA_ARGS__)", ""),
            ("F(a, more...) more ## a", "@+@"),
            ("F one ## two ## 3", "one+two+3"),
            ("F (a) a ## b", "a+b"),
            ("F(a) L ## #a", ""),
            ("F(a) #a ## b", "@+b"),
            ("F(a) . ## a ## b", "@+b"),
            ("F(a) ## a", ""),
            ("F a", ""),
        ] {
            let paster = Paster::of(format!(" {definition}").as_bytes()).unwrap();
            assert_eq!(
                (&paster.name[..], &text(&paster.chains)[..]),
                (&b"F"[..], expected),
                "{definition}"
            );
        }
        for odd in [
            " F$G(a) a##b",
            " 1(a) a##b",
            " F(a a##b",
            " \u{e9}(a) a##b",
            " \"F\" a##b",
        ] {
            assert_eq!(Paster::of(odd.as_bytes()), None, "{odd}");
        }
    }

    fn can(name: &str, texts: &[&str]) -> bool {
        let all: Vec<Pasting> = texts.iter().map(|text| Pasting::of(text.as_bytes())).collect();
        let usable = |pasting: &Pasting, text: &str, word: &[u8]| {
            pasting.usable_words(text.as_bytes()).any(|known| known == word)
        };
        let has = |word: &[u8]| all.iter().zip(texts).any(|(pasting, text)| usable(pasting, text, word));
        let all: Vec<&Pasting> = all.iter().collect();
        Joiners::of(&all).make(name.as_bytes(), &has)
    }

    #[test]
    fn a_name_can_be_made_by_a_macro_that_is_named() {
        let join = "#define JOIN(a, b) a ## b\n";
        assert!(can("SRCDIR", &[join, "JOIN(SRC, DIR)"]));
        assert!(can("SRCDIR", &[join, "JOIN(JOIN(S, RC), DIR)"]));
        assert!(can("SRCDIR", &[join, "#define OTHER JOIN\n", "SRC DIR"]));
        assert!(can("SRC_2", &[join, "JOIN(SRC_, __COUNTER__)"]));
        assert!(can("SRC__x", &[join, "JOIN(SRC, 1)"]));
        assert!(!can("SRCDIR", &[join, "SRC DIR"]));
        assert!(!can("SRCDIR", &[join, "JOIN(SRC, SRCDIRS) _SRCDIR IR DIR2"]));
        assert!(can("SRCUL", &["SRC"]));
        assert!(!can("SRCDIR", &["SRC DIR"]));
        assert!(!can("L", &["L"]));
        assert!(!can("SRCDIR", &[]));
    }

    #[test]
    fn what_is_only_defined_is_not_named() {
        let text = "#ifndef JOIN\n# define JOIN(a, b) a ## b\n#endif\n#undef JOIN\nSRC DIR";
        assert!(!can("SRCDIR", &[text]));
        assert!(can("SRCDIR", &[text, "JOIN"]));
        assert!(can("SRCDIR", &[text, "#if defined(JOIN)\n"]));
        assert!(can("SRCDIR", &[&format!("{text} JOIN")]));
        assert!(can("SRCDIR", &[text, "#define OTHER(x) JOIN(x, x)\n"]));
    }

    #[test]
    fn the_words_of_a_definition_count() {
        for (definition, can_make) in [
            ("F(a) a ## DIR", true),
            ("F(a) SRC ## a", true),
            ("F(a) a ## FILE", false),
            ("F(a) FILE ## a", false),
            ("F(a) S ## a ## R", true),
            ("F(a) S ## a ## _", false),
            ("F SRC ## DIR", true),
            ("F SRC ## FILE", false),
            // an argument may be empty
            ("F(a) SRC ## a ## DIR", true),
            // an argument may be several words, of which the last is joined
            ("F(a, b) FILE ## a ## b", true),
        ] {
            let text = format!("#define {definition}\nF SRC DIR RCDI");
            assert_eq!(can("SRCDIR", &[&text]), can_make, "{definition}");
        }
    }

    #[test]
    fn a_macro_that_joins_may_have_a_name_that_is_joined() {
        let join = "#define JOIN(a, b) a ## b\n";
        assert!(can("SRCDIR", &[join, "#define F(a) JO ## a\nF(IN)(SRC, DIR)"]));
        assert!(!can("SRCDIR", &[join, "#define F(a) JO ## a\nIN SRC DIR"]));
    }

    #[test]
    fn where_it_is_not_certain_what_is_joined_all_words_may_be() {
        for odd in [
            "%:define F(a) a##b\n",
            "#define F %:%:\n",
            "??=define F ??=??=\n",
            "#define F() __VA_OPT__(a) ## b\n",
            "\x0b#define F(a) a ## b\n",
            "#define F(a) a ##\x0bb\n",
        ] {
            assert!(can("SRCDIR", &[odd, "SRC DIR"]), "{odd}");
            assert!(!can("SRCDIR", &[odd, "SRC"]), "{odd}");
        }
    }
}
