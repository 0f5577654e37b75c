//! Empties volumes: the blobs in them are appended to the last volume, and they are removed.
//!
//! The copy is written before the index names it, and the old volume is removed after that. If the process is killed in
//! between, either a copy or an old volume is left that the index does not name. Only the keeper does this, one volume at a
//! time.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use super::blob::{is_passing, Place};
use super::inside::Inside;
use super::location::Location;
use super::number::Number;
use super::volume::{Piece, Volume};

/// How many bytes are moved at once.
const BATCH_BYTES: u32 = 1 << 20;
/// How many small volumes may be there. They come from engines that were started for a build and stopped.
const SMALL_ONES: usize = 16;

/// The properties of a volume that decide whether it is emptied.
#[derive(Debug, Clone, Copy)]
struct Weight {
    length: u64,
    alive: u64,
    is_tail: bool,
}

impl Weight {
    fn garbage(&self) -> u64 {
        self.length.saturating_sub(self.alive)
    }
}

/// The volumes to empty: those that are mostly garbage, those that are small if there are many, and then as many as it
/// takes to free `surplus`, beginning with those from which the least must be moved.
fn choose(weights: &[Weight], small: u64, surplus: u64) -> Vec<usize> {
    let is_small = |weight: &Weight| !weight.is_tail && weight.length <= small;
    let are_many = weights.iter().filter(|weight| is_small(weight)).count() > SMALL_ONES;
    let is_due = |weight: &Weight| {
        let is_past = !weight.is_tail && weight.garbage() > weight.alive;
        is_past || are_many && is_small(weight)
    };
    let (mut due, mut rest): (Vec<usize>, Vec<usize>) =
        (0..weights.len()).partition(|number| is_due(&weights[*number]));
    let mut freed: u64 = due.iter().map(|number| weights[*number].garbage()).sum();
    rest.retain(|number| weights[*number].garbage() > 0);
    rest.sort_by_key(|number| weights[*number].alive * 1000 / weights[*number].length);
    for number in rest {
        if freed >= surplus {
            break;
        }
        freed += weights[number].garbage();
        due.push(number);
    }
    due
}

impl Inside {
    /// Empties volumes that are not worth their space, and others until the size is `enough`.
    pub fn empty_volumes(&self, enough: u64) -> io::Result<()> {
        let surplus = self.size().saturating_sub(enough);
        let surplus = if self.is_full() { surplus } else { 0 };
        let all = self.volumes.all();
        let weight = |(volume, is_tail): &(Arc<Volume>, bool)| Weight {
            length: u64::from(volume.length()),
            alive: u64::from(volume.alive()),
            is_tail: *is_tail,
        };
        let weights: Vec<_> = all.iter().map(weight).collect();
        let due = choose(&weights, u64::from(self.limits().volume / 4), surplus);
        let due = due.into_iter().map(|number| all[number].0.clone());
        let due: Vec<_> = due.filter(|volume| self.volumes.seal(volume)).collect();
        let emptied = self.empty(&due);
        due.iter().for_each(|volume| self.volumes.unclaim(volume));
        emptied
    }

    fn empty(&self, volumes: &[Arc<Volume>]) -> io::Result<()> {
        if volumes.is_empty() {
            return Ok(());
        }
        let mut news = HashMap::new();
        let places = self.places_in(volumes);
        let mut batches = places.iter().flat_map(|places| batches(places));
        let moved = batches.try_for_each(|batch| match self.is_stopped() {
            true => Ok(()),
            false => self.move_batch(batch, &mut news),
        });
        // What was on the disk for long must not be lost in a power cut.
        for volume in news.values() {
            self.volumes.file_of(volume)?.sync_data()?;
        }
        let index = self.index().file();
        index?.sync_data()?;
        moved
    }

    /// The blobs of each of them, by their offsets.
    fn places_in(&self, volumes: &[Arc<Volume>]) -> Vec<Vec<Place>> {
        let numbered = volumes.iter().enumerate();
        let numbers: HashMap<Number, usize> = numbered.map(|(at, volume)| (volume.number, at)).collect();
        let mut places: Vec<Vec<Place>> = volumes.iter().map(|_| Vec::new()).collect();
        let (_index, table) = self.whole_table();
        for (slot, blob) in table.blobs() {
            let Location::Piece(piece) = &blob.location else {
                continue;
            };
            if let Some(at) = numbers.get(&piece.volume.number) {
                places[*at].extend(self.place_of(&table, slot));
            }
        }
        drop(table);
        for places in &mut places {
            places.sort_by_key(|place| piece_of(place).map(|piece| piece.offset));
        }
        places
    }

