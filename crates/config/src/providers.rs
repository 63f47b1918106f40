//! The file of identity providers that `oidc.providers_file` names.
//!
//! TOML -> [`read_providers`] -> [`ProviderSettings`], checked, with their secrets. No message has a secret.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use account::GroupName;
use issuers::{ClientSecret, ProviderSettings, is_safe_url};
use serde::Deserialize;

use super::environment::Environment;

/// Providers in a file.
const PROVIDERS_MAX: usize = 16;

/// Characters of a provider's name.
const NAME_CHARACTERS_MAX: usize = 40;

/// The file, as the operator writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    provider: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    title: Option<String>,
    issuer: String,
    client_id: String,
    client_secret: Option<String>,
    client_secret_file: Option<PathBuf>,
    client_secret_env: Option<String>,
    scopes: Option<Vec<String>>,
    #[serde(default)]
    make_users: bool,
    name_claim: Option<String>,
    groups_claim: Option<String>,
    #[serde(default)]
    groups: BTreeMap<String, String>,
    #[serde(default)]
    require: BTreeMap<String, String>,
    #[serde(default)]
    hosts: Vec<String>,
}

/// Reads a file of providers. A secret that is in no file or variable that it names may be in the directory of systemd's credentials, as
/// `oidc-NAME`.
///
/// # Errors
/// The file, or the file of a secret, cannot be read, or something in it is not what was expected.
pub fn read_providers(
    path: &Path,
    environment: &Environment,
) -> Result<Vec<ProviderSettings>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    let file: File = toml::from_str(&text).map_err(|error| {
        // The text beside the message would show a secret.
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        // Of a value of another type the message has the value, which may be a secret.
        let message = match error.message().split_once(", expected ") {
            Some((found, expected)) if found.starts_with("invalid ") => {
                format!("expected {expected}")
            }
            _ => error.message().to_owned(),
        };
        format!("line {line}: {message}")
    })?;
    if file.provider.len() > PROVIDERS_MAX {
        let count = file.provider.len();
        return Err(format!("it has {count} providers: at most {PROVIDERS_MAX} were expected"));
    }
    let mut providers: Vec<ProviderSettings> = Vec::new();
    for entry in file.provider {
        let called = format!("the provider `{}`", entry.name.escape_debug());
        let provider =
            entry.check(environment).map_err(|problem| format!("{called}: {problem}"))?;
        if providers.iter().any(|it| it.name == provider.name) {
            return Err(format!("{called} is there twice"));
        }
        if providers.iter().any(|it| it.issuer == provider.issuer) {
            return Err(format!("{called}: another one has the issuer {}", provider.issuer));
        }
        providers.push(provider);
    }
    Ok(providers)
}

impl Entry {
    fn check(self, environment: &Environment) -> Result<ProviderSettings, String> {
        let is_sign = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_short = (1..=NAME_CHARACTERS_MAX).contains(&self.name.len());
        if !is_short || !self.name.bytes().all(is_sign) {
            return Err(format!(
                "its name was expected to be 1 to {NAME_CHARACTERS_MAX} small letters, digits and hyphens"
            ));
        }
        if !is_safe_url(&self.issuer) || self.issuer.contains('?') {
            return Err(format!(
                "issuer = \"{}\": an https:// URL without user, query and fragment was expected (http:// on this machine alone)",
                self.issuer.escape_debug()
            ));
        }
        let is_word = |text: &str| {
            !text.is_empty() && text.len() <= 200 && text.bytes().all(|it| it.is_ascii_graphic())
        };
        if !is_word(&self.client_id) {
            return Err("client_id: up to 200 letters, digits and signs were expected".to_owned());
        }
        let defaults = ProviderSettings::default();
        let scopes = self.scopes.unwrap_or(defaults.scopes);
        if !scopes.iter().any(|scope| scope == "openid") || !scopes.iter().all(|it| is_word(it)) {
            return Err("scopes: a list of words with `openid` among them was expected".to_owned());
        }
        if !self.groups.is_empty() && self.groups_claim.is_none() {
            return Err("it has `groups`, and no `groups_claim` that they are read from".to_owned());
        }
        let group = |(value, group): (String, String)| match group.parse::<GroupName>() {
            Ok(group) => Ok((value, group)),
            Err(error) => Err(format!("groups: {error}")),
        };
        let groups = self.groups.into_iter().map(group).collect::<Result<_, _>>()?;
        let is_host = |host: &String| {
            let url = reqwest::Url::parse(&format!("https://{host}/"));
            url.is_ok_and(|url| url.host_str() == Some(host) && url.port().is_none())
        };
        if let Some(host) = self.hosts.iter().find(|host| !is_host(host)) {
            return Err(format!("hosts: `{}` is no name of a host", host.escape_debug()));
        }
        let given = [
            ("client_secret", self.client_secret.is_some()),
            ("client_secret_file", self.client_secret_file.is_some()),
            ("client_secret_env", self.client_secret_env.is_some()),
        ];
        let given: Vec<&str> = given.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
        if let [one, other, ..] = given[..] {
            return Err(format!("{one} and {other} are both set: expected one of them"));
        }
        let client_secret = match (self.client_secret, self.client_secret_env) {
            (Some(text), _) => Some(checked(text)?),
            (None, Some(name)) => Some(of_environment(&name, environment)?),
            (None, None) => of_file(&self.name, self.client_secret_file, environment)?,
        };
        Ok(ProviderSettings {
            title: self.title.unwrap_or_else(|| self.name.clone()),
            name: self.name,
            issuer: self.issuer,
            client_id: self.client_id,
            client_secret,
            scopes,
            make_users: self.make_users,
            name_claim: self.name_claim.unwrap_or(defaults.name_claim),
            groups_claim: self.groups_claim,
            groups,
            require: self.require,
            hosts: self.hosts,
        })
    }
}

