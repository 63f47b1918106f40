//! The fields of a record under their names on the wire, and the fields that can be searched.

/// An enum, the list of its variants, and the text of each, from the same lines.
macro_rules! texts {
    (
        $(#[$attribute:meta])*
        $visible:vis enum $Enum:ident {
            $( $(#[$doc:meta])* $Variant:ident = $text:literal, )*
        }
        $(#[$text_doc:meta])*
        fn $text_of:ident;
    ) => {
        $(#[$attribute])*
        $visible enum $Enum {
            $( $(#[$doc])* $Variant, )*
        }

        impl $Enum {
            /// All of them, in order.
            $visible const ALL: [$Enum; [$($text),*].len()] = [$($Enum::$Variant),*];

            $(#[$text_doc])*
            $visible const fn $text_of(self) -> &'static str {
                match self {
                    $( $Enum::$Variant => $text, )*
                }
            }
        }
    };
}

texts! {
    /// A key of a package record. The order is the ascending one that keys have in an answer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub(crate) enum Field {
        CheckDepends = ",\"CheckDepends\":",
        CoMaintainers = ",\"CoMaintainers\":",
        Conflicts = ",\"Conflicts\":",
        Depends = ",\"Depends\":",
        Description = ",\"Description\":",
        FirstSubmitted = ",\"FirstSubmitted\":",
        Groups = ",\"Groups\":",
        Id = ",\"ID\":",
        Keywords = ",\"Keywords\":",
        LastModified = ",\"LastModified\":",
        License = ",\"License\":",
        Maintainer = ",\"Maintainer\":",
        MakeDepends = ",\"MakeDepends\":",
        Name = ",\"Name\":",
        NumVotes = ",\"NumVotes\":",
        OptDepends = ",\"OptDepends\":",
        OutOfDate = ",\"OutOfDate\":",
        PackageBase = ",\"PackageBase\":",
        PackageBaseId = ",\"PackageBaseID\":",
        PendingRequests = ",\"PendingRequests\":",
        Popularity = ",\"Popularity\":",
        Provides = ",\"Provides\":",
        Replaces = ",\"Replaces\":",
        Submitter = ",\"Submitter\":",
        Url = ",\"URL\":",
        UrlPath = ",\"URLPath\":",
        Version = ",\"Version\":",
        /// All other members of a dump, each with its own key, written between the fields in the order of keys.
        Others = "",
        /// Members that an answer has only if they are requested by name: see [`hidden_members`](crate::hidden_members).
        Unshown = ",\"Larder\":",
    }

    /// The key as it is written in an object: quoted, with its colon and the comma before it.
    fn key;
}

impl Field {
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

texts! {
    /// The field that a search looks at: the values of the `by` parameter.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum By {
        /// Substring of the package's name.
        Name = "name",
        /// Substring of the package's name or description.
        NameDesc = "name-desc",
        /// User name of the maintainer; the empty name finds orphans.
        Maintainer = "maintainer",
        /// User name of the submitter of the package base.
        Submitter = "submitter",
        /// Name of a dependency, without its version condition.
        Depends = "depends",
        /// Name of a dependency for building.
        MakeDepends = "makedepends",
        /// Name of an optional dependency.
        OptDepends = "optdepends",
        /// Name of a dependency for checking.
        CheckDepends = "checkdepends",
        /// Name of something that the package provides, its own name included.
        Provides = "provides",
        /// Name of something that the package conflicts with.
        Conflicts = "conflicts",
        /// Name of something that the package replaces.
        Replaces = "replaces",
        /// One keyword of the package base.
        Keywords = "keywords",
        /// A group that the package belongs to.
        Groups = "groups",
        /// User name of a co-maintainer.
        CoMaintainers = "comaintainers",
        /// Name of the package base (neither aurweb nor goaurrpc has it).
        PackageBase = "pkgbase",
    }

    /// The value as it is written on the wire.
    fn name;
}

impl By {
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
