//! Returns free memory of the binary's allocator to the system at once.
//!
//! On its own, jemalloc does so within a fraction of a second (`.cargo/config.toml`). That is soon enough for the
//! memory that a request frees, and late enough for the next request to use it. But building a snapshot frees half as
//! much as the snapshot takes, and dropping the one before it frees all of that.

use tikv_jemalloc_ctl::{Access as _, AsName as _, Mib};

/// Returns all free pages; this takes a few milliseconds for a hundred megabytes. It does nothing if another
/// allocator is the global one, as in tests.
pub(crate) fn give_back() {
    let arenas: u32 = match b"arenas.narenas\0".name().read() {
        Ok(arenas) => arenas,
        Err(error) => return tracing::debug!(%error, "the allocator does not report its arenas"),
    };
    for arena in 0..arenas {
        if let Err(error) = give_back_arena(arena as usize) {
            // No thread has allocated from this arena.
            tracing::trace!(arena, %error, "an arena has no pages");
        }
    }
}

/// Returns the free pages of an arena: jemalloc does so whenever the time for which it keeps them changes to zero.
fn give_back_arena(arena: usize) -> tikv_jemalloc_ctl::Result<()> {
    let mut kept_ms: Mib<[usize; 3]> = b"arena.0.dirty_decay_ms\0".name().mib()?;
    kept_ms[1] = arena;
    let configured: isize = kept_ms.update(0_isize)?;
    kept_ms.write(configured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configured_decay_time_stays() {
        let kept_ms = || -> isize { b"arena.0.dirty_decay_ms\0".name().read().expect("arena 0") };
        let before = kept_ms();
        assert!(before > 0, "{before}");
        give_back();
        assert_eq!(kept_ms(), before);
    }
}
