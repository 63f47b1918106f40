//! What an action takes: JSON -> a typed struct, and the same struct's description.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::Failure;
use super::request::{cause_and_place, shortened};

/// An argument, described.
#[derive(Debug)]
pub struct Argument {
    /// Its name.
    pub name: &'static str,
    /// What may be given.
    pub kind: ArgumentKind,
    /// Whether a call without it is refused.
    pub is_required: bool,
    /// Lines of the doc comment; [`Argument::meaning`] joins them.
    pub(super) doc: &'static [&'static str],
}

impl Argument {
    /// What it means, as one line.
    pub fn meaning(&self) -> String {
        self.doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
    }
}

/// The JSON type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    /// A string.
    Text,
    /// An array of strings.
    Texts,
    /// A whole number, not negative.
    Whole,
}

impl ArgumentKind {
    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            ArgumentKind::Text => "string",
            ArgumentKind::Texts => "array of strings",
            ArgumentKind::Whole => "whole number",
        }
    }
}

/// How a field's Rust type is described.
pub(super) trait Described {
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

/// The arguments of one action: the struct that they are read into, and their description, from the same lines.
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
            const DESCRIBED: &'static [$crate::action::Argument] = &[$(
                $crate::action::Argument {
                    name: stringify!($field),
                    kind: <$Type as $crate::action::arguments::Described>::KIND,
                    is_required: <$Type as $crate::action::arguments::Described>::IS_REQUIRED,
                    doc: &[$($doc),*],
                },
            )*];
        }
    };
}
pub(super) use arguments;

/// The arguments of one call as they came: JSON that nobody has looked into yet.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'request>(&'request RawValue);

impl<'request> Arguments<'request> {
    pub(super) fn new(json: &'request RawValue) -> Arguments<'request> {
        Arguments(json)
    }

    /// Reads them.
    ///
    /// # Errors
    /// The path of the first that is unknown, missing, given twice or of another type, and what was expected.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, Failure> {
        let text = self.0.get();
        // A struct could be read from an array, too, which no description mentions.
        if !text.starts_with('{') {
            let text = shortened(text);
            return Err(Failure::refused(format!("`{text}`, expected an object of arguments")));
        }
        let mut json = serde_json::Deserializer::from_str(text);
        serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path = error.path().to_string();
            // Lines and columns would be those of the arguments, which nobody sees by themselves.
            let (cause, _) = cause_and_place(&error.into_inner());
            Failure::refused(match path.as_str() {
                "." => cause,
                path => format!("`{}`: {cause}", shortened(path)),
            })
        })
    }
}
