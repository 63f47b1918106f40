//! [`VerifiedLogIn`]: what a provider says of somebody who logs in, read from the claims of an identity token.
//!
//! claims, checked -> nonce, party, subject, what the operator requires -> name and groups here -> [`VerifiedLogIn`]

use std::collections::BTreeSet;

use account::{GroupName, NameError, ProvedIdentity};
use serde_json::{Map, Value};

use super::provider::ProviderSettings;
use super::{TokenRefusal, shown_claim};

/// Longest subject, in bytes, as OpenID Connect has it.
const SUBJECT_BYTES_MAX: usize = 255;

/// Most groups of one person.
const GROUPS_MAX: usize = 1_000;

/// Somebody whom a provider has logged in for this server. [`Provider::redeem`](super::Provider::redeem) makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedLogIn {
    provider: String,
    identity: ProvedIdentity,
    makes_users: bool,
}

fn invalid(reason: impl Into<String>) -> TokenRefusal {
    TokenRefusal::Invalid(reason.into())
}

impl VerifiedLogIn {
    /// Somebody whom no provider has logged in, for tests of decisions: nothing else calls this.
    pub fn without_checking(
        provider: &str,
        identity: ProvedIdentity,
        makes_users: bool,
    ) -> VerifiedLogIn {
        VerifiedLogIn { provider: provider.to_owned(), identity, makes_users }
    }

    /// Reads the claims of a token that is signed, for this client, and not over.
    pub(super) fn of(
        settings: &ProviderSettings,
        claims: &Map<String, Value>,
        nonce: &str,
    ) -> Result<VerifiedLogIn, TokenRefusal> {
        if claims.get("nonce").and_then(Value::as_str) != Some(nonce) {
            return Err(invalid("it was made for another log-in (`nonce`)"));
        }
        if let Some(party) = claims.get("azp")
            && party.as_str() != Some(&settings.client_id)
        {
            let found = shown_claim(party);
            return Err(invalid(format!("it was made for another client (`azp` is {found})")));
        }
        let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
        if subject.is_empty() || subject.len() > SUBJECT_BYTES_MAX {
            return Err(invalid("its subject (`sub`) is no text of 1 to 255 bytes"));
        }
        for (name, expected) in &settings.require {
            let is_it = match claims.get(name) {
                Some(Value::String(text)) => text == expected,
                Some(Value::Bool(flag)) => flag.to_string() == *expected,
                Some(Value::Array(items)) => items.iter().any(|item| item == expected),
                _ => false,
            };
            if !is_it {
                return Err(TokenRefusal::NotAdmitted(name.clone()));
            }
        }
        let email = claims.get("email").and_then(Value::as_str);
        let email = email.filter(|it| {
            it.len() <= 254 && claims.get("email_verified") == Some(&Value::Bool(true))
        });
        let (groups, not_groups) = groups(settings, claims)?;
        let identity = ProvedIdentity {
            issuer: settings.issuer.clone(),
            subject: subject.to_owned(),
            name: name(settings, claims),
            email: email.map(str::to_owned),
            groups,
            not_groups,
        };
        let (provider, makes_users) = (settings.name.clone(), settings.make_users);
        Ok(VerifiedLogIn { provider, identity, makes_users })
    }

    /// The name of the provider.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// Who it is.
    pub fn identity(&self) -> &ProvedIdentity {
        &self.identity
    }

    /// Whether a user is made, if there is none.
    pub fn makes_users(&self) -> bool {
        self.makes_users
    }
}

/// The name of a user who is made.
fn name(
    settings: &ProviderSettings,
    claims: &Map<String, Value>,
) -> Result<account::UserName, String> {
    let claim = &settings.name_claim;
    if claim == "email" && claims.get("email_verified") != Some(&Value::Bool(true)) {
        return Err("its `email` is not verified".to_owned());
    }
    match claims.get(claim) {
        None => Err(format!("it has no claim `{claim}` for the name of a user")),
        Some(Value::String(text)) => text.parse().map_err(|error: NameError| {
            let error = error.to_string();
            format!("its claim `{claim}`: {}", error.trim_end_matches('.'))
        }),
        Some(other) => {
            let found = shown_claim(other);
            Err(format!("its claim `{claim}` is {found}, and the name of a user was expected"))
        }
    }
}

