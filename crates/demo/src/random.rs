//! Random numbers that are the same everywhere: ChaCha with eight rounds and integer arithmetic only.
//!
//! The ranges are drawn here and not by `rand`, whose algorithms may change between versions and differ with the
//! width of `usize`. There are no logarithms or powers either: a Zipf distribution is drawn by octaves.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A stream of random numbers, determined by a seed and the number of the stream.
pub(crate) struct Random(ChaCha8Rng);

impl Random {
    /// Streams of the same seed are independent, so that one part of the recipe can change without the others.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(stream);
        Self(generator)
    }

    /// Uniform in `0..count`; 0 if `count` is 0. The bias, at most `count` in 2^32, does not matter here.
    pub(crate) fn below(&mut self, count: u32) -> u32 {
        ((u64::from(self.0.next_u32()) * u64::from(count)) >> 32) as u32
    }

    /// Uniform from `first` to `last`, both included.
    pub(crate) fn between(&mut self, first: u32, last: u32) -> u32 {
        first + self.below(last - first + 1)
    }

    /// Uniform in `0..count`, for counts beyond 32 bits.
    pub(crate) fn below_wide(&mut self, count: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(count)) >> 64) as u64
    }

    /// True `count` times in 1,000.
    pub(crate) fn in_1000(&mut self, count: u32) -> bool {
        self.below(1000) < count
    }

    /// One of `items`, which are not empty.
    pub(crate) fn pick<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len() as u32) as usize]
    }

    /// An index into `weights`, drawn with probabilities in proportion to them.
    pub(crate) fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (index, &weight) in weights.iter().enumerate() {
            match left.checked_sub(weight) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        weights.len() - 1
    }

    /// A rank in `0..count`, about as likely as 1 / (rank + 1); `count` must not be 0.
    ///
    /// The octave (ranks `2^k - 1` to `2^(k+1) - 2`) is uniform, and so is the rank within it.
    pub(crate) fn zipf(&mut self, count: u32) -> u32 {
        let octave = self.below(count.ilog2() + 1);
        let first = (1_u32 << octave) - 1;
        let last = ((1_u64 << (octave + 1)) - 2).min(u64::from(count) - 1) as u32;
        self.between(first, last)
    }

    /// A lower-case hexadecimal number of `digits` digits, at most 16.
    pub(crate) fn hex(&mut self, digits: usize) -> String {
        let number = format!("{:016x}", self.0.next_u64());
        number[..digits].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_seeds_differ_and_repeat() {
        let draw = |seed, stream| Random::new(seed, stream).hex(16);
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
        assert_ne!(draw(1, 0), draw(2, 0));
    }

    #[test]
    fn zipf_stays_inside_and_prefers_low_ranks() {
        let mut random = Random::new(1, 0);
        for count in [1, 2, 3, 4, 5, 1000, u32::MAX] {
            for _ in 0..200 {
                assert!(random.zipf(count) < count);
            }
        }
        let firsts = (0..10_000).filter(|_| random.zipf(1023) == 0).count();
        assert!(
            (800..1200).contains(&firsts),
            "{firsts} of 10,000 have rank 0, expected about 1,000"
        );
    }

    #[test]
    fn weights_are_kept() {
        let mut random = Random::new(1, 0);
        let mut counts = [0; 3];
        for _ in 0..10_000 {
            counts[random.weighted(&[1, 0, 3])] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!((2200..2800).contains(&counts[0]), "{counts:?}");
    }
}
