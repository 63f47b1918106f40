//! The changes to clients' files, whether those exist already or not.

use super::*;

fn endpoints() -> Endpoints {
    let url = |text: &str| text.parse().expect("a URL");
    Endpoints {
        name: "alice-dev".to_owned(),
        simple: url("http://index.example:8080/alice/dev/+simple/"),
        submit: Some(url("http://index.example:8080/alice/dev/")),
        index: url("http://index.example:8080/alice/dev/"),
        user: "bob".to_owned(),
        groups: Vec::new(),
    }
}

fn bob() -> Credentials {
    Credentials::new("bob", "p@ss/word").expect("credentials")
}

#[track_caller]
fn check(found: String, expected: &str) {
    assert_eq!(found, expected);
}

#[test]
fn pip_is_told_of_the_index_and_of_a_host_without_tls() {
    check(
        pip("[global]\ntimeout = 5\n", &endpoints(), None, None),
        "[global]\ntimeout = 5\nindex-url = http://index.example:8080/alice/dev/+simple/\n\
         trusted-host = index.example:8080\n",
    );
    let known = "[global]\nindex-url = x\ntrusted-host = other\n";
    check(
        pip(known, &endpoints(), Some(&bob()), None),
        "[global]\nindex-url = http://bob:p%40ss%2Fword@index.example:8080/alice/dev/+simple/\n\
         trusted-host =\n    other\n    index.example:8080\n",
    );
}

#[test]
fn settings_that_override_pips_global_section_are_reported() {
    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(overruled(&pip(text, &endpoints(), None, None)).as_deref(), expected);
    }
    check("[global]\nindex-url = x\n[install]\ntimeout = 5\n", None);
    check(
        "[install]\nindex_url = x\n[download]\n    index-url: y\n",
        Some(
            "the index-url in [install] and [download] stays, and overrides this one there: remove it if that is not what you want",
        ),
    );
}

#[test]
fn uv_has_one_default() {
    let text = "index-url = \"x\"\noffline = false\n\n[[index]]\nname = \"other\"\nurl = \"http://x/\"\ndefault = true # old\n";
    let expected = "offline = false\n\n[[index]]\nname = \"other\"\nurl = \"http://x/\"\n\n[[index]]\n\
         name = \"alice-dev\"\nurl = \"http://index.example:8080/alice/dev/+simple/\"\n\
         publish-url = \"http://index.example:8080/alice/dev/\"\ndefault = true\n";
    let once = uv(text, &endpoints(), &Logins::default(), true).expect("TOML");
    check(once.clone(), expected);
    check(uv(&once, &endpoints(), &Logins::default(), true).expect("TOML"), expected);
    assert!(uv("index = 5", &endpoints(), &Logins::default(), false).is_err());
    assert!(uv("= 5", &endpoints(), &Logins::default(), false).is_err());
}

#[test]
fn beside_the_public_index_uv_asks_it_only_for_what_a_project_names() {
    let text =
        "index-url = \"x\"\n\n[[index]]\nname = \"other\"\nurl = \"http://x/\"\ndefault = true\n";
    let ours = "name = \"alice-dev\"\nurl = \"http://index.example:8080/alice/dev/+simple/\"\n\
         publish-url = \"http://index.example:8080/alice/dev/\"\nexplicit = true\n";
    let once = uv(text, &endpoints(), &Logins::default(), false).expect("TOML");
    check(once.clone(), &format!("{text}\n[[index]]\n{ours}"));
    check(
        uv(&once, &endpoints(), &Logins::default(), false).expect("TOML"),
        &format!("{text}\n[[index]]\n{ours}"),
    );
    // The index that was the only one before no longer is.
    let only = uv("", &endpoints(), &Logins::default(), true).expect("TOML");
    check(
        uv(&only, &endpoints(), &Logins::default(), false).expect("TOML"),
        &format!("[[index]]\n{ours}"),
    );
}

#[test]
fn a_project_names_the_index_without_credentials() {
    let text =
        "[project]\nname = \"app\" # mine\n\n[tool.uv.sources]\nlib = { index = \"alice-dev\" }\n";
    let uv = "\n[[tool.uv.index]]\nname = \"alice-dev\"\nurl = \"http://index.example:8080/alice/dev/+simple/\"\n\
         publish-url = \"http://index.example:8080/alice/dev/\"\nexplicit = true\n";
    let once = uv_project(text, &endpoints(), false).expect("TOML");
    check(once.clone(), &format!("{text}{uv}"));
    check(uv_project(&once, &endpoints(), false).expect("TOML"), &once);
    let poetry = "\n[[tool.poetry.source]]\nname = \"alice-dev\"\n\
         url = \"http://index.example:8080/alice/dev/+simple/\"\npriority = \"explicit\"\n";
    let both = poetry_project(&once, &endpoints(), false).expect("TOML");
    check(both.clone(), &format!("{once}{poetry}"));
    check(poetry_project(&both, &endpoints(), false).expect("TOML"), &both);
    assert!(uv_project("tool = 5", &endpoints(), false).is_err());
    assert!(poetry_project("[tool.poetry]\nsource = 5", &endpoints(), false).is_err());
}

