//! Texts with placeholders for names.
//!
//! Pure. A *name* is what differs between commands. A text is what stays, with the places where names go. It is learned
//! from a text in which the names are placeholders that occur nowhere else.

/// The names of one command, by their numbers.
pub type Names = Vec<Vec<u8>>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Piece {
    Plain(Vec<u8>),
    Name(usize),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Text {
    pieces: Vec<Piece>,
}

impl Text {
    pub fn plain(text: &[u8]) -> Text {
        Text {
            pieces: vec![Piece::Plain(text.to_vec())],
        }
    }

    pub fn with(mut self, text: &[u8]) -> Text {
        if !text.is_empty() {
            self.pieces.push(Piece::Plain(text.to_vec()));
        }
        self
    }

    pub fn with_name(mut self, number: usize) -> Text {
        self.pieces.push(Piece::Name(number));
        self
    }

    /// The text with these names in their places.
    pub fn learn(text: &[u8], names: &[Vec<u8>]) -> Text {
        let mut learned = Text::default();
        let (mut rest, mut plain) = (text, 0);
        while plain < rest.len() {
            let found = names
                .iter()
                .position(|name| !name.is_empty() && rest[plain..].starts_with(name));
            match found {
                None => plain += 1,
                Some(number) => {
                    learned = learned.with(&rest[..plain]).with_name(number);
                    rest = &rest[plain + names[number].len()..];
                    plain = 0;
                }
            }
        }
        learned.with(rest)
    }

    pub fn fill(&self, names: &[Vec<u8>]) -> Vec<u8> {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Plain(text) => text.as_slice(),
            Piece::Name(number) => names.get(*number).map_or(&[][..], Vec::as_slice),
        });
        pieces.collect::<Vec<_>>().concat()
    }

    /// Whether the text has a place for this name.
    pub fn has_name(&self, number: usize) -> bool {
        self.pieces
            .iter()
            .any(|piece| matches!(piece, Piece::Name(name) if *name == number))
    }

    /// Whether some fixed part of the text contains this.
    pub fn holds(&self, part: &[u8]) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Plain(text) => text.windows(part.len()).any(|window| window == part),
            Piece::Name(_) => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(items: &[&str]) -> Names {
        items.iter().map(|item| item.as_bytes().to_vec()).collect()
    }

    #[test]
    fn learned_placeholders_are_filled_with_names() {
        let text = Text::learn(b"'-o' 'OUT/STEM.o' STEM", &names(&["OUT/", "STEM"]));
        assert_eq!(text.fill(&names(&["b/", "x"])), b"'-o' 'b/x.o' x");
    }

    #[test]
    fn a_text_without_names_stays_as_it_is() {
        let text = Text::learn(b"-quiet", &names(&["OUT", ""]));
        assert_eq!(text, Text::plain(b"-quiet"));
        assert_eq!(text.fill(&[]), b"-quiet");
    }

    #[test]
    fn only_the_fixed_parts_are_searched() {
        let text = Text::learn(b"a/STEM.o", &names(&["STEM"]));
        assert!(text.holds(b"a/") && text.holds(b".o") && !text.holds(b"STEM"));
    }
}