fn checked(text: String) -> Result<ClientSecret, String> {
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err("its secret is empty".to_owned()),
        text => Ok(ClientSecret(text.to_owned())),
    }
}

/// The secret in a variable of the environment. Variables of ours are keys of the configuration.
fn of_environment(name: &str, environment: &Environment) -> Result<ClientSecret, String> {
    let shown = name.escape_debug();
    if name.starts_with("LARDER_") {
        return Err(format!(
            "client_secret_env = \"{shown}\": a name that does not begin with LARDER_ was expected, which is for keys of the configuration"
        ));
    }
    let text = environment.get(name).ok_or_else(|| {
        format!(
            "client_secret_env = \"{shown}\": the environment has no such variable, or it is empty"
        )
    })?;
    checked(text.to_owned())
}

/// The secret in the named file, else in that of systemd's credentials.
fn of_file(
    name: &str,
    file: Option<PathBuf>,
    environment: &Environment,
) -> Result<Option<ClientSecret>, String> {
    let of_systemd = || {
        let file = environment.credentials()?.join(format!("oidc-{name}"));
        Some(file).filter(|file| file.exists())
    };
    let Some(file) = file.or_else(of_systemd) else { return Ok(None) };
    let text = std::fs::read_to_string(&file)
        .map_err(|error| format!("client_secret_file `{}`: {error}", file.display()))?;
    checked(text).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<ProviderSettings>, String> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("providers.toml");
        std::fs::write(&path, text).expect("a file");
        let secret = directory.path().join("oidc-acme");
        std::fs::write(secret, "of systemd\n").expect("a file");
        let credentials = directory.path().to_str().expect("a path");
        let variables = [
            ("CREDENTIALS_DIRECTORY", credentials),
            ("COMPANY_SECRET", "of the environment"),
            ("EMPTY", ""),
        ];
        read_providers(&path, &variables.into_iter().collect())
    }

    const LEAST: &str =
        "[[provider]]\nname = \"acme\"\nissuer = \"https://id.example\"\nclient_id = \"larder\"\n";

    #[test]
    fn a_provider_needs_little() {
        let [provider] = &read(LEAST).expect("a provider")[..] else { panic!("one") };
        assert_eq!((provider.title.as_str(), provider.make_users), ("acme", false));
        assert_eq!(provider.client_secret, Some(ClientSecret("of systemd".to_owned())));
        assert_eq!(provider.scopes, ["openid", "profile", "email"]);
        // What the file names comes before what systemd has.
        let named = format!("{LEAST}client_secret_env = \"COMPANY_SECRET\"\n");
        let [provider] = &read(&named).expect("a provider")[..] else { panic!("one") };
        assert_eq!(provider.client_secret, Some(ClientSecret("of the environment".to_owned())));
        assert_eq!(read(""), Ok(Vec::new()));
        let full = format!(
            "{}title = \"Acme\"\nclient_secret = \"s3cret\"\nscopes = [\"openid\"]\nmake_users = true\n\
             name_claim = \"email\"\ngroups_claim = \"groups\"\nhosts = [\"keys.example\"]\n\
             groups = {{ \"Domain Users\" = \"staff\" }}\nrequire = {{ hd = \"acme.example\" }}\n",
            LEAST.replace("acme", "other")
        );
        let [provider] = &read(&full).expect("a provider")[..] else { panic!("one") };
        assert_eq!(provider.groups["Domain Users"].as_str(), "staff");
        assert!(!format!("{provider:?}").contains("s3cret"), "{provider:?}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |text: &str, words: &str| {
            let problem = read(text).expect_err(text);
            assert!(problem.contains(words) && !problem.contains("s3cret"), "{text}: {problem}");
        };
        let with = |line: &str| format!("{LEAST}{line}\n");
        check("x = 1", "line 1: unknown field `x`");
        check("[[provider]]\nname = \"acme\"\n", "missing field `issuer`");
        check(&with("client_secret = [\"s3cret\"]"), "line 5");
        let both = "client_secret = \"s3cret\"\nclient_secret_env = \"COMPANY_SECRET\"";
        check(&with(both), "client_secret and client_secret_env are both set");
        check(&with("client_secret_env = \"NOWHERE\""), "\"NOWHERE\": the environment has no such");
        check(&with("client_secret_env = \"EMPTY\""), "or it is empty");
        check(&with("client_secret_env = \"LARDER_X\""), "does not begin with LARDER_");
        check(&with("client_secret_file = \"/nowhere\""), "`/nowhere`");
        check(&with("scopes = [\"email\"]"), "`openid`");
        check(&with("groups = { a = \"b\" }"), "no `groups_claim`");
        check(&with("groups_claim = \"g\"\ngroups = { a = \"b c\" }"), "b c");
        check(&with("hosts = [\"https://keys.example\"]"), "https://keys.example");
        check(&LEAST.replace("acme", "Acme"), "small letters");
        check(&LEAST.replace("https://", "http://"), "https:// URL");
        check(&LEAST.replace("\"larder\"", "\"\""), "client_id");
        check(&format!("{LEAST}{LEAST}"), "is there twice");
        check(&format!("{LEAST}{}", LEAST.replace("acme", "two")), "another one has the issuer");
        check(&LEAST.repeat(17), "at most 16");
        assert!(read_providers(Path::new("/nowhere"), &Environment::default()).is_err());
    }
}