/// The groups here that somebody is put into, and those that they are taken out of. Without the claim they are in none: providers
/// leave it out then.
fn groups(
    settings: &ProviderSettings,
    claims: &Map<String, Value>,
) -> Result<(BTreeSet<GroupName>, BTreeSet<GroupName>), TokenRefusal> {
    let Some(claim) = &settings.groups_claim else { return Ok(Default::default()) };
    let texts: Vec<&str> = match claims.get(claim) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(items)) if items.len() > GROUPS_MAX => {
            let count = items.len();
            return Err(invalid(format!(
                "it has {count} groups (`{claim}`), and at most {GROUPS_MAX} were expected"
            )));
        }
        Some(Value::Array(items)) => {
            let texts = items.iter().map(Value::as_str).collect::<Option<Vec<&str>>>();
            texts.ok_or_else(|| invalid(format!("its groups (`{claim}`) are not all texts")))?
        }
        Some(_) => return Err(invalid(format!("its groups (`{claim}`) are no list of texts"))),
    };
    let all: BTreeSet<GroupName> = settings.groups.values().cloned().collect();
    let has = settings.groups.iter().filter(|(value, _)| texts.contains(&value.as_str()));
    let has: BTreeSet<GroupName> = has.map(|(_, group)| group.clone()).collect();
    let not = all.difference(&has).cloned().collect();
    Ok((has, not))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings() -> ProviderSettings {
        let group = |text: &str| text.parse().expect("a group");
        ProviderSettings {
            name: "company".to_owned(),
            issuer: "https://id.example".to_owned(),
            client_id: "larder".to_owned(),
            groups_claim: Some("groups".to_owned()),
            groups: [("Developers", "dev"), ("Admins", "admin"), ("Engineers", "dev")]
                .map(|(value, here)| (value.to_owned(), group(here)))
                .into(),
            require: [("hd".to_owned(), "acme.example".to_owned())].into(),
            ..ProviderSettings::default()
        }
    }

    fn read(changes: Value) -> Result<VerifiedLogIn, TokenRefusal> {
        let mut claims = json!({
            "nonce": "n", "sub": "7", "preferred_username": "alice", "hd": "acme.example",
            "groups": ["Engineers", "Other"], "email": "a@acme.example", "email_verified": true,
        });
        for (name, value) in changes.as_object().expect("an object") {
            claims[name] = value.clone();
        }
        VerifiedLogIn::of(&settings(), claims.as_object().expect("an object"), "n")
    }

    fn names(groups: &BTreeSet<GroupName>) -> Vec<&str> {
        groups.iter().map(|group| group.as_str()).collect()
    }

    #[test]
    fn claims_become_a_user_and_groups() {
        let found = read(json!({})).expect("a log-in");
        let identity = found.identity();
        assert_eq!(identity.name.as_ref().map(|it| it.as_str()), Ok("alice"));
        assert_eq!(identity.email.as_deref(), Some("a@acme.example"));
        assert_eq!(
            (names(&identity.groups), names(&identity.not_groups)),
            (vec!["dev"], vec!["admin"])
        );
        let none = read(json!({"groups": null, "email_verified": "true"})).expect("a log-in");
        assert_eq!(names(&none.identity().not_groups), ["admin", "dev"]);
        assert_eq!(none.identity().email, None);
        assert!(read(json!({"azp": "larder", "groups": "Admins"})).is_ok());
        assert!(read(json!({"groups": vec!["x"; GROUPS_MAX]})).is_ok());
    }

    #[test]
    fn claims_that_are_refused() {
        for (changes, words) in [
            (json!({"nonce": "other"}), "it was made for another log-in (`nonce`)"),
            (json!({"nonce": null}), "it was made for another log-in (`nonce`)"),
            (json!({"nonce": ["n"]}), "it was made for another log-in (`nonce`)"),
            (json!({"azp": "other"}), "it was made for another client (`azp` is \"other\")"),
            (json!({"azp": ["larder"]}), "it was made for another client (`azp` is [\"larder\"])"),
            (json!({"sub": ""}), "its subject (`sub`) is no text of 1 to 255 bytes"),
            (json!({"sub": 7}), "its subject (`sub`) is no text of 1 to 255 bytes"),
            (json!({"sub": "x".repeat(256)}), "its subject (`sub`) is no text of 1 to 255 bytes"),
            (json!({"groups": [7]}), "its groups (`groups`) are not all texts"),
            (json!({"groups": {"Admins": true}}), "its groups (`groups`) are no list of texts"),
            (json!({"groups": 7}), "its groups (`groups`) are no list of texts"),
            (
                json!({"groups": vec!["x"; GROUPS_MAX + 1]}),
                "it has 1001 groups (`groups`), and at most 1000 were expected",
            ),
            (
                json!({"hd": "other.example"}),
                "the provider's settings require another value of the claim `hd`",
            ),
            (
                json!({"hd": null}),
                "the provider's settings require another value of the claim `hd`",
            ),
        ] {
            let refused = read(changes.clone()).expect_err(words).to_string();
            let start = "the identity token is not valid: ";
            assert_eq!(refused.strip_prefix(start).unwrap_or(&refused), words, "{changes}");
        }
    }

    /// Only a user who is to be made needs a name.
    #[test]
    fn names_that_no_user_can_have() {
        for name in [
            json!(7),
            json!(["alice"]),
            json!("a b"),
            json!("../x"),
            json!(""),
            json!("x".repeat(200)),
        ] {
            let found = read(json!({"preferred_username": name.clone()})).expect("a log-in");
            assert!(found.identity().name.is_err(), "{name}");
        }
    }
}
