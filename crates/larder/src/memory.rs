//! Memory that is free: the binary's allocator gives it back to the system at once.
//!
//! By itself jemalloc does so within a fraction of a second (`.cargo/config.toml`), which is soon enough
//! for what a request frees, and late enough for the next request to use it. Building a snapshot frees half as much
//! as the snapshot is large, and the one before it all of that.

use tikv_jemalloc_ctl::{Access as _, AsName as _, Mib};

/// Gives back all pages that are free; a few milliseconds for a hundred megabytes. Where another allocator
/// is the global one, as in tests, there are none.
pub fn give_back() {
    let arenas: u32 = match b"arenas.narenas\0".name().read() {
        Ok(arenas) => arenas,
        Err(error) => return tracing::debug!(%error, "the allocator does not tell its arenas"),
    };
    for arena in 0..arenas {
        if let Err(error) = give_back_arena(arena as usize) {
            // Nobody has allocated from it.
            tracing::trace!(arena, %error, "an arena has no pages");
        }
    }
}

/// Free pages are given back whenever the time for which they are kept changes to none.
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
    fn what_is_configured_stays_so() {
        let kept_ms = || -> isize { b"arena.0.dirty_decay_ms\0".name().read().expect("arena 0") };
        let before = kept_ms();
        assert!(before > 0, "{before}");
        give_back();
        assert_eq!(kept_ms(), before);
    }
}