#[test]
fn what_twine_knows_of_a_server_opens_it() {
    let text = "[distutils]\nindex-servers = a b\n[a]\nrepository = http://h:1/x/u/i/\nusername = bob\npassword = pw\n\
         [b]\nrepository = http://h:2/u/i/\nusername = __token__\npassword = larder_x\n";
    #[track_caller]
    fn check(text: &str, server: &str, expected: Option<&str>) {
        let found = credentials_in_pypirc(text, &server.parse().expect("a URL"));
        let found = found.map(|(section, user, secret)| format!("{section} {user} {secret}"));
        assert_eq!(found.as_deref(), expected, "{server}");
    }
    check(text, "http://h:1/x", Some("a bob pw"));
    check(text, "http://h:1/", Some("a bob pw"));
    check(text, "http://h:2", Some("b __token__ larder_x"));
    for server in ["http://h:3", "https://h:1/", "http://h:1/y", "http://i:1/", "http://h:2/u/i/j"]
    {
        check(text, server, None);
    }
    check("[a]\nrepository = http://h:1/\n", "http://h:1", None);
    check("", "http://h:1", None);
}

#[test]
fn twine_keeps_its_other_servers() {
    let submit = endpoints().submit.expect("a place");
    check(
        twine(
            "[distutils]\nindex-servers = other\n\n[other]\nusername = x\n",
            "alice-dev",
            &submit,
            &Logins::alike(Some(bob())),
            None,
        ),
        "[distutils]\nindex-servers =\n    other\n    alice-dev\n\n[other]\nusername = x\n\n[alice-dev]\n\
         repository = http://index.example:8080/alice/dev/\nusername = bob\npassword = p@ss/word\n",
    );
}

#[test]
fn twine_keeps_the_servers_that_it_knows_by_itself() {
    let submit = endpoints().submit.expect("a place");
    let none = Logins::default();
    let servers = "index-servers =\n    pypi\n    testpypi\n    alice-dev\n";
    let ours = "[alice-dev]\nrepository = http://index.example:8080/alice/dev/\n";
    check(twine("", "alice-dev", &submit, &none, None), &format!("[distutils]\n{servers}\n{ours}"));
    check(
        twine("[pypi]\nusername = x\n", "alice-dev", &submit, &none, None),
        &format!("[pypi]\nusername = x\n\n[distutils]\n{servers}\n{ours}"),
    );
}

#[test]
fn poetry_gets_a_table_of_its_own() {
    let keys = [("url", "http://x/")];
    check(
        table("cache-dir = \"/x\"\n", ["repositories", "alice-dev"], &keys).expect("TOML"),
        "cache-dir = \"/x\"\n\n[repositories.alice-dev]\nurl = \"http://x/\"\n",
    );
    check(
        table("[repositories]\nother.url = \"y\"\n", ["repositories", "alice-dev"], &keys)
            .expect("TOML"),
        "[repositories]\nother.url = \"y\"\n\n[repositories.alice-dev]\nurl = \"http://x/\"\n",
    );
}

/// A login that only reads, and another one that uploads.
fn two_logins() -> Logins {
    let token = |text: &str| Credentials::new("__token__", text).expect("credentials");
    Logins { reads: Some(token("r")), uploads: Some(token("u")), is_read_only: false }
}

#[test]
fn what_uploads_has_a_token_of_its_own() {
    let (endpoints, logins) = (endpoints(), two_logins());
    check(
        uv("", &endpoints, &logins, false).expect("TOML"),
        "[[index]]\nname = \"alice-dev\"\nurl = \"http://__token__:r@index.example:8080/alice/dev/+simple/\"\n\
         publish-url = \"http://__token__:u@index.example:8080/alice/dev/\"\nexplicit = true\n",
    );
    let basic = "[http-basic.alice-dev]\nusername = \"__token__\"\npassword = \"r\"\n";
    let both = format!("{basic}\n[pypi-token]\nalice-dev = \"u\"\n");
    let auth = |text: &str, logins: &Logins| poetry_auth(text, "alice-dev", logins, None);
    check(auth("", &logins).expect("TOML"), &both);
    check(auth(&both, &logins).expect("TOML"), &both);
    assert_eq!(pypi_token(&both, "alice-dev").as_deref(), Some("u"));
    // Nothing that uploads stays with one login that only reads, nor beside one for both.
    let reads = Logins { uploads: None, is_read_only: true, ..logins.clone() };
    check(auth(&both, &reads).expect("TOML"), basic);
    let other = format!("{both}pypi = \"x\"\n");
    let alike = Logins::alike(logins.reads.clone());
    check(auth(&other, &alike).expect("TOML"), &format!("{basic}\n[pypi-token]\npypi = \"x\"\n"));
    let submit = endpoints.submit.expect("a place");
    let pypirc = "[distutils]\nindex-servers = alice-dev\n\n[alice-dev]\nrepository = http://index.example:8080/alice/dev/\n";
    let with_login = format!("{pypirc}username = x\npassword = y\n");
    check(twine(&with_login, "alice-dev", &submit, &reads, None), pypirc);
    let nothing = Logins { is_read_only: false, ..reads };
    check(twine(&with_login, "alice-dev", &submit, &nothing, None), &with_login);
}

