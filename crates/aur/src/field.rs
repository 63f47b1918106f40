//! The fields of a record under their names on the wire, and the fields that can be searched.

/// A key of a package record. The order is the ascending one that keys have in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Field {
    CheckDepends,
    CoMaintainers,
    Conflicts,
    Depends,
    Description,
    FirstSubmitted,
    Groups,
    Id,
    Keywords,
    LastModified,
    License,
    Maintainer,
    MakeDepends,
    Name,
    NumVotes,
    OptDepends,
    OutOfDate,
    PackageBase,
    PackageBaseId,
    PendingRequests,
    Popularity,
    Provides,
    Replaces,
    Submitter,
    Url,
    UrlPath,
    Version,
    /// All other members of a dump, each with its own key, written between the fields in the order of keys.
    Others,
    /// Members that an answer has only if they are requested by name: see [`unshown`](crate::unshown).
    Unshown,
}

impl Field {
    /// All fields, in order.
    pub(crate) const ALL: [Field; 29] = [
        Field::CheckDepends,
        Field::CoMaintainers,
        Field::Conflicts,
        Field::Depends,
        Field::Description,
        Field::FirstSubmitted,
        Field::Groups,
        Field::Id,
        Field::Keywords,
        Field::LastModified,
        Field::License,
        Field::Maintainer,
        Field::MakeDepends,
        Field::Name,
        Field::NumVotes,
        Field::OptDepends,
        Field::OutOfDate,
        Field::PackageBase,
        Field::PackageBaseId,
        Field::PendingRequests,
        Field::Popularity,
        Field::Provides,
        Field::Replaces,
        Field::Submitter,
        Field::Url,
        Field::UrlPath,
        Field::Version,
        Field::Others,
        Field::Unshown,
    ];

    /// All fields in the order in which a record stores their values. Those of a search record come first, so that a
    /// search touches few cache lines. [`Field::place`] gives a field's position in it.
    pub(crate) const KEPT: [Field; 29] = {
        let mut kept = Field::ALL;
        let mut at = 0;
        while at < kept.len() {
            kept[Field::ALL[at].place()] = Field::ALL[at];
            at += 1;
        }
        kept
    };

    /// How many fields at the start of [`Field::KEPT`] make up a search record.
    pub(crate) const SEARCH_COUNT: usize = {
        let mut count = 0;
        let mut at = 0;
        while at < Field::ALL.len() {
            count += Field::ALL[at].is_in_search() as usize;
            at += 1;
        }
        count
    };

    /// How many fields at the start of [`Field::KEPT`] an answer may show without being asked for them: all but the last one.
    pub(crate) const SHOWN_COUNT: usize = {
        assert!(Field::Unshown.place() == Field::ALL.len() - 1);
        Field::ALL.len() - 1
    };

    /// The field's position in [`Field::KEPT`].
    pub(crate) const fn place(self) -> usize {
        let mut place = 0;
        let mut at = 0;
        while at < Field::ALL.len() {
            let other = Field::ALL[at];
            let is_before = if other.is_in_search() == self.is_in_search() {
                (other as u8) < (self as u8)
            } else {
                other.is_in_search()
            };
            place += is_before as usize;
            at += 1;
        }
        place
    }

