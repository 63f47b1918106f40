//! Posting lists, and the indexes made of them.
//!
//! texts of documents -> [`TextColumn`] -> [`TrigramIndex`] -> ascending [`DocId`]s
//! terms of documents -> [`TermIndexBuilder`] -> [`TermIndex`] -> [`PostingList`]
//!
//! Everything here is built once and never changes afterwards. This crate does no I/O and knows neither packages nor
//! HTTP.
//!
//! # An example
//!
//! ```
//! use postings::{TextColumn, TrigramIndex};
//!
//! let fruit = TextColumn::from_texts(["BANANA", "CHERRY", "MANGO"]);
//! let index = TrigramIndex::build(fruit);
//! let found: Vec<u32> = index.containing("AN", 10).iter().map(|doc| doc.0).collect();
//! assert_eq!(found, [0, 2]);
//! ```
//!
//! BANANA is indexed under the trigrams BAN, ANA, NAN, ANA (once), NA· and A··, where `·` stands for the end of a
//! text. A needle of three bytes or more is looked up by its rarest trigrams. A needle of one or two bytes is the
//! union of all trigrams that begin with it; the end marks make that complete. Candidates are then checked against
//! the text, so the answer is exact.
//!
//! # What it costs
//!
//! A posting takes one or two bytes (the difference to the previous document, as a variable-length number); a
//! [`TrigramIndex`] adds one table of 262,145 offsets (1 MiB) and the texts themselves. Once a list with one document
//! in 64 or more has been searched, it takes another bit for every document: with the 107,000 packages of the AUR, 13
//! KB for each of at most some 800 lists.
//!
//! # Quirks
//!
//! The index matches bytes. The caller folds case and accents, in the texts and in the needles.

mod block;
mod column;
mod list;
mod set;
mod term;
mod trigram;

pub use block::{Block, HUGE_PAGE_BYTES};
pub use column::TextColumn;
pub use list::{DocId, Documents, PostingList, Postings};
pub use set::DocSet;
pub use term::{TermIndex, TermIndexBuilder};
pub use trigram::TrigramIndex;
