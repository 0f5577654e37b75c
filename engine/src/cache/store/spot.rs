//! Where a blob's bytes are on the disk, and what becomes free when nobody needs them.

use std::sync::Arc;

use super::number::Number;
use super::volume::{Piece, Volume};

#[derive(Debug, Clone, PartialEq)]
pub enum Spot {
    /// A file of its own; what the disk holds for it, in units of 512 bytes.
    File {
        blocks: u32,
    },
    Piece(Piece),
}

/// What can be removed from the disk.
#[derive(Debug)]
pub enum Freed {
    File(Number),
    /// Unless somebody writes to it again.
    Volume(Arc<Volume>),
}

impl Spot {
    /// The bytes that are alive because of it.
    pub fn size(&self) -> u64 {
        match self {
            Spot::File { blocks } => u64::from(*blocks) * 512,
            Spot::Piece(piece) => u64::from(piece.length),
        }
    }

    /// The blob of this number is not here any more.
    pub fn leave(&self, number: Number, freed: &mut Vec<Freed>) {
        match self {
            Spot::File { .. } => freed.push(Freed::File(number)),
            Spot::Piece(piece) if piece.leave() => freed.push(Freed::Volume(piece.volume.clone())),
            Spot::Piece(_) => {}
        }
    }
}
