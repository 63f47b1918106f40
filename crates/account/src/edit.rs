//! [`UserEdit`]: the changes of a user in a JSON object, with devpi's keys.
//!
//! An empty value (`null`, `false`, `0`, `""`, `[]`, `{}`) removes a key, as with devpi. Keys that only the server sets
//! (`username`, `indexes`, `created`, `modified`) are ignored, because devpi's client sends back all that it was shown.
//! `pwhash` and `pwsalt`, which devpi accepts from everybody, are unknown here.

use serde_json::{Map, Value};

use crate::{Password, PasswordError, User};

/// The changes of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserEdit {
    /// The new password; it is hashed where slow work belongs.
    pub password: Option<Password>,
    /// The rest.
    pub profile: ProfileEdit,
}

/// The changes of a user's profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileEdit {
    /// [`User::email`].
    pub email: Field<String>,
    /// [`User::title`].
    pub title: Field<String>,
    /// [`User::description`].
    pub description: Field<String>,
    /// [`User::custom_data`].
    pub custom_data: Field<Value>,
}

/// The change of one field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Field<T> {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is removed.
    Remove,
    /// It gets this value.
    Set(T),
}

/// What is allowed in an edit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EditRules {
    /// Whether unknown keys are refused, as in devpi's PUT, or ignored, as in its PATCH.
    pub refuse_unknown_keys: bool,
    /// Whether the empty password may be set, as with devpi.
    pub allow_empty_password: bool,
}

/// An object that cannot be taken as an edit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// Unknown keys, sorted; devpi's text.
    #[error("Unknown keys in user config: {}", .0.join(", "))]
    UnknownKeys(Vec<String>),
    /// A password that is not taken.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// Something else where a text belongs.
    #[error("`{key}` is not a text, and one was expected")]
    NotText {
        /// The key with the value.
        key: &'static str,
    },
    /// More than fits.
    #[error("`{key}` has {bytes} bytes: at most {bytes_max} were expected")]
    TooLong {
        /// The key with the value.
        key: &'static str,
        /// How long it is; of JSON, as written without blanks.
        bytes: usize,
        /// How long it may be.
        bytes_max: usize,
    },
}

const EMAIL_BYTES_MAX: usize = 320;
const TITLE_BYTES_MAX: usize = 1024;
const DESCRIPTION_BYTES_MAX: usize = 65_536;
const CUSTOM_DATA_BYTES_MAX: usize = 65_536;

const KNOWN: [&str; 9] = [
    "password",
    "email",
    "title",
    "description",
    "custom_data",
    "username",
    "indexes",
    "created",
    "modified",
];

impl UserEdit {
    /// Reads an edit.
    ///
    /// # Errors
    /// [`EditError`], for the first thing that is wrong.
    pub fn from_json(object: &Map<String, Value>, rules: EditRules) -> Result<UserEdit, EditError> {
        let unknown = object.keys().filter(|key| !KNOWN.contains(&key.as_str()));
        let mut unknown: Vec<String> = unknown.cloned().collect();
        if rules.refuse_unknown_keys && !unknown.is_empty() {
            unknown.sort_unstable();
            return Err(EditError::UnknownKeys(unknown));
        }
        let password = match object.get("password") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) if rules.allow_empty_password => {
                Some(Password::new_or_empty(text)?)
            }
            Some(Value::String(text)) => Some(Password::new(text)?),
            Some(_) => return Err(EditError::NotText { key: "password" }),
        };
        let custom_data = match object.get("custom_data") {
            None => Field::Keep,
            Some(value) if is_empty(value) => Field::Remove,
            Some(value) => {
                check_length("custom_data", value.to_string().len(), CUSTOM_DATA_BYTES_MAX)?;
                Field::Set(value.clone())
            }
        };
        let profile = ProfileEdit {
            email: text(object, "email", EMAIL_BYTES_MAX)?,
            title: text(object, "title", TITLE_BYTES_MAX)?,
            description: text(object, "description", DESCRIPTION_BYTES_MAX)?,
            custom_data,
        };
        Ok(UserEdit { password, profile })
    }

    /// Whether only the password changes: users may do that even if only some may modify users.
    pub fn is_password_only(&self) -> bool {
        self.password.is_some() && self.profile == ProfileEdit::default()
    }
}

impl ProfileEdit {
    /// Changes `user` accordingly.
    pub fn apply(&self, user: &mut User) {
        self.email.apply(&mut user.email);
        self.title.apply(&mut user.title);
        self.description.apply(&mut user.description);
        self.custom_data.apply(&mut user.custom_data);
    }
}

