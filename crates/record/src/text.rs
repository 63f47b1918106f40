//! What types have in common that are a checked text, such as a name.

/// Shows a type with `as_str` as its text. With the error of its `parse`, it is also read from a text by that.
#[macro_export]
macro_rules! checked_text {
    ($Type:ident) => {
        impl std::fmt::Display for $Type {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.as_str())
            }
        }

        impl std::fmt::Debug for $Type {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(formatter, "{}({:?})", stringify!($Type), self.as_str())
            }
        }
    };
    ($Type:ident, $Error:ty) => {
        $crate::checked_text!($Type);

        impl std::str::FromStr for $Type {
            type Err = $Error;

            fn from_str(text: &str) -> Result<$Type, $Error> {
                $Type::parse(text)
            }
        }
    };
}

/// Finds values of this type in maps by their text, of which they have the order and the hash.
#[macro_export]
macro_rules! found_by_text {
    ($Type:ident) => {
        impl std::borrow::Borrow<str> for $Type {
            fn borrow(&self) -> &str {
                self.as_str()
            }
        }
    };
}

/// Serializes a type as its text, and reads it with this function: `#[serde(try_from = "String", into = "String")]`.
#[macro_export]
macro_rules! stored_as_text {
    ($Type:ident, $read:path, $Error:ty) => {
        impl TryFrom<String> for $Type {
            type Error = $Error;

            fn try_from(text: String) -> Result<$Type, $Error> {
                $read(&text)
            }
        }

        impl From<$Type> for String {
            fn from(value: $Type) -> String {
                value.as_str().to_owned()
            }
        }
    };
}
