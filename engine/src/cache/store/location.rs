//! The place of a blob's bytes on the disk, and what can be freed when no entry needs them.

use std::sync::Arc;

use super::number::Number;
use super::volume::{Piece, Volume};

#[derive(Debug, Clone, PartialEq)]
pub enum Location {
    /// A file of its own, with its disk space in units of 512 bytes.
    File {
        blocks: u32,
    },
    Piece(Piece),
}

/// What can be removed from the disk.
#[derive(Debug)]
pub enum Freed {
    File(Number),
    /// A volume, unless it has a claim again.
    Volume(Arc<Volume>),
}

impl Location {
    /// How many bytes are alive because of the blob.
    pub fn size(&self) -> u64 {
        match self {
            Location::File { blocks } => u64::from(*blocks) * 512,
            Location::Piece(piece) => u64::from(piece.length),
        }
    }

    /// The blob with this number is not here any more.
    pub fn leave(&self, number: Number, freed: &mut Vec<Freed>) {
        match self {
            Location::File { .. } => freed.push(Freed::File(number)),
            Location::Piece(piece) if piece.leave() => freed.push(Freed::Volume(piece.volume.clone())),
            Location::Piece(_) => {}
        }
    }
}
