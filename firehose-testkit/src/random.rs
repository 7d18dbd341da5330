//! Seeded randomness, a source of its own for every purpose.

use rand::SeedableRng;
use rand::rngs::StdRng;

/// The one number that a run is reproduced from.
///
/// Each purpose draws from a source of its own, so that a fault that is switched on does not shift what others draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seed(u64);

impl Seed {
    /// The seed `number`.
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The source for `purpose`.
    pub(crate) fn source(self, purpose: &str) -> StdRng {
        StdRng::seed_from_u64(self.mixed(purpose, 0))
    }

    /// The `nth` number for `purpose`, without the ones before it: what can be wound back with a counter.
    pub(crate) fn nth(self, purpose: &str, nth: u64) -> u64 {
        self.mixed(purpose, nth)
    }

    /// FNV-1a over the purpose, then the finalizer of SplitMix64, whose every output bit hangs on every input bit.
    fn mixed(self, purpose: &str, nth: u64) -> u64 {
        let name = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        let scrambled = finalize(self.0 ^ finalize(name));
        finalize(scrambled.wrapping_add(nth.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }
}

fn finalize(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;

    #[test]
    fn a_seed_and_a_purpose_give_the_same_numbers_again() {
        let draw = |seed: u64, purpose: &str| -> Vec<u64> {
            let mut source = Seed::new(seed).source(purpose);
            (0..4).map(|_| source.random_range(0..u64::MAX)).collect()
        };
        assert_eq!(draw(7, "drop"), draw(7, "drop"));
        assert_ne!(draw(7, "drop"), draw(7, "duplicate"), "purposes are apart");
        assert_ne!(draw(7, "drop"), draw(8, "drop"), "seeds are apart");
    }

    #[test]
    fn the_nth_number_needs_no_others() {
        let numbers: Vec<u64> = (0..100).map(|n| Seed::new(1).nth("epochs", n)).collect();
        assert_eq!(numbers[42], Seed::new(1).nth("epochs", 42));
        let distinct: std::collections::HashSet<_> = numbers.iter().collect();
        assert_eq!(distinct.len(), 100);
    }
}