impl<T: Clone> Field<T> {
    fn apply(&self, field: &mut Option<T>) {
        match self {
            Field::Keep => {}
            Field::Remove => *field = None,
            Field::Set(value) => *field = Some(value.clone()),
        }
    }
}

fn text(
    object: &Map<String, Value>,
    key: &'static str,
    bytes_max: usize,
) -> Result<Field<String>, EditError> {
    match object.get(key) {
        None => Ok(Field::Keep),
        Some(value) if is_empty(value) => Ok(Field::Remove),
        Some(Value::String(text)) => {
            check_length(key, text.len(), bytes_max)?;
            Ok(Field::Set(text.clone()))
        }
        Some(_) => Err(EditError::NotText { key }),
    }
}

fn check_length(key: &'static str, bytes: usize, bytes_max: usize) -> Result<(), EditError> {
    if bytes > bytes_max {
        return Err(EditError::TooLong { key, bytes, bytes_max });
    }
    Ok(())
}

/// Whether Python takes the value for false.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::user;

    const PUT: EditRules = EditRules { refuse_unknown_keys: true, allow_empty_password: false };
    const PATCH: EditRules = EditRules { refuse_unknown_keys: false, allow_empty_password: false };
    const DEVPI: EditRules = EditRules { refuse_unknown_keys: false, allow_empty_password: true };

    fn edit(object: Value, rules: EditRules) -> Result<UserEdit, String> {
        let object = object.as_object().expect("an object");
        UserEdit::from_json(object, rules).map_err(|error| error.to_string())
    }

    #[test]
    fn empty_values_take_keys_away() {
        let mut alice = User {
            email: Some("old@host.example".into()),
            title: Some("T".into()),
            description: Some("D".into()),
            custom_data: Some(json!(1)),
            ..user("alice", &[])
        };
        let object = json!({"email": "new@host.example", "title": "", "custom_data": {}});
        edit(object, PATCH).expect("an edit").profile.apply(&mut alice);
        assert_eq!(alice.email.as_deref(), Some("new@host.example"));
        assert_eq!(alice.title, None);
        assert_eq!(alice.description.as_deref(), Some("D"));
        assert_eq!(alice.custom_data, None);
        for empty in [json!(null), json!(false), json!(0), json!(0.0), json!([])] {
            let field = edit(json!({"email": empty}), PATCH).expect("an edit").profile.email;
            assert_eq!(field, Field::Remove);
        }
    }

    #[test]
    fn what_a_client_was_shown_may_be_sent_back() {
        let shown =
            json!({"username": "alice", "indexes": {"dev": {}}, "created": "x", "title": "T"});
        for rules in [PUT, PATCH] {
            let found = edit(shown.clone(), rules).expect("an edit");
            assert_eq!(found.profile.title, Field::Set("T".into()));
            assert!(!found.is_password_only());
        }
    }

    #[test]
    fn unknown_keys_are_named_or_passed_over() {
        let object = json!({"b": 1, "pwhash": "x", "a": 2});
        let error = Err("Unknown keys in user config: a, b, pwhash".to_owned());
        assert_eq!(edit(object.clone(), PUT), error);
        assert_eq!(edit(object, PATCH), Ok(UserEdit::default()));
    }

    #[test]
    fn a_password_is_set_if_it_is_one() {
        let given = |value: Value, rules| {
            let edit = edit(json!({ "password": value }), rules)?;
            Ok(edit.password.map(|password| password.reveal().to_owned()))
        };
        assert_eq!(given(json!("x"), PUT), Ok(Some("x".into())));
        assert_eq!(given(json!(null), PUT), Ok(None));
        assert_eq!(given(json!(""), PATCH), Err("password needs to be set".to_owned()));
        assert_eq!(given(json!(""), DEVPI), Ok(Some(String::new())));
        let error = "`password` is not a text, and one was expected";
        assert_eq!(given(json!(1), DEVPI), Err(error.to_owned()));
        assert!(edit(json!({"password": "x"}), PATCH).expect("an edit").is_password_only());
    }

    #[test]
    fn fields_are_texts_of_bounded_length() {
        let error = "`email` is not a text, and one was expected";
        assert_eq!(edit(json!({"email": ["x"]}), PATCH), Err(error.to_owned()));
        let error = "`title` has 1025 bytes: at most 1024 were expected";
        assert_eq!(edit(json!({"title": "x".repeat(1025)}), PATCH), Err(error.to_owned()));
        let error = "`custom_data` has 65537 bytes: at most 65536 were expected";
        let object = json!({"custom_data": "x".repeat(65_535)});
        assert_eq!(edit(object, PATCH), Err(error.to_owned()));
    }
}
