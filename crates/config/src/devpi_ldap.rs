//! Moving from devpi-ldap: its YAML file -> the equivalent `[ldap]` section.
//!
//! Each option becomes a key, or a comment that says why it has none. The output is checked as a configuration file is, so Larder
//! accepts it. The password of the search is printed: the output is a configuration file and needs it.

use serde_json::{Map, Value};

use super::key::Kind;
use super::problem::shown;
use super::{keys, resolve};

type Options = Map<String, Value>;

/// The `[ldap]` section for a configuration of devpi-ldap, which is YAML.
///
/// # Errors
/// A line for each option that devpi-ldap does not have, whose value cannot be used, or without which nobody can log in; or why the text
/// is not such a file.
pub fn import_devpi_ldap(yaml: &str) -> Result<String, String> {
    let value: Value =
        serde_saphyr::from_str(yaml).map_err(|error| format!("not valid YAML: {error}"))?;
    let options = value.get("devpi-ldap").and_then(Value::as_object);
    let options = options.ok_or("expected a section `devpi-ldap` with its options")?;
    let mut import = Import::default();
    import.servers(options);
    import.users(options);
    if let Some(search) = import.section(options, "group_search") {
        import.search("group", &search);
        import.set(
            "groups",
            Value::from(vec!["*=*"]),
            "groups keep their names, as in devpi; `admin` would need a line of its own",
        );
    }
    for (name, value) in options {
        match name.as_str() {
            "url" | "server_pool" | "tls" | "user_template" | "user_search" | "group_search" => {}
            "timeout" => import.set("timeout_seconds", value.clone(), ""),
            "referrals" => import.leave_out("referrals", "none is followed"),
            "reject_as_unknown" => import.leave_out(
                "reject_as_unknown",
                "users with a password here are never asked about, so there is no second opinion",
            ),
            other => import.problems.push(format!("unknown option `{other}`")),
        }
    }
    import.bind();
    if !import.problems.is_empty() {
        return Err(import.problems.join("\n"));
    }
    let left_out = import.left_out.iter().map(|line| format!("# {line}\n")).collect::<String>();
    let made = format!("[ldap]\n{}{left_out}", import.lines.concat());
    let problems = resolve::ldap_problems(&made);
    if problems.is_empty() { Ok(made) } else { Err(problems.join("\n")) }
}

#[derive(Default)]
struct Import {
    lines: Vec<String>,
    left_out: Vec<String>,
    problems: Vec<String>,
    /// DN and password of each search, with its name.
    binds: Vec<(&'static str, Value, Value)>,
}

impl Import {
    /// Writes a key of `[ldap]`, with a remark.
    fn set(&mut self, name: &str, value: Value, remark: &str) {
        let path = format!("ldap.{name}");
        let key = keys().find(|key| key.path() == path).expect("a key of the table");
        let texts: Vec<String> = match &value {
            Value::Array(items) => items.iter().map(text).collect(),
            value => vec![text(value)],
        };
        match (key.check)(&texts, key.kind) {
            Ok(texts) => {
                let remark =
                    if remark.is_empty() { String::new() } else { format!("# {remark}\n") };
                // The canonical text of a secret is masked.
                let texts = if key.kind == Kind::Secret { vec![text(&value)] } else { texts };
                self.lines.push(format!("{remark}{name} = {}\n", key.kind.toml(&texts)));
            }
            Err(expected) if key.kind == Kind::Secret => {
                self.problems.push(format!("{name} = {}: {expected}", shown(key, &texts)));
            }
            Err(expected) => self.problems.push(format!("{name} = {value}: {expected}")),
        }
    }

    fn leave_out(&mut self, name: &str, reason: &str) {
        // A comment has one line.
        let name = name.replace(char::is_control, " ");
        self.left_out.push(format!("{name}: no counterpart; {reason}"));
    }

    fn section(&mut self, options: &Options, name: &str) -> Option<Options> {
        match options.get(name)? {
            Value::Object(section) => Some(section.clone()),
            _ => {
                self.problems.push(format!("{name}: expected a section with its options"));
                None
            }
        }
    }

