//! A set of node numbers, one bit each.

pub struct Bits(Vec<u64>);

impl Bits {
    pub fn new(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    #[inline]
    pub fn contains(&self, node: u32) -> bool {
        self.0[node as usize / 64] >> (node % 64) & 1 != 0
    }

    #[inline]
    pub fn insert(&mut self, node: u32) {
        self.0[node as usize / 64] |= 1 << (node % 64);
    }

    /// The members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                u32::try_from(index * 64).ok().map(|base| base + bit)
            })
        })
    }
}