#[test]
fn clients_are_told_of_an_authority_of_ones_own() {
    let file = Some("/ca.pem");
    let secure = |url: &str| -> Url { url.parse().expect("a URL") };
    let mut endpoints = endpoints();
    endpoints.simple = secure("https://index.example/alice/dev/+simple/");
    check(
        pip("", &endpoints, None, file),
        "[global]\nindex-url = https://index.example/alice/dev/+simple/\ncert = /ca.pem\n",
    );
    let submit = secure("https://index.example/alice/dev/");
    check(
        twine("", "alice-dev", &submit, &Logins::default(), file),
        "[distutils]\nindex-servers =\n    pypi\n    testpypi\n    alice-dev\n\n[alice-dev]\nrepository = https://index.example/alice/dev/\nca_cert = /ca.pem\n",
    );
    check(
        poetry_auth("", "alice-dev", &Logins::default(), file).expect("TOML"),
        "[certificates.alice-dev]\ncert = \"/ca.pem\"\n",
    );
    let setup = ClientSetup {
        tools: Tool::ALL.into(),
        places: ConfigPlaces::Directory("/x".into()),
        project: None,
        is_only: false,
        authority: Some("/ca.pem".into()),
    };
    let advice = |tool| advice(tool, &endpoints, &setup).join("\n");
    assert_eq!(
        advice(Tool::Uv),
        "it has no setting for the authority: export SSL_CERT_FILE='/ca.pem'\nin each project's pyproject.toml (--project pyproject.toml writes it):\n  [[tool.uv.index]]\n  name = \"alice-dev\"\n  url = \"https://index.example/alice/dev/+simple/\"\n  explicit = true\nsay there which packages are yours; all others come from the public index:\n  [tool.uv.sources]\n  yourproject = { index = \"alice-dev\" }\nuv publish --index alice-dev"
    );
    assert_eq!(
        advice(Tool::Pip),
        "nothing was written: pip takes the highest version of all its indexes, also a stranger's of your name.\ntake your own packages in a step of their own: pip install --cert '/ca.pem' --index-url https://index.example/alice/dev/+simple/ --no-deps NAME==VERSION\nan index that has all you need can be the only one: add --only"
    );
    // Without TLS, nobody is asked for a certificate.
    let plain = Endpoints { simple: secure("http://h/alice/dev/+simple/"), ..endpoints };
    assert_eq!(setup.authority(&plain), None);
}

#[test]
fn the_name_of_an_index_is_the_end_of_its_url() {
    for (url, name) in
        [("http://h/alice/dev/", "alice/dev"), ("http://h/below/it/alice/d%C3%A9v/", "alice/dév")]
    {
        let index = url.parse().expect("a URL");
        assert_eq!(Endpoints { index, ..endpoints() }.stage(), name);
    }
}

#[test]
fn the_url_of_an_index_may_have_any_form() {
    #[track_caller]
    fn check(text: &str, expected: &str) {
        match index_url(text) {
            Ok(url) => assert_eq!(url.as_str(), expected),
            Err(error) => assert_eq!(format!("{error:#}"), expected),
        }
    }
    check("http://h/alice/dev", "http://h/alice/dev/");
    check("https://h:1/p/alice/dev/+simple/?x#y", "https://h:1/p/alice/dev/");
    check(
        "http://h/alice",
        "`http://h/alice` is not the URL of an index: one that ends in /user/index was expected",
    );
    check(
        "http://bob:x@h/alice/dev",
        "the URL has a user in it: `--user` and `--password-stdin` were expected instead",
    );
    for text in ["ftp://h/alice/dev", "alice/dev"] {
        let expected =
            "one like https://index.example/user/index was expected, with http:// or https://";
        check(text, &format!("`{text}` is not the URL of an index: {expected}"));
    }
}