    fn servers(&mut self, options: &Options) {
        let mut servers = Vec::new();
        match (options.get("url"), options.get("server_pool")) {
            (Some(url), None) => servers.push((text(url), options.get("tls").cloned())),
            (None, Some(Value::Array(pool))) if !pool.is_empty() => {
                for server in pool {
                    servers.push((text(&server["url"]), server.get("tls").cloned()));
                    for name in server.as_object().into_iter().flat_map(Map::keys) {
                        if !["url", "tls"].contains(&name.as_str()) {
                            let problem = format!("server_pool: unknown option `{name}`");
                            self.problems.push(problem);
                        }
                    }
                }
                if options.contains_key("tls") {
                    self.leave_out("tls", "with `server_pool`, each server has its own");
                }
            }
            (None, Some(_)) => {
                self.problems.push("server_pool: expected a list of one server or more".into());
            }
            _ => self.problems.push("expected `url`, or a list `server_pool`, and not both".into()),
        }
        if servers.iter().any(|(url, _)| url.is_empty()) {
            self.problems.push("expected a `url` for each server".into());
        } else if !servers.is_empty() {
            let urls = servers.iter().map(|(url, _)| url.as_str()).collect::<Vec<_>>();
            // devpi-ldap takes a name alone, too.
            let urls = urls.iter().map(|url| match url.contains("://") {
                true => (*url).to_owned(),
                false => format!("ldap://{url}"),
            });
            let remark = "ldap:// is encrypted by StartTLS here, and certificates are checked; devpi-ldap does neither by default";
            self.set("urls", Value::from(urls.collect::<Vec<_>>()), remark);
        }
        let tls = servers.into_iter().filter_map(|(_, tls)| tls).collect::<Vec<_>>();
        let mut files: Vec<String> =
            tls.iter().filter_map(|tls| tls.get("ca_certs_file")).map(text).collect();
        files.sort();
        files.dedup();
        if files.len() > 1 {
            self.problems.push(format!("tls: {}: expected one ca_certs_file", files.join(", ")));
        } else if let Some(file) = files.pop() {
            self.set("ca_file", Value::from(file), "");
        }
        let mut others: Vec<&String> =
            tls.iter().filter_map(Value::as_object).flat_map(Map::keys).collect();
        others.sort();
        others.dedup();
        for name in others.into_iter().filter(|name| *name != "ca_certs_file") {
            let reason = match name.as_str() {
                "validate" => "certificates are always checked",
                _ => "TLS is configured by ca_file alone",
            };
            self.leave_out(&format!("tls: {name}"), reason);
        }
    }

    fn users(&mut self, options: &Options) {
        match (options.get("user_template"), self.section(options, "user_search")) {
            (Some(template), None) => {
                self.set("user_dn", template.clone(), "names are in lower case");
            }
            (None, Some(search)) => self.search("user", &search),
            _ => {
                self.problems.push("expected `user_template` or `user_search`, and not both".into())
            }
        }
    }

    /// The options of `user_search` or `group_search`.
    fn search(&mut self, kind: &'static str, search: &Options) {
        for needed in ["base", "filter", "attribute_name"] {
            if !search.contains_key(needed) {
                self.problems.push(format!("{kind}_search: `{needed}` is missing"));
            }
        }
        for (name, value) in search {
            match name.as_str() {
                "base" | "filter" => self.set(&format!("{kind}_{name}"), value.clone(), ""),
                "scope" => {
                    let scope = match value.as_str() {
                        Some("base-object") => "base",
                        Some("single-level") => "one",
                        Some("whole-subtree") => "subtree",
                        _ => {
                            self.problems.push(format!("{kind}_search: scope = {value}: expected base-object, single-level or whole-subtree"));
                            continue;
                        }
                    };
                    self.set(&format!("{kind}_scope"), Value::from(scope), "");
                }
                "attribute_name" if kind == "group" => {
                    self.set("group_attribute", value.clone(), "");
                }
                "attribute_name" => {
                    let is_dn = ["dn", "distinguishedName", "entryDN"].map(str::to_lowercase);
                    let is_dn = is_dn.contains(&text(value).to_lowercase());
                    let (name, reason) = (
                        format!("user_search: attribute_name = {value}"),
                        "the entry's own DN is used",
                    );
                    match is_dn {
                        true => self.leave_out(&name, reason),
                        false => self.leave_out(
                            &name,
                            "the entry's own DN is used: look whether that is the same",
                        ),
                    }
                }
                "userdn" => {
                    let password = search.get("password").cloned().unwrap_or_default();
                    self.binds.push((kind, value.clone(), password));
                }
                "password" => {}
                other => self.problems.push(format!("{kind}_search: unknown option `{other}`")),
            }
        }
    }

