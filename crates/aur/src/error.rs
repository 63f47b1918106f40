//! Why a query is refused, in the words that clients expect.

/// A refused query. The texts are upstream's to the letter, as clients compare them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// `v` is missing.
    #[error("Please specify an API version.")]
    NoVersion,
    /// `v` is not a supported version.
    #[error("Invalid version specified.")]
    InvalidVersion,
    /// `by` is not one of the values.
    #[error("Incorrect by field specified.")]
    IncorrectBy,
    /// `type` is missing, or its argument is.
    #[error("No request type/data specified.")]
    NoData,
    /// A version 6 request has no argument (goaurrpc).
    #[error("No request data specified.")]
    NoData6,
    /// `type` is unknown.
    #[error("Incorrect request type specified.")]
    IncorrectType,
    /// `mode` is unknown (goaurrpc).
    #[error("Incorrect mode specified.")]
    IncorrectMode,
    /// The argument of a search has fewer than two characters.
    #[error("Query arg too small.")]
    TooSmall,
    /// The query finds more results than an answer may have, so none are sent.
    #[error("Too many package results.")]
    TooMany,
    /// A version 6 request searches for more different words than it may.
    #[error("Too many words specified: at most 32 different ones are searched for.")]
    TooManyWords,
    /// A parameter that upstream does not have holds a value that it cannot have; the answer's text names it.
    #[error("Incorrect parameter specified.")]
    BadOption,
    /// The search has cost more than one may.
    #[error(
        "The search takes too long: expected a regular expression with fewer alternatives, or fewer results."
    )]
    TooCostly,
    /// More packages are found than fields that are not in a snapshot are given for.
    #[error("Too many packages for these fields: expected at most 200, such as with `limit=200`.")]
    TooManyAdded,
    /// `callback` is not a JavaScript name.
    #[error("Invalid callback name.")]
    InvalidCallback,
    /// The client has sent more requests than it may in a day.
    #[error("Rate limit reached")]
    RateLimited,
    /// `arg` in a JSON body is not a list, though the type takes several arguments.
    #[error("the 'arg' parameter must be of array type")]
    ArgNotList,
    /// `arg` in a JSON body is not a string, though the type takes one argument.
    #[error("the 'arg' parameter must be of string type")]
    ArgNotString,
    /// `by` in a JSON body is not a string.
    #[error("the 'by' parameter must be of string type")]
    ByNotString,
    /// The body is declared as JSON or looks like JSON, but is not a JSON object.
    #[error("the body must be a JSON object")]
    BodyNotJson,
}

impl QueryError {
    /// Whether the request itself is malformed. Such errors have a status of their own.
    pub fn is_malformed(self) -> bool {
        matches!(
            self,
            QueryError::ArgNotList
                | QueryError::ArgNotString
                | QueryError::ByNotString
                | QueryError::BodyNotJson
        )
    }

    /// Whether upstream sends this error with unsorted keys and without an entity tag.
    pub(crate) fn is_untagged(self) -> bool {
        self.is_malformed() || matches!(self, QueryError::InvalidCallback | QueryError::RateLimited)
    }
}
