//! A series of any length in bounded memory.

/// Most entries that are kept.
const MOST: usize = 256;

/// Keeps entries that are evenly spaced over all that came, between 128 and 256 of them once there were as many: when
/// it is full, every second one is dropped. Which are kept depends on nothing but their number.
#[derive(Debug, Clone)]
pub struct Thinned<T> {
    kept: Vec<T>,
    stride: u64,
    seen: u64,
}

impl<T> Default for Thinned<T> {
    fn default() -> Self {
        Self { kept: Vec::new(), stride: 1, seen: 0 }
    }
}

impl<T> Thinned<T> {
    pub fn push(&mut self, entry: T) {
        if self.seen.is_multiple_of(self.stride) {
            if self.kept.len() == MOST {
                self.halve();
            }
            // With an even number kept, the next one to keep is a multiple of the doubled stride too.
            self.kept.push(entry);
        }
        self.seen += 1;
    }

    fn halve(&mut self) {
        let mut index = 0_usize;
        self.kept.retain(|_| {
            index += 1;
            index % 2 == 1
        });
        self.stride *= 2;
    }

    /// Gives back memory of a series to which no more will come: keeps at most so many.
    pub fn close(&mut self, most: usize) {
        while self.kept.len() > most.max(1) {
            self.halve();
        }
        self.kept.shrink_to_fit();
    }

    /// What is kept, in the order in which it came.
    pub fn kept(&self) -> &[T] {
        &self.kept
    }

    pub fn kept_mut(&mut self) -> &mut [T] {
        &mut self.kept
    }

    /// How many came.
    pub const fn seen(&self) -> u64 {
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_kept_is_evenly_spaced_and_bounded(count in 0..20_000_u64) {
            let mut thinned = Thinned::default();
            for number in 0..count {
                thinned.push(number);
            }
            let kept = thinned.kept();
            prop_assert_eq!(thinned.seen(), count);
            prop_assert!(kept.len() <= MOST && kept.len() as u64 >= count.min(MOST as u64 / 2));
            prop_assert!(kept.iter().enumerate().all(|(index, number)| *number == index as u64 * thinned.stride));
            thinned.close(100);
            let kept = thinned.kept();
            prop_assert!(kept.len() <= 100 && kept.len() as u64 >= count.min(50));
            prop_assert!(kept.iter().enumerate().all(|(index, number)| *number == index as u64 * thinned.stride));
        }
    }
}
