//! [`Block`]: memory that is written once and then read at random, in huge pages if the system has them.

use std::fmt;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// The size of a huge page on most machines. Smaller blocks come from the usual allocator.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A fixed number of bytes, zero at first.
///
/// A random read in many megabytes waits not only for the byte but also for the entry in the page table, and the
/// first write to a page costs more than all later ones. Huge pages are 512 times as large, so there are fewer of
/// both costs. The remainder after the last full huge page is in pages of the usual size. When the block is dropped,
/// all its memory goes back to the system.
pub struct Block {
    memory: Memory,
    size: usize,
}

enum Memory {
    Mapped(MmapMut),
    Allocated(Box<[u8]>),
}

impl Block {
    /// A block of `size` bytes.
    pub fn zeroed(size: usize) -> Block {
        let memory = map(size)
            .map_or_else(|| Memory::Allocated(vec![0; size].into_boxed_slice()), Memory::Mapped);
        Block { memory, size }
    }
}

/// Memory of at least `size` bytes from the system; `None` if it is too small for even one huge page.
fn map(size: usize) -> Option<MmapMut> {
    let in_huge_pages = size - size % HUGE_PAGE_BYTES;
    if in_huge_pages == 0 {
        return None;
    }
    // Linux aligns a mapping to huge pages only if its size is a multiple of theirs. Memory that is mapped but not
    // written to costs nothing.
    let map = MmapMut::map_anon(size.next_multiple_of(HUGE_PAGE_BYTES)).ok()?;
    // This is only a hint: without huge pages the memory works as well.
    #[cfg(target_os = "linux")]
    let _ = map.advise_range(memmap2::Advice::HugePage, 0, in_huge_pages);
    Some(map)
}

impl Deref for Block {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let bytes: &[u8] = match &self.memory {
            Memory::Mapped(map) => map,
            Memory::Allocated(bytes) => bytes,
        };
        &bytes[..self.size]
    }
}

impl DerefMut for Block {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes: &mut [u8] = match &mut self.memory {
            Memory::Mapped(map) => map,
            Memory::Allocated(bytes) => bytes,
        };
        &mut bytes[..self.size]
    }
}

impl fmt::Debug for Block {
    /// Shows the size only.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Block").field("size", &self.size).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_zero_and_can_be_written() {
        for size in [0, 1, HUGE_PAGE_BYTES - 1, HUGE_PAGE_BYTES, 2 * HUGE_PAGE_BYTES + 3] {
            let mut block = Block::zeroed(size);
            assert_eq!(block.len(), size);
            assert!(block.iter().all(|&byte| byte == 0), "{size}");
            block.fill(7);
            assert!(block.iter().all(|&byte| byte == 7), "{size}");
        }
    }
}
