//! Why a query is refused, in the words that clients look for.

/// A refused query. The texts are upstream's to the letter: clients compare them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// `v` is missing.
    #[error("Please specify an API version.")]
    NoVersion,
    /// `v` is not a version that is spoken here.
    #[error("Invalid version specified.")]
    InvalidVersion,
    /// `by` is none of the 14 values.
    #[error("Incorrect by field specified.")]
    IncorrectBy,
    /// `type` is missing, or a type that needs an argument has none.
    #[error("No request type/data specified.")]
    NoData,
    /// Version 6 without an argument (goaurrpc).
    #[error("No request data specified.")]
    NoData6,
    /// `type` is unknown.
    #[error("Incorrect request type specified.")]
    IncorrectType,
    /// `mode` is unknown (goaurrpc).
    #[error("Incorrect mode specified.")]
    IncorrectMode,
    /// A search for fewer than two characters.
    #[error("Query arg too small.")]
    TooSmall,
    /// More results than may be given; none are.
    #[error("Too many package results.")]
    TooMany,
    /// `callback` is no JavaScript name.
    #[error("Invalid callback name.")]
    InvalidCallback,
    /// More requests than a client may make in a day.
    #[error("Rate limit reached")]
    RateLimited,
    /// `arg` of a JSON body is not a list, where several are asked for.
    #[error("the 'arg' parameter must be of array type")]
    ArgNotList,
    /// `arg` of a JSON body is not a string, where one is asked for.
    #[error("the 'arg' parameter must be of string type")]
    ArgNotString,
    /// `by` of a JSON body is not a string.
    #[error("the 'by' parameter must be of string type")]
    ByNotString,
    /// The body was announced or looks like JSON and is not, or is no object.
    #[error("the body must be a JSON object")]
    BodyNotJson,
}

impl QueryError {
    /// Whether the request itself is malformed, which has a status of its own on the wire.
    pub fn is_malformed(self) -> bool {
        matches!(
            self,
            QueryError::ArgNotList
                | QueryError::ArgNotString
                | QueryError::ByNotString
                | QueryError::BodyNotJson
        )
    }

    /// Whether upstream sends it unsorted and without a tag.
    pub(crate) fn is_untagged(self) -> bool {
        self.is_malformed() || matches!(self, QueryError::InvalidCallback | QueryError::RateLimited)
    }
}