    /// The DN that searches are made with.
    fn bind(&mut self) {
        let binds = std::mem::take(&mut self.binds);
        let Some((kind, dn, password)) = binds.first().cloned() else { return };
        if let Some((other, _, _)) = binds.iter().find(|(_, it, _)| *it != dn) {
            self.leave_out(
                &format!("{other}_search: userdn"),
                &format!("both searches are made as that of {kind}_search"),
            );
        }
        self.set("bind_dn", dn, "");
        // Without a password, the directory takes a bind for an anonymous one. A number may have been spelled in another way.
        if password.is_string() {
            self.set("bind_password", password, "bind_password_file names a file with it instead");
        } else {
            self.problems.push(format!("{kind}_search: password: expected a text in quotes"));
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Environment, Flags, Inputs};

    /// The output is as expected, and a configuration that larder takes.
    #[track_caller]
    fn check(yaml: &str, expected: &str) {
        let toml = import_devpi_ldap(yaml).expect(yaml);
        assert_eq!(toml, expected, "{toml}");
        load(&toml);
    }

    /// Larder takes it, and asks a directory.
    #[track_caller]
    fn load(toml: &str) -> crate::Ldap {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("config.toml");
        std::fs::write(&path, toml).expect("a file");
        let environment: Environment = [("HOME", "/home/ada")].into_iter().collect();
        let inputs = Inputs { file: Some(path), flags: Flags::default(), environment };
        let ldap = inputs.load().expect(toml).config.ldap;
        assert!(ldap.directory().is_some(), "{toml}");
        ldap
    }

    /// The examples of devpi-ldap's own documentation.
    #[test]
    fn its_own_examples() {
        check(
            "---\ndevpi-ldap:\n  url: ldap://example.com\n  user_template: CN={username},CN=Partition1,DC=Example,DC=COM\n  \
             group_search:\n    base: CN=Partition1,DC=Example,DC=COM\n    filter: (&(objectClass=group)(member={userdn}))\n    \
             attribute_name: CN\n",
            "[ldap]\n\
             # ldap:// is encrypted by StartTLS here, and certificates are checked; devpi-ldap does neither by default\n\
             urls = [\"ldap://example.com\"]\n\
             # names are in lower case\n\
             user_dn = \"CN={username},CN=Partition1,DC=Example,DC=COM\"\n\
             group_attribute = \"CN\"\n\
             group_base = \"CN=Partition1,DC=Example,DC=COM\"\n\
             group_filter = \"(&(objectClass=group)(member={userdn}))\"\n\
             # groups keep their names, as in devpi; `admin` would need a line of its own\n\
             groups = [\"*=*\"]\n",
        );
        check(
            "devpi-ldap:\n  server_pool:\n    - url: ldap://server1.example.com:389\n    - url: ldaps://server3.example.com:636\n      \
             tls:\n        validate: 2 # ssl.CERT_REQUIRED\n        ca_certs_file: /etc/ssl/certs/ca-certificates.crt\n  \
             timeout: 3\n  referrals: false\n  user_search:\n    base: DC=COM\n    filter: (&(objectClass=user)(sAMAccountName={username}))\n    \
             scope: single-level\n    attribute_name: distinguishedName\n    userdn: CN=search,DC=COM\n    password: \"a'b\"\n",
            "[ldap]\n\
             # ldap:// is encrypted by StartTLS here, and certificates are checked; devpi-ldap does neither by default\n\
             urls = [\"ldap://server1.example.com\", \"ldaps://server3.example.com\"]\n\
             ca_file = \"/etc/ssl/certs/ca-certificates.crt\"\n\
             user_base = \"DC=COM\"\n\
             user_filter = \"(&(objectClass=user)(sAMAccountName={username}))\"\n\
             user_scope = \"one\"\n\
             timeout_seconds = 3\n\
             bind_dn = \"CN=search,DC=COM\"\n\
             # bind_password_file names a file with it instead\n\
             bind_password = \"a'b\"\n\
             # tls: validate: no counterpart; certificates are always checked\n\
             # user_search: attribute_name = \"distinguishedName\": no counterpart; the entry's own DN is used\n\
             # referrals: no counterpart; none is followed\n",
        );
    }

    /// Values of every kind, most of which an option does not take.
    fn values() -> Vec<Value> {
        vec![
            json!(null),
            json!(""),
            json!(" "),
            json!("a"),
            json!("two words "),
            json!("a 'b' \"c\" \\ # \u{7f} \n[x]\r\n"),
            json!("\u{1}"),
            json!("uid={username}"),
            json!("(uid={username})"),
            json!("(|(uid={username})(mail={username}))"),
            json!("(member={userdn})"),
            json!("(cn=a)"),
            json!("{}"),
            json!("ldaps://a:1"),
            json!("whole-subtree"),
            json!(0),
            json!(5),
            json!(true),
            json!([]),
            json!(["a"]),
            json!({}),
            json!({"url": "a", "tls": {"a\nb": 1, "ca_certs_file": "x\ny", "validate": "\u{7f}"}}),
            json!([{"url": "a", "tls": {"ca_certs_file": "x"}}, {"url": "b"}, {"url": ["c"]}]),
            json!([{"url": "a"}, {"url": null}]),
        ]
    }

    /// Whatever is taken is a valid configuration.
    #[test]
    fn any_values() {
        let search = |filter: &str| json!({"base": "x", "filter": filter, "attribute_name": "dn", "userdn": "c", "password": "d"});
        let whole = json!({
            "url": "a", "user_search": search("(uid={username})"), "group_search": search("(member={userdn})"), "tls": {},
            "timeout": 3, "referrals": true, "reject_as_unknown": true
        });
        let mut taken = 0;
        let mut check = |options: &Value| {
            if let Ok(toml) = import_devpi_ldap(&json!({"devpi-ldap": options}).to_string()) {
                load(&toml);
                taken += 1;
            }
        };
        let paths = whole.as_object().expect("options").iter().flat_map(|(name, value)| {
            let inner = value.as_object().into_iter().flat_map(Map::keys);
            let inner = inner.map(move |key| format!("/{name}/{key}"));
            std::iter::once(format!("/{name}")).chain(inner)
        });
        for path in paths.chain(["/server_pool", "/user_template"].map(str::to_owned)) {
            for value in &values() {
                let mut options = whole.clone();
                match path.as_str() {
                    "/server_pool" => drop(options.as_object_mut().map(|it| it.remove("url"))),
                    "/user_template" => {
                        drop(options.as_object_mut().map(|it| it.remove("user_search")));
                    }
                    _ => {}
                }
                match options.pointer_mut(&path) {
                    Some(place) => place.clone_from(value),
                    None => options[&path[1..]] = value.clone(),
                }
                check(&options);
            }
        }
        assert!(taken > 100, "{taken}");
    }

    #[test]
    fn a_password_with_blanks_is_taken() {
        let file = "devpi-ldap: {url: a, user_search: {base: x, filter: 'uid={username}', attribute_name: dn, userdn: c, password: a b}}";
        let ldap = load(&import_devpi_ldap(file).expect(file));
        assert_eq!(ldap.bind_password.as_ref().map(crate::Secret::reveal), Some("a b"));
    }

    #[test]
    fn what_is_no_such_file() {
        for (yaml, expected) in [
            ("devpi-ldap: [", "not valid YAML"),
            ("ldap: {}", "expected a section `devpi-ldap`"),
            ("devpi-ldap: {}", "expected `url`"),
            ("devpi-ldap: {url: a, user_template: 'x'}", "user_dn = \"x\": a DN with `{username}`"),
            ("devpi-ldap: {url: a, user_template: 'x={username}', uri: b}", "unknown option `uri`"),
            ("devpi-ldap: {url: a, user_search: {base: x}}", "user_search: `filter` is missing"),
            ("devpi-ldap: {url: 'ftp://a', user_template: 'x={username}'}", "urls = [\"ftp://a\"]"),
            (
                "devpi-ldap: {server_pool: [], user_template: 'x={username}'}",
                "server_pool: expected",
            ),
            ("devpi-ldap: {server_pool: [a], user_template: 'x={username}'}", "expected a `url`"),
            ("devpi-ldap: {url: , user_template: 'x={username}'}", "expected a `url`"),
            (
                "devpi-ldap: {url: a, user_template: 'x={username}', group_search: {base: x, filter: cn=a, attribute_name: cn}}",
                "ldap.group_filter = \"cn=a\" finds the same groups for every user",
            ),
            (
                "devpi-ldap: {url: a, user_search: {base: x, filter: 'a={username}', attribute_name: dn, userdn: c, password: 0123}}",
                "user_search: password: expected a text in quotes",
            ),
        ] {
            let error = import_devpi_ldap(yaml).expect_err(yaml);
            assert!(error.contains(expected), "{yaml}: {error}");
        }
    }
}
