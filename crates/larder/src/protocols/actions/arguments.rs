//! The arguments of actions: JSON -> a typed struct, and a description of the same struct.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::Failure;
use super::request::{cause_and_place, shortened};

/// The description of an argument.
#[derive(Debug)]
pub(crate) struct Argument {
    /// Its name.
    pub(crate) name: &'static str,
    /// The type of its value.
    pub(crate) kind: ArgumentKind,
    /// Whether a call without it is refused.
    pub(crate) is_required: bool,
    /// The lines of its doc comment; [`Argument::meaning`] joins them.
    pub(crate) doc: &'static [&'static str],
}

impl Argument {
    /// Its meaning in one line.
    pub(crate) fn meaning(&self) -> String {
        self.doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
    }
}

/// The JSON type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentKind {
    /// A string.
    Text,
    /// An array of strings.
    Texts,
    /// A whole number, not negative.
    Whole,
}

impl ArgumentKind {
    /// The name of the type for people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            ArgumentKind::Text => "string",
            ArgumentKind::Texts => "array of strings",
            ArgumentKind::Whole => "whole number",
        }
    }
}

/// The [`ArgumentKind`] of a field's Rust type.
pub(crate) trait Described {
    const KIND: ArgumentKind;
    const IS_REQUIRED: bool = true;
}

impl Described for String {
    const KIND: ArgumentKind = ArgumentKind::Text;
}

impl Described for Vec<String> {
    const KIND: ArgumentKind = ArgumentKind::Texts;
}

impl Described for u32 {
    const KIND: ArgumentKind = ArgumentKind::Whole;
}

impl<T: Described> Described for Option<T> {
    const KIND: ArgumentKind = T::KIND;
    const IS_REQUIRED: bool = false;
}

/// Defines the arguments of one action: the struct that they are parsed into and their description, from the same
/// lines.
macro_rules! arguments {
    (
        $(#[doc = $struct_doc:literal])*
        struct $Struct:ident {
            $(
                $(#[doc = $doc:literal])*
                $(#[serde($($serde:tt)*)])?
                $field:ident: $Type:ty,
            )*
        }
    ) => {
        $(#[doc = $struct_doc])*
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $Struct {
            $( $(#[doc = $doc])* $(#[serde($($serde)*)])? $field: $Type, )*
        }

        impl $Struct {
            const DESCRIBED: &'static [$crate::protocols::actions::arguments::Argument] = &[$(
                $crate::protocols::actions::arguments::Argument {
                    name: stringify!($field),
                    kind: <$Type as $crate::protocols::actions::arguments::Described>::KIND,
                    is_required: <$Type as $crate::protocols::actions::arguments::Described>::IS_REQUIRED,
                    doc: &[$($doc),*],
                },
            )*];
        }
    };
}
pub(crate) use arguments;

/// The arguments of one call as they were sent: JSON that is not parsed yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments<'request>(&'request RawValue);

impl<'request> Arguments<'request> {
    pub(crate) fn new(json: &'request RawValue) -> Arguments<'request> {
        Arguments(json)
    }

    /// Parses the arguments.
    ///
    /// # Errors
    /// The path of the first argument that is unknown, missing, repeated or of another type, and what was expected.
    pub(crate) fn read<T: DeserializeOwned>(self) -> Result<T, Failure> {
        let text = self.0.get();
        // serde could read a struct from an array too, which the descriptions do not mention.
        if !text.starts_with('{') {
            let text = shortened(text);
            return Err(Failure::refused(format!("`{text}`, expected an object of arguments")));
        }
        let mut json = serde_json::Deserializer::from_str(text);
        serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path = error.path().to_string();
            // Lines and columns would count within the arguments, which the client did not send on their own.
            let (cause, _) = cause_and_place(&error.into_inner());
            Failure::refused(match path.as_str() {
                "." => cause,
                path => format!("`{}`: {cause}", shortened(path)),
            })
        })
    }
}
