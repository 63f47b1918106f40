//! A generated catalogue like the AUR's: the same recipe gives the same bytes on every platform.
//!
//! [`Recipe`] -> [`write_dump`] -> the bytes of a `packages-meta-ext-v1.json` as aurweb exports it.
//! It serves demonstrations, benchmarks and tests that need many packages and cannot wait for real ones. It reads no
//! file, no clock, no network, and no text of a real catalogue. Only the package names of an Arch-like distribution
//! (`glibc`, `cmake`) are borrowed, so that dependencies look like dependencies. Hosts of URLs are those reserved for
//! examples.
//!
//! # Shape
//!
//! `[`, a line per package, the lines separated by a comma, and `]`, with no line feed at the end. A record has
//! the keys of the format in the order of the format: fifteen that are always there (`ID` to `URLPath`), then the
//! lists `Depends MakeDepends CheckDepends OptDepends Conflicts Provides Replaces Groups License Keywords
//! CoMaintainers`, each only if it is not empty. Letters outside ASCII are raw UTF-8. `URLPath` is made from the
//! name of the *package*, as the export does, and so is wrong for split packages: readers compute their own.
//!
//! Families of names come first (`stem`, `stem-git`, `stem-bin`, with prefixes such as `python-`), then bases in the
//! order of their last change, then records one base at a time. Identifiers rise and are unique; names are unique
//! even if case is ignored. Memory holds only the names and a few numbers a base: 65 MB at 1,000,000 packages. All
//! arithmetic uses integers, also for popularity (in millionths), so no platform rounds differently.
//!
//! # Proportions
//!
//! Measured at 100,000 packages, seed 1; tests keep them in bounds. Shares are of packages.
//!
//! | what | measured |
//! | --- | --- |
//! | packages, of bases | 100,000 of 90,212 |
//! | bytes, and the mean of a record | 62,634,196; 626 |
//! | names that end in `-git`; `-bin` | 25.5 %; 21.1 % |
//! | names that contain `python` | 8,173 |
//! | names with one of `+ . _ @`; with capitals | 5.2 %; 0.26 % |
//! | packages of split bases (2 to 10 each) | 13.9 % |
//! | split bases; called like none of their packages | 4,092; 1,637 |
//! | orphans; without submitter; out of date; with comaintainers | 8.4 %; 0.6 %; 9.9 %; 6.0 % |
//! | maintainers; packages of the busiest | 16,368; 1,827 |
//! | votes: median, 90 %, 99 %, most (Zipf by octaves) | 1; 16; 176; 1,918 |
//! | popularity 0; 1e-6 to 9e-6; most | 60.6 %; 1.6 %; 44.3 |
//! | without description; without URL | 2.0 %; 3.0 % |
//! | descriptions not ASCII; with one of `" < > & \`; with 4 to 14 words | 1.1 %; 1.4 %; 97 % |
//! | with Depends; MakeDepends; CheckDepends; OptDepends | 86 %; 55 %; 5.4 %; 20 % |
//! | Depends: median, 90 %, most | 4; 9; 66 |
//! | Depends and MakeDepends: all; with a condition; resolvable; of the distribution | 509,797; 31 %; 97.6 %; 64 % |
//! | one name under several conditions in Depends, as merged architectures leave it | 5.1 % |
//! | with Conflicts; Provides; Replaces; Groups | 52 %; 48 %; 3.5 %; 3.0 % |
//! | Provides: with version; a soname; capitals | 23 %; 2.9 %; 1.4 % |
//! | Groups: with capitals | 0.6 % |
//! | with License; Keywords (1 to 8) | 97.6 %; 15.0 % |
//! | packages with `attest` in name or description, at every size from 100 | 12 |

use std::io;

mod catalogue;
mod ecosystem;
mod random;
mod record;
mod sentences;
mod sql;
#[cfg(test)]
mod tests;
mod words;

pub use sql::{AURWEB_SCHEMA, SqlWriter};

/// The size and the seed of a catalogue.
///
/// ```
/// let mut dump = Vec::new();
/// demo::write_dump(&demo::Recipe { packages: 3, seed: 1 }, &mut dump, &mut |_| ())?;
/// assert!(dump.starts_with(b"[\n{\"ID\":"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// How many packages, exactly: 0 to [`Recipe::PACKAGES_MAX`].
    pub packages: u32,
    /// Chooses one of the catalogues of that size. A smaller catalogue is not a prefix of a larger one.
    pub seed: u64,
}

impl Recipe {
    /// The largest catalogue, in packages: names are found by 32-bit offsets. Tried up to 1,000,000.
    pub(crate) const PACKAGES_MAX: u32 = 50_000_000;
}

/// Writes the dump of `recipe`, uncompressed, with one write for each record: pass a buffered writer.
///
/// `progress` is called with the number of records written so far, after each 1,000 and after the last one. The names
/// are planned before the first record; that takes a small part of the whole time.
///
/// # Errors
/// Those of `out`, and [`io::ErrorKind::InvalidInput`] if the recipe has more than [`Recipe::PACKAGES_MAX`] packages.
pub fn write_dump(
    recipe: &Recipe,
    out: &mut impl io::Write,
    progress: &mut dyn FnMut(u32),
) -> io::Result<()> {
    if recipe.packages > Recipe::PACKAGES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "a catalogue of {} packages; at most {} are possible",
                recipe.packages,
                Recipe::PACKAGES_MAX
            ),
        ));
    }
    let words = words::Words::new();
    let catalogue = catalogue::Catalogue::plan(recipe.packages, recipe.seed, &words);
    record::write_all(&catalogue, &words, recipe.seed, out, progress)
}
