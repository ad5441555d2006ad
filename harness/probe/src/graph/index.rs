//! From an object's address to its number.
//!
//! Every reference of every object is looked up here, so this is where the time of a traversal
//! goes. A block of 1 KiB of addresses has one entry with a bit per possible object; an object's
//! number is the block's first number plus the bits before its own. Neighbours in memory, which
//! mostly refer to each other, then share a cache line, where a table of addresses would miss once a
//! look-up. No sort is needed, and a block costs 32 bytes however many objects lie in it.

/// Objects start at multiples of this: they begin with a pointer-sized count.
const ALIGNMENT_BITS: u32 = 3;
const BLOCK_BITS: u32 = 10;
/// Blocks that follow each other in memory are neighbours in the table, in runs of this many.
const RUN_BITS: u32 = 4;
/// No object lies in the first block of the address space.
const VACANT: usize = 0;

#[derive(Clone, Copy)]
struct Block {
    key: usize,
    bits: u128,
    first: u32,
}

impl Block {
    const EMPTY: Self = Self { key: VACANT, bits: 0, first: u32::MAX };
}

/// Numbers a set of addresses from 0, close to the order in which they were given.
pub struct Index {
    table: Vec<Block>,
    blocks: usize,
    len: u32,
}

impl Index {
    /// Addresses that are given twice get one number.
    pub fn new(addresses: &[usize]) -> Self {
        let mut index = Self { table: vec![Block::EMPTY; 64], blocks: 0, len: 0 };
        let mut last = VACANT;
        let mut slot = 0;
        for &address in addresses {
            let key = address >> BLOCK_BITS;
            if key != last || index.table[slot].key != key {
                slot = index.slot_for(key);
                last = key;
            }
            index.table[slot].bits |= bit(address);
        }
        for &address in addresses {
            let slot = index.slot(address >> BLOCK_BITS);
            let block = &mut index.table[slot];
            if block.first == u32::MAX {
                block.first = index.len;
                index.len += block.bits.count_ones();
            }
        }
        index
    }

    /// How many different addresses there are.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub fn find(&self, address: usize) -> Option<u32> {
        let block = &self.table[self.slot(address >> BLOCK_BITS)];
        let bit = bit(address);
        // A vacant block has no bits.
        (block.bits & bit != 0).then(|| block.first + (block.bits & (bit - 1)).count_ones())
    }

    /// Where the block of a key is, or the vacant slot where it would be.
    #[inline]
    fn slot(&self, key: usize) -> usize {
        let mask = self.table.len() - 1;
        let run = (key >> RUN_BITS).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        let mut slot = ((run << RUN_BITS) | (key & ((1 << RUN_BITS) - 1))) & mask;
        while self.table[slot].key != key && self.table[slot].key != VACANT {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn slot_for(&mut self, key: usize) -> usize {
        let slot = self.slot(key);
        if self.table[slot].key == key {
            return slot;
        }
        // At most half of the table is used.
        if 2 * (self.blocks + 1) > self.table.len() {
            let doubled = vec![Block::EMPTY; 2 * self.table.len()];
            for block in std::mem::replace(&mut self.table, doubled) {
                if block.key != VACANT {
                    let slot = self.slot(block.key);
                    self.table[slot] = block;
                }
            }
        }
        let slot = self.slot(key);
        self.table[slot].key = key;
        self.blocks += 1;
        slot
    }
}

#[inline]
fn bit(address: usize) -> u128 {
    1 << ((address >> ALIGNMENT_BITS) & ((1 << (BLOCK_BITS - ALIGNMENT_BITS)) - 1))
}