    /// Copies blobs without checking them: a reader checks the digest anyway.
    fn move_batch(&self, batch: &[Place], news: &mut HashMap<Number, Arc<Volume>>) -> io::Result<()> {
        let mut read = Vec::new();
        for place in batch {
            let Some(piece) = piece_of(place) else { continue };
            match self.volumes.read(piece) {
                Ok(bytes) => read.push((place, bytes)),
                Err(error) if is_passing(&error) => return Err(error),
                Err(_) => drop(self.lose(place)),
            }
        }
        if read.is_empty() {
            return Ok(());
        }
        let bytes: Vec<&[u8]> = read.iter().map(|(_, bytes)| &bytes[..]).collect();
        let pieces = self.volumes.append(&bytes, self.limits(), &self.numbers)?;
        let places: Vec<_> = read.iter().map(|(place, _)| *place).collect();
        news.extend(pieces.iter().map(|piece| (piece.volume.number, piece.volume.clone())));
        self.relocate(&places, &pieces)
    }

    /// Updates the index, and then the table. Blobs that were evicted or lost meanwhile are left out.
    fn relocate(&self, places: &[&Place], pieces: &[Piece]) -> io::Result<()> {
        let mut index = self.index();
        let table = self.table();
        let mut items = Vec::new();
        let (mut moved, mut unneeded) = (Vec::new(), Vec::new());
        for (place, piece) in places.iter().zip(pieces) {
            let blob = table.blob(place.slot);
            let same = blob.filter(|blob| blob.number == place.number && blob.location == place.location);
            let location = Location::Piece(piece.clone());
            match same {
                Some(blob) => {
                    // The index does not know blobs that no entry needs yet.
                    items.extend((blob.entries > 0).then(|| blob.item(&location)));
                    moved.push((place, location));
                }
                None => unneeded.push((place, location)),
            }
        }
        drop(table);
        let told = match items.is_empty() {
            true => Ok(()),
            false => index.append(&items),
        };
        let mut freed = Vec::new();
        match &told {
            Ok(()) => {
                let mut table = self.change();
                let moved = moved.into_iter();
                moved.for_each(|(place, location)| table.move_blob(place.slot, location, &mut freed));
            }
            Err(_) => unneeded.append(&mut moved),
        }
        drop(index);
        unneeded
            .iter()
            .for_each(|(place, location)| self.discard(place.number, location));
        self.free(&freed);
        told
    }
}

fn piece_of(place: &Place) -> Option<&Piece> {
    match &place.location {
        Location::Piece(piece) => Some(piece),
        Location::File { .. } => None,
    }
}

/// Splits places into batches, which are not much larger than `BATCH_BYTES`.
fn batches(places: &[Place]) -> impl Iterator<Item = &[Place]> {
    let start = |place: &Place| piece_of(place).map_or(0, |piece| piece.offset / BATCH_BYTES);
    places.chunk_by(move |a, b| start(a) == start(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(length: u64, alive: u64) -> Weight {
        let is_tail = false;
        Weight { length, alive, is_tail }
    }

    #[test]
    fn only_volumes_that_are_mostly_garbage_are_emptied() {
        let weights = [sealed(1000, 499), sealed(1000, 501), sealed(1000, 0)];
        assert_eq!(choose(&weights, 0, 0), [0, 2]);
        let tail = Weight {
            is_tail: true,
            ..sealed(1000, 10)
        };
        assert_eq!(choose(&[tail], 0, 0), [] as [usize; 0]);
    }

    #[test]
    fn to_free_space_the_emptiest_volumes_come_first() {
        let tail = Weight {
            is_tail: true,
            ..sealed(1000, 600)
        };
        let weights = [sealed(1000, 900), tail, sealed(1000, 700), sealed(1000, 1000)];
        assert_eq!(choose(&weights, 0, 1), [1]);
        assert_eq!(choose(&weights, 0, 401), [1, 2]);
        assert_eq!(choose(&weights, 0, u64::MAX), [1, 2, 0]);
    }

    #[test]
    fn many_small_volumes_are_emptied() {
        let few = [sealed(100, 100); SMALL_ONES];
        assert_eq!(choose(&few, 100, 0), [] as [usize; 0]);
        let many = [&few[..], &[sealed(101, 101), sealed(100, 100)]].concat();
        let chosen = choose(&many, 100, 0);
        assert_eq!(chosen.len(), SMALL_ONES + 1);
        assert!(!chosen.contains(&SMALL_ONES));
    }
}
