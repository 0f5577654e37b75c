//! A collection whose values stay at their places while others come and go.

/// The place of a value.
pub type Slot = u32;

pub struct Slots<T> {
    values: Vec<Option<T>>,
    free: Vec<Slot>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots {
            values: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    pub fn get(&self, slot: Slot) -> Option<&T> {
        self.values.get(slot as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.values.get_mut(slot as usize)?.as_mut()
    }

    pub fn add(&mut self, value: T) -> Slot {
        match self.free.pop() {
            Some(slot) => {
                self.values[slot as usize] = Some(value);
                slot
            }
            None => {
                self.values.push(Some(value));
                (self.values.len() - 1) as Slot
            }
        }
    }

    pub fn remove(&mut self, slot: Slot) -> Option<T> {
        let value = self.values.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        let numbered = self.values.iter().enumerate();
        numbered.filter_map(|(slot, value)| Some((slot as Slot, value.as_ref()?)))
    }

    pub fn len(&self) -> usize {
        self.values.len() - self.free.len()
    }
}
