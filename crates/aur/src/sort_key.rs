//! [`Key`]: what packages are sorted and filtered by in lists for people.

use crate::field::Field;
use crate::record::Record;

/// The order of packages. Equal ones are ordered by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Their names.
    Name,
    /// Votes.
    Votes,
    /// Popularity.
    Popularity,
    /// When they were last modified.
    LastModified,
    /// When they were submitted.
    FirstSubmitted,
}

/// Which of the found packages a list keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only packages that are flagged as out of date, or only those that are not.
    pub is_out_of_date: Option<bool>,
    /// Only orphans.
    pub orphans: bool,
}

/// The values that packages are sorted and filtered by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    popularity: f32,
    votes: u32,
    last_modified: u32,
    first_submitted: u32,
    is_out_of_date: bool,
    is_orphan: bool,
}

/// The keys of all packages, by doc id.
pub(crate) type Keys = Box<[Key]>;

impl Key {
    pub(crate) fn of(record: Record<'_>) -> Key {
        let value = record.fields();
        let whole = |field| {
            let number: i64 = number(value(field));
            u32::try_from(number.max(0)).unwrap_or(u32::MAX)
        };
        let popularity: f32 = number(value(Field::Popularity));
        Key {
            popularity: if popularity >= 0.0 { popularity } else { 0.0 },
            votes: whole(Field::NumVotes),
            last_modified: whole(Field::LastModified),
            first_submitted: whole(Field::FirstSubmitted),
            is_out_of_date: is_value(value(Field::OutOfDate)),
            is_orphan: !is_value(value(Field::Maintainer)),
        }
    }

    pub(crate) fn rank(self, order: Order) -> u32 {
        match order {
            Order::Name => 0,
            Order::Votes => self.votes,
            // Numbers that are not negative are ordered like their bits.
            Order::Popularity => self.popularity.to_bits(),
            Order::LastModified => self.last_modified,
            Order::FirstSubmitted => self.first_submitted,
        }
    }

    pub(crate) fn passes(self, filter: Filter) -> bool {
        filter.is_out_of_date.is_none_or(|wanted| wanted == self.is_out_of_date)
            && (!filter.orphans || self.is_orphan)
    }
}

/// Whether a record has a value that is not null.
pub(crate) fn is_there(record: Record<'_>, field: Field) -> bool {
    is_value(record.value(field))
}

fn is_value(json: Option<&[u8]>) -> bool {
    json.is_some_and(|json| json != b"null")
}

pub(crate) fn integer(record: Record<'_>, field: Field) -> i64 {
    number(record.value(field))
}

fn number<T: std::str::FromStr + Default>(json: Option<&[u8]>) -> T {
    let text = json.and_then(|json| std::str::from_utf8(json).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}