    /// The key as it is written in an object: quoted, with its colon and the comma before it.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Field::CheckDepends => ",\"CheckDepends\":",
            Field::CoMaintainers => ",\"CoMaintainers\":",
            Field::Conflicts => ",\"Conflicts\":",
            Field::Depends => ",\"Depends\":",
            Field::Description => ",\"Description\":",
            Field::FirstSubmitted => ",\"FirstSubmitted\":",
            Field::Groups => ",\"Groups\":",
            Field::Id => ",\"ID\":",
            Field::Keywords => ",\"Keywords\":",
            Field::LastModified => ",\"LastModified\":",
            Field::License => ",\"License\":",
            Field::Maintainer => ",\"Maintainer\":",
            Field::MakeDepends => ",\"MakeDepends\":",
            Field::Name => ",\"Name\":",
            Field::NumVotes => ",\"NumVotes\":",
            Field::OptDepends => ",\"OptDepends\":",
            Field::OutOfDate => ",\"OutOfDate\":",
            Field::PackageBase => ",\"PackageBase\":",
            Field::PackageBaseId => ",\"PackageBaseID\":",
            Field::PendingRequests => ",\"PendingRequests\":",
            Field::Popularity => ",\"Popularity\":",
            Field::Provides => ",\"Provides\":",
            Field::Replaces => ",\"Replaces\":",
            Field::Submitter => ",\"Submitter\":",
            Field::Url => ",\"URL\":",
            Field::UrlPath => ",\"URLPath\":",
            Field::Version => ",\"Version\":",
            Field::Others => "",
            Field::Unshown => ",\"Larder\":",
        }
    }

    /// The key without quotes; empty for [`Field::Others`].
    pub(crate) fn name(self) -> &'static str {
        self.key().trim_matches([',', '"', ':'])
    }

    /// The value that a version 5 record shows if the package has none for this field; `None` if the key is left out
    /// then.
    pub(crate) const fn absent_value(self) -> Option<&'static str> {
        match self {
            Field::Description
            | Field::Maintainer
            | Field::OutOfDate
            | Field::Submitter
            | Field::Url => Some("null"),
            Field::Keywords | Field::License => Some("[]"),
            _ => None,
        }
    }

    /// Whether the field is one of the 14 of a search record.
    pub(crate) const fn is_in_search(self) -> bool {
        !matches!(
            self,
            Field::CheckDepends
                | Field::CoMaintainers
                | Field::Conflicts
                | Field::Depends
                | Field::Groups
                | Field::Keywords
                | Field::License
                | Field::MakeDepends
                | Field::OptDepends
                | Field::PendingRequests
                | Field::Provides
                | Field::Replaces
                | Field::Submitter
                | Field::Others
                | Field::Unshown
        )
    }
}

/// The field that a search looks at: the values of the `by` parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum By {
    /// Substring of the package's name.
    Name,
    /// Substring of the package's name or description.
    NameDesc,
    /// User name of the maintainer; the empty name finds orphans.
    Maintainer,
    /// User name of the submitter of the package base.
    Submitter,
    /// Name of a dependency, without its version condition.
    Depends,
    /// Name of a dependency for building.
    MakeDepends,
    /// Name of an optional dependency.
    OptDepends,
    /// Name of a dependency for checking.
    CheckDepends,
    /// Name of something that the package provides, its own name included.
    Provides,
    /// Name of something that the package conflicts with.
    Conflicts,
    /// Name of something that the package replaces.
    Replaces,
    /// One keyword of the package base.
    Keywords,
    /// A group that the package belongs to.
    Groups,
    /// User name of a co-maintainer.
    CoMaintainers,
    /// Name of the package base (neither aurweb nor goaurrpc has it).
    PackageBase,
}

impl By {
    /// All values, in the order of their numbers.
    pub const ALL: [By; 15] = [
        By::Name,
        By::NameDesc,
        By::Maintainer,
        By::Submitter,
        By::Depends,
        By::MakeDepends,
        By::OptDepends,
        By::CheckDepends,
        By::Provides,
        By::Conflicts,
        By::Replaces,
        By::Keywords,
        By::Groups,
        By::CoMaintainers,
        By::PackageBase,
    ];

    /// The value as it is written on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            By::Name => "name",
            By::NameDesc => "name-desc",
            By::Maintainer => "maintainer",
            By::Submitter => "submitter",
            By::Depends => "depends",
            By::MakeDepends => "makedepends",
            By::OptDepends => "optdepends",
            By::CheckDepends => "checkdepends",
            By::Provides => "provides",
            By::Conflicts => "conflicts",
            By::Replaces => "replaces",
            By::Keywords => "keywords",
            By::Groups => "groups",
            By::CoMaintainers => "comaintainers",
            By::PackageBase => "pkgbase",
        }
    }

    /// The value with this spelling; upper case is not accepted, as in aurweb.
    pub fn parse(name: &str) -> Option<By> {
        By::ALL.into_iter().find(|by| by.name() == name)
    }
}

/// How a text is compared with the argument in searches for names and descriptions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It contains the argument.
    #[default]
    Contains,
    /// It begins with the argument.
    StartsWith,
}
