//! User input and its outcome: values with their origin, or the exact error.

mod elsewhere;
mod goaurrpc;

use std::path::Path;

use super::*;

/// Inputs, and the directory of their configuration file.
struct TestInputs {
    directory: tempfile::TempDir,
    inputs: Inputs,
}

/// Inputs with a file of this text (no file if empty), these flags and this environment.
fn given(file: &str, flags: &[(&str, &str)], environment: &[(&str, &str)]) -> TestInputs {
    let directory = tempfile::tempdir().unwrap();
    let mut path = PathBuf::new();
    if !file.is_empty() {
        path = directory.path().join("config.toml");
        std::fs::write(&path, file).unwrap();
    }
    let mut inputs = Inputs { file: Some(path), ..Inputs::default() };
    let is_placed = environment
        .iter()
        .any(|(name, _)| ["HOME", "STATE_DIRECTORY", "XDG_DATA_HOME"].contains(name));
    inputs.environment =
        environment.iter().copied().chain((!is_placed).then_some(("HOME", "/home/ada"))).collect();
    for (path, text) in flags {
        inputs.flags.set(path, text);
    }
    TestInputs { directory, inputs }
}

/// Compares the value and origin of one key, as `config show` has them, without the directory of the file.
#[track_caller]
fn check(
    file: &str,
    flags: &[(&str, &str)],
    environment: &[(&str, &str)],
    path: &str,
    expected: &str,
) {
    let given = given(file, flags, environment);
    let loaded = given.inputs.load().unwrap();
    let setting = loaded.settings.iter().find(|setting| setting.key.path() == path).unwrap();
    let shown = format!("{} ({})", setting.texts.join(","), setting.origin);
    assert_eq!(shown.replace(&format!("{}/", given.directory.path().display()), ""), expected);
}

/// Every complaint, a line each, the directory of the file left out.
#[track_caller]
fn check_refused(
    file: &str,
    flags: &[(&str, &str)],
    environment: &[(&str, &str)],
    code: u8,
    expected: &str,
) {
    let given = given(file, flags, environment);
    let error = given.inputs.load().map(|loaded| loaded.config).unwrap_err();
    let text = error.to_string().replace(&format!("{}/", given.directory.path().display()), "");
    assert_eq!(text, expected);
    assert_eq!(error.exit_code(), code);
}

#[track_caller]
fn check_warnings(
    file: &str,
    flags: &[(&str, &str)],
    environment: &[(&str, &str)],
    expected: &str,
) {
    let given = given(file, flags, environment);
    let text = given.inputs.load().unwrap().warnings.join("\n");
    assert_eq!(text.replace(&format!("{}/", given.directory.path().display()), ""), expected);
}

#[test]
fn a_flag_wins_over_the_environment_over_the_file_over_the_default() {
    let key = "aur.rate_limit";
    let (file, flag, variable) =
        ("[aur]\nrate_limit = 1\n", [(key, "3")], [("LARDER_AUR_RATE_LIMIT", "2")]);
    check("", &[], &[], key, "4000 (default)");
    check(file, &[], &[], key, "1 (config.toml:2:1)");
    check(file, &[], &variable, key, "2 (environment LARDER_AUR_RATE_LIMIT)");
    check(file, &flag, &variable, key, "3 (flag --aur-rate-limit)");
    check("", &flag, &[], key, "3 (flag --aur-rate-limit)");
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    check(
        "[aur]\nrate_limit = 1\n",
        &[],
        &[("LARDER_AUR_RATE_LIMIT", "")],
        "aur.rate_limit",
        "1 (config.toml:2:1)",
    );
}

#[test]
fn the_defaults_are_those_of_the_documentation() {
    let config = Config::default();
    assert_eq!(config.listen, ["127.0.0.1:8080".parse().unwrap()]);
    assert_eq!(config.trusted_proxies, ["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()]);
    assert_eq!(config.limits.header_timeout, Duration::from_secs(15));
    assert_eq!(config.aur.dump_bytes_max, 4 << 30);
    assert_eq!(config.aur.source, None);
    assert_eq!(config.admin.key, None);
    assert!(config.aur.enabled && config.metrics.enabled && !config.demo);
}

#[test]
fn lists_are_arrays_in_the_file_and_have_commas_elsewhere() {
    let key = "listen";
    check(
        "listen = [\"[::1]:80\", \"unix:/run/l\"]\n",
        &[],
        &[],
        key,
        "[::1]:80,unix:/run/l (config.toml:1:1)",
    );
    check("listen = \"127.0.0.1:1\"\n", &[], &[], key, "127.0.0.1:1 (config.toml:1:1)");
    let variable = [("LARDER_LISTEN", "127.0.0.1:1, 127.0.0.1:2")];
    check("", &[], &variable, key, "127.0.0.1:1,127.0.0.1:2 (environment LARDER_LISTEN)");
    check("trusted_proxies = []\n", &[], &[], "trusted_proxies", " (config.toml:1:1)");
    check("", &[("trusted_proxies", "")], &[], "trusted_proxies", " (flag --trusted-proxies)");
}

#[test]
fn numbers_and_switches_have_one_canonical_spelling() {
    check(
        "[limits]\nbody_bytes_max = 0x10_0000\n",
        &[],
        &[],
        "limits.body_bytes_max",
        "1048576 (config.toml:2:1)",
    );
    let variable = [("LARDER_METRICS_ENABLED", "off")];
    check("", &[], &variable, "metrics.enabled", "false (environment LARDER_METRICS_ENABLED)");
    check("aur.enabled = false", &[], &[], "aur.enabled", "false (config.toml:1:5)");
    check("aur.enabled = true", &[], &[], "aur.enabled", "true (config.toml:1:5)");
    check("aur.enabled = \"auto\"", &[], &[], "aur.enabled", "auto (config.toml:1:5)");
    check("", &[], &[], "aur.enabled", "auto (default)");
    let variable = [("LARDER_AUR_ENABLED", "AUTO")];
    check("", &[], &variable, "aur.enabled", "auto (environment LARDER_AUR_ENABLED)");
    let expected =
        "metrics.enabled = \"auto\" (config.toml:1:9): expected true or false, without quotes";
    check_refused("metrics.enabled = \"auto\"", &[], &[], 78, expected);
}

#[test]
fn an_empty_text_unsets_what_a_lower_layer_set() {
    let file = "public_url = \"https://aur.example.org/\"\n";
    check(file, &[], &[], "public_url", "https://aur.example.org (config.toml:1:1)");
    check(file, &[("public_url", "")], &[], "public_url", " (flag --public-url)");
}

#[test]
fn an_unknown_key_names_its_place_and_the_nearest_key() {
    let file = "log_levle = \"info\"\n\n[aur]\n  rate_limitt = 1\n  quantum = 2\n[limit]\nworkers = 1\n[admin]\nrate_limit = 2\n";
    let expected = "config.toml:1:1: unknown key `log_levle`; did you mean `log_level`?\n\
        config.toml:4:3: unknown key `aur.rate_limitt`; did you mean `aur.rate_limit`?\n\
        config.toml:5:3: unknown key `aur.quantum`\n\
        config.toml:6:2: unknown section [limit]; did you mean [limits]?\n\
        config.toml:9:1: unknown key `admin.rate_limit`; did you mean `aur.rate_limit`?";
    check_refused(file, &[], &[], 78, expected);
    check_refused(
        "rate_limit = 3",
        &[],
        &[],
        78,
        "config.toml:1:1: unknown key `rate_limit`; did you mean `aur.rate_limit`?",
    );
}

#[test]
fn a_section_is_not_a_key_and_a_key_not_a_section() {
    check_refused(
        "aur = true",
        &[],
        &[],
        78,
        "config.toml:1:1: `aur` is a section: write [aur] and its keys below",
    );
    let expected = "demo = { a = 1 } (config.toml:1:1): expected true or false, without quotes";
    check_refused("demo = { a = 1 }", &[], &[], 78, expected);
}

#[test]
fn what_is_no_toml_is_refused_with_line_and_column() {
    let expected = "config.toml:2:11: not valid TOML: extra `=`, expected nothing";
    check_refused("demo = true\nworkers = = 3\n", &[], &[], 78, expected);
}

#[test]
fn a_bad_value_is_named_with_its_origin_and_what_was_expected() {
    let expected = "aur.rate_limit = \"4000\" (config.toml:2:1): expected a whole number of requests from 0 to 4294967295, \
        without quotes";
    check_refused("[aur]\nrate_limit = \"4000\"\n", &[], &[], 78, expected);
    let expected =
        "workers = \"-1\" (config.toml:1:1): expected a whole number of threads from 0 to 1024";
    check_refused("workers = -1", &[], &[], 78, expected);
    let expected = "aur.shrink_percent_max = \"101\" (environment LARDER_AUR_SHRINK_PERCENT_MAX): expected a whole number of \
        percent from 0 to 100";
    check_refused("", &[], &[("LARDER_AUR_SHRINK_PERCENT_MAX", "101")], 78, expected);
    let expected = "limits.idle_timeout_seconds = \"5m\" (flag --limits-idle-timeout-seconds): expected whole seconds from 1 \
        to 86400";
    check_refused("", &[("limits.idle_timeout_seconds", "5m")], &[], 2, expected);
    let expected =
        "log_format = \"xml\" (environment LARDER_LOG_FORMAT): expected one of auto, text, json";
    check_refused("", &[], &[("LARDER_LOG_FORMAT", "xml")], 78, expected);
    let expected = "listen = \"8080\" (flag --listen): expected ADDRESS:PORT such as 127.0.0.1:8080 or [::1]:8080, or unix:PATH";
    check_refused("", &[("listen", "8080")], &[], 2, expected);
    let expected = "listen_mode = \"0888\" (flag --listen-mode): expected a mode in octal up to 0777, such as 0660";
    check_refused("", &[("listen_mode", "0888")], &[], 2, expected);
    let expected = "listen_mode = \"1777\" (config.toml:1:1): expected a mode in octal up to 0777, such as 0660";
    check_refused("listen_mode = \"1777\"", &[], &[], 78, expected);
    let expected = "listen_group = \"no group\" (flag --listen-group): expected the name or number of a group, such as www-data";
    check_refused("", &[("listen_group", "no group")], &[], 2, expected);
    let expected = "trusted_proxies = \"10.0.0.0/33\" (environment LARDER_TRUSTED_PROXIES): expected a list of IP addresses or \
        networks, such as 10.0.0.0/8";
    check_refused("", &[], &[("LARDER_TRUSTED_PROXIES", "10.0.0.0/33")], 78, expected);
    let expected = "public_url = \"aur.example.org\" (flag --public-url): expected an http:// or https:// URL without query, \
        such as https://aur.example.org";
    check_refused("", &[("public_url", "aur.example.org")], &[], 2, expected);
}

#[test]
fn all_problems_are_named_at_once() {
    let expected = "workers = \"x\" (flag --workers): expected a whole number of threads from 0 to 1024\n\
        metrics.enabled = \"maybe\" (environment LARDER_METRICS_ENABLED): expected true or false";
    check_refused("", &[("workers", "x")], &[("LARDER_METRICS_ENABLED", "maybe")], 78, expected);
}

#[test]
fn listening_nowhere_or_twice_is_refused() {
    let expected = r#"listen = "" (config.toml:1:1): expected a list of ADDRESS:PORT such as 127.0.0.1:8080 or [::1]:8080, or unix:PATH, at least one"#;
    check_refused("listen = []\n", &[], &[], 78, expected);
    let expected = "listen (flag --listen) names 127.0.0.1:1 twice: expected different addresses";
    check_refused("", &[("listen", "127.0.0.1:1,127.0.0.1:1")], &[], 2, expected);
    check(
        "",
        &[("listen", "127.0.0.1:0,127.0.0.1:0")],
        &[],
        "listen",
        "127.0.0.1:0,127.0.0.1:0 (flag --listen)",
    );
    let flags = [("listen", "127.0.0.1:1"), ("admin.listen", "127.0.0.1:1"), ("admin.key", "k")];
    let expected = "admin.listen = \"127.0.0.1:1\" (flag --admin-listen) is in `listen` too: expected an address of its own";
    check_refused("", &flags, &[], 2, expected);
}

#[test]
fn a_database_is_refused_without_repeating_its_password() {
    let expected = "aur.source = \"mysql://********@db/aur?x=y\" (environment LARDER_AUR_SOURCE): the parameter `x` is not \
        one of socket, ssl-mode, ssl-ca; expected mysql://USER:PASSWORD@HOST/DATABASE or \
        mysql://USER@localhost/DATABASE?socket=/PATH";
    check_refused(
        "",
        &[],
        &[("LARDER_AUR_SOURCE", "mysql://aur:hunter2@db/aur?x=y")],
        78,
        expected,
    );
    let expected = "aur.source = \"ftp://host/x\" (flag --aur-source): expected a path or an http(s) URL of a \
        packages-meta-ext-v1.json(.gz), or the mysql:// URL of aurweb's database";
    check_refused("", &[("aur.source", "ftp://host/x")], &[], 2, expected);
}

#[test]
fn a_source_is_a_path_or_a_url() {
    let source = |text: &str| text.parse::<AurSource>();
    assert_eq!(source("/srv/dump.json.gz"), Ok(AurSource::File("/srv/dump.json.gz".into())));
    assert_eq!(source("file:///srv/dump.json"), Ok(AurSource::File("/srv/dump.json".into())));
    assert_eq!(source("https://a.example/x"), Ok(AurSource::Url("https://a.example/x".to_owned())));
    let secret = source("https://me:hunter2@a.example/x?y=@").unwrap();
    assert_eq!(secret.to_string(), "https://********@a.example/x?y=@");
    assert!(!format!("{secret:?}").contains("hunter2"));
    let database = source("mysql://me:hunter2@db/aur").unwrap();
    assert_eq!(database.to_string(), "mysql://********@db/aur");
    assert!(!format!("{database:?}").contains("hunter2"));
    assert!(source("http://").is_err());
}

#[test]
fn networks_contain_what_shares_their_leading_bits() {
    let contains =
        |network: &str, ip: &str| network.parse::<Network>().unwrap().contains(ip.parse().unwrap());
    assert!(contains("10.0.0.0/8", "10.255.0.1"));
    assert!(!contains("10.0.0.0/8", "11.0.0.1"));
    assert!(contains("10.0.0.0/8", "::ffff:10.1.2.3"));
    assert!(contains("0.0.0.0/0", "192.0.2.1"));
    assert!(!contains("0.0.0.0/0", "2001:db8::1"));
    assert!(contains("127.0.0.1", "127.0.0.1"));
    assert!(!contains("127.0.0.1", "127.0.0.2"));
    assert!(contains("2001:db8::/32", "2001:db8:ffff::1"));
    assert!(!contains("2001:db8::/32", "2001:db9::1"));
    assert!(contains("::/0", "2001:db8::1"));
    assert!("10.0.0.0/33".parse::<Network>().is_err());
    assert!("example.org".parse::<Network>().is_err());
}

#[test]
fn tls_needs_both_files() {
    let expected =
        "tls.key (flag --tls-key) is set but tls.certificate is not: expected both or neither";
    check_refused("", &[("tls.key", "k.pem")], &[], 2, expected);
    let given = given("", &[("tls.key", "k.pem"), ("tls.certificate", "c.pem")], &[]);
    let config = given.inputs.load().unwrap().config;
    assert_eq!(config.tls.files(), Some((Path::new("c.pem"), Path::new("k.pem"))));
}

#[test]
fn the_data_directory_follows_systemd_then_xdg_then_home() {
    let key = "data_dir";
    check("", &[], &[("HOME", "/h")], key, "/h/.local/share/larder (default)");
    check("", &[], &[("HOME", "/h"), ("XDG_DATA_HOME", "/x")], key, "/x/larder (default)");
    check(
        "",
        &[],
        &[("HOME", "/h"), ("XDG_DATA_HOME", "relative")],
        key,
        "/h/.local/share/larder (default)",
    );
    check("", &[], &[("XDG_DATA_HOME", "/x"), ("STATE_DIRECTORY", "/s:/t")], key, "/s (default)");
    check("", &[(key, "/d")], &[("STATE_DIRECTORY", "/s")], key, "/d (flag --data-dir)");
    let inputs = Inputs { file: Some(PathBuf::new()), ..Inputs::default() };
    let text = inputs.load().unwrap_err().to_string();
    assert!(
        text.starts_with("data_dir has no default here") && text.ends_with("LARDER_DATA_DIR"),
        "{text}"
    );
}

#[test]
fn the_demo_keeps_away_from_real_data_and_has_no_rate_limit() {
    let (demo, key) = (("demo", "true"), "data_dir");
    check("", &[demo], &[("XDG_DATA_HOME", "/x")], key, "/x/larder-demo (default with demo)");
    check("", &[demo], &[("STATE_DIRECTORY", "/s")], key, "/s/larder-demo (default with demo)");
    check("data_dir = \"/real\"", &[demo], &[], key, "/real/larder-demo (config.toml:1:1)");
    check("", &[demo, (key, "/mine")], &[], key, "/mine (flag --data-dir)");
    check("data_dir = \"/d\"\ndemo = true", &[], &[], key, "/d (config.toml:1:1)");
    check("", &[demo], &[], "aur.rate_limit", "0 (default with demo)");
    check("[aur]\nrate_limit = 5", &[demo], &[], "aur.rate_limit", "5 (config.toml:2:1)");
    check("[aur]\nsource = \"/real.json\"", &[demo], &[], "aur.source", " (default with demo)");
    let expected = "demo serves its own catalogue: aur.source (config.toml:2:1) is not read\n\
        demo keeps its data apart, in /real/larder-demo (data_dir is from: config.toml:1:1)";
    check_warnings(
        "data_dir = \"/real\"\naur.source = \"/real.json\"",
        &[demo],
        &[],
        &expected.replace(":2:1)", ":2:5)"),
    );
}

#[test]
fn an_unknown_variable_is_a_warning_with_the_nearest_name() {
    let environment = [
        ("LARDER_AUR_RATELIMIT", "1"),
        ("LARDER_CONFIG", "/nowhere"),
        ("LARDER_XYZZY", "1"),
        ("LARDERS", "1"),
    ];
    let expected = "unknown variable LARDER_AUR_RATELIMIT in the environment; did you mean LARDER_AUR_RATE_LIMIT?\n\
        unknown variable LARDER_XYZZY in the environment";
    check_warnings("", &[], &environment, expected);
}

#[test]
fn the_file_is_the_named_one_else_the_users() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join(".config/larder");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("config.toml"), "workers = 1").unwrap();
    let named = home.path().join("named.toml");
    std::fs::write(&named, "workers = 2").unwrap();
    let home = home.path().display().to_string();
    let workers = |file: Option<PathBuf>, environment: &[(&str, &str)]| {
        let environment = environment.iter().copied().chain([("HOME", home.as_str())]).collect();
        Inputs { file, flags: Flags::default(), environment }
            .load()
            .map(|loaded| loaded.config.workers)
    };
    assert_eq!(workers(None, &[]).unwrap(), 1);
    assert_eq!(workers(None, &[("LARDER_CONFIG", named.to_str().unwrap())]).unwrap(), 2);
    assert_eq!(workers(Some(named.clone()), &[("LARDER_CONFIG", "/nowhere")]).unwrap(), 2);
    assert_eq!(workers(Some(PathBuf::new()), &[]).unwrap(), 0);
    let error = workers(Some("/nowhere/l.toml".into()), &[]).unwrap_err();
    assert!(
        error.to_string().starts_with("/nowhere/l.toml: the configuration file cannot be read: "),
        "{error}"
    );
    assert_eq!(error.exit_code(), 78);
}

#[test]
fn the_admin_key_comes_from_a_key_a_file_or_a_credential() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("admin-key");
    std::fs::write(&file, "open-sesame\n").unwrap();
    let key = |flags: &[(&str, &str)], environment: &[(&str, &str)]| {
        given("", flags, environment).inputs.load().unwrap().config.admin.key
    };
    let sesame = Some(Secret::new("open-sesame"));
    assert_eq!(key(&[], &[]), None);
    assert_eq!(key(&[("admin.key", "open-sesame")], &[]), sesame);
    assert_eq!(key(&[("admin.key_file", file.to_str().unwrap())], &[]), sesame);
    assert_eq!(key(&[], &[("LARDER_ADMIN_KEY_FILE", file.to_str().unwrap())]), sesame);
    assert_eq!(key(&[], &[("CREDENTIALS_DIRECTORY", directory.path().to_str().unwrap())]), sesame);
    assert_eq!(key(&[], &[("CREDENTIALS_DIRECTORY", "/nowhere")]), None);

    let expected = "admin.key (flag --admin-key) and admin.key_file (flag --admin-key-file) are both set: expected one of them";
    check_refused("", &[("admin.key", "a"), ("admin.key_file", "b")], &[], 2, expected);
    let given = given("", &[("admin.key_file", "/nowhere/key")], &[]);
    let text = given.inputs.load().unwrap_err().to_string();
    assert!(
        text.starts_with(
            "admin.key_file = \"/nowhere/key\" (flag --admin-key-file): cannot be read: "
        ),
        "{text}"
    );
    check_warnings(
        "",
        &[("admin.key", "change-me")],
        &[],
        "admin.key is the well-known example `change-me`: choose another",
    );
}

#[test]
fn a_follower_needs_a_token_and_a_store_of_its_own() {
    let (follow, token) =
        (("follow", "https://primary.example.org"), ("follow_token_file", "token"));
    let check = |more: &[(&str, &str)], expected: &str| {
        let flags = [&[follow], more].concat();
        let expected = format!("follow (flag --follow) is set, but {expected}");
        check_refused("", &flags, &[], 2, &expected);
    };
    check(&[], "follow_token_file is not: expected the file with a token of the primary");
    check(&[token, ("demo", "true")], "demo is, too: expected one of them");
    check(
        &[token, ("database", "postgres://larder@localhost/larder")],
        "database is a PostgreSQL: expected sqlite:PATH, as a follower has a store of its own",
    );
    check(
        &[token, ("blobs", "s3://bucket/prefix")],
        "blobs is an object store: expected a directory, as a follower has a store of its own",
    );
    let load = |flags: &[(&str, &str)], environment: &[(&str, &str)]| {
        given("", flags, environment).inputs.load().unwrap().config
    };
    let config = load(&[follow, token], &[]);
    assert_eq!(config.follow_token_file, Some("token".into()));
    assert_eq!(
        (config.follow_blobs, config.follow_writes),
        (FollowBlobs::OnDemand, FollowWrites::Redirect)
    );
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("follow-token"), "larder_…").unwrap();
    let credentials = [("CREDENTIALS_DIRECTORY", directory.path().to_str().unwrap())];
    let config = load(&[follow], &credentials);
    assert_eq!(config.follow_token_file, Some(directory.path().join("follow-token")));
    assert_eq!(load(&[], &credentials).follow_token_file, None);
}

#[test]
fn a_secret_is_compared_whole_and_never_shown() {
    let secret = Secret::new("open-sesame");
    assert!(secret.matches(b"open-sesame"));
    assert!(
        !secret.matches(b"open-sesam") && !secret.matches(b"") && !secret.matches(b"open-sesame ")
    );

    let environment = [
        ("LARDER_ADMIN_KEY", "open-sesame"),
        ("LARDER_AUR_SOURCE", "https://me:hunter2@a.example/x"),
    ];
    let given = given("", &[], &environment);
    let loaded = given.inputs.load().unwrap();
    for text in [show(&loaded), format!("{:?}", loaded.config), format!("{:?}", loaded.settings)] {
        assert!(!text.contains("sesame") && !text.contains("hunter2"), "{text}");
    }
    assert!(
        show(&loaded).contains("\n#source = \"https://********@a.example/x\""),
        "{}",
        show(&loaded)
    );
    let expected = "admin.key = ******** (environment LARDER_ADMIN_KEY): expected a text without control characters, and without blanks at its ends";
    check_refused("", &[], &[("LARDER_ADMIN_KEY", " open-sesame")], 78, expected);
}

#[test]
fn show_is_a_file_that_says_the_same_with_origins() {
    let flags = [("listen", "127.0.0.1:1,unix:/run/l"), ("aur.source", "/srv/it's \"here\".json")];
    let first = given("[aur]\nrate_limit = 7\n", &flags, &[("LARDER_WORKERS", "3")]);
    let loaded = first.inputs.load().unwrap();
    let text = show(&loaded);
    let set: Vec<&str> =
        text.lines().filter(|it| it.contains("  # ") && !it.contains("  # default")).collect();
    let path = first.directory.path().display().to_string();
    let expected = [
        "listen = [\"127.0.0.1:1\", \"unix:/run/l\"]  # flag --listen",
        "workers = 3  # environment LARDER_WORKERS",
        "source = \"\"\"/srv/it's \"here\".json\"\"\"  # flag --aur-source",
        "rate_limit = 7  # DIRECTORY/config.toml:2:1",
    ];
    assert_eq!(set.join("\n").replace(&path, "DIRECTORY"), expected.join("\n"));
    let again = given(&text, &[], &[]).inputs.load().unwrap();
    assert_eq!(again.config, loaded.config);
}

#[test]
fn the_template_says_the_defaults() {
    let text = template();
    let defaults = given("", &[], &[]).inputs.load().unwrap().config;
    assert_eq!(given(&text, &[], &[]).inputs.load().unwrap().config, defaults);

    let is_key = |line: &str| line.starts_with('#') && !line.starts_with("# ");
    let uncommented: String = text
        .lines()
        .map(|line| format!("{}\n", if is_key(line) { &line[1..] } else { line }))
        .collect();
    let loaded = given(&uncommented, &[], &[]).inputs.load().unwrap();
    assert_eq!(loaded.config, defaults);
    let from_file = loaded
        .settings
        .iter()
        .filter(|setting| matches!(setting.origin, Origin::File { .. }))
        .count();
    // All but the data directory, whose empty text means the default place.
    assert_eq!(from_file, keys().count() - 1);
}

/// Compares a generated file with its generator; `LARDER_TEST_WRITE=1` in the environment writes the file instead.
#[track_caller]
fn check_generated(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("LARDER_TEST_WRITE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let file = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        file == text,
        "{} lags behind the table in lib.rs: run the tests with LARDER_TEST_WRITE=1",
        path.display()
    );
}

#[test]
fn generated_files_are_current() {
    check_generated("../../docs/config.md", &docs());
    check_generated("src/template.toml", &template());
}

#[test]
fn names_are_derived_and_unambiguous() {
    let key = keys().find(|key| key.path() == "aur.rate_limit").unwrap();
    assert_eq!(
        (key.flag(), key.variable()),
        ("aur-rate-limit".to_owned(), "LARDER_AUR_RATE_LIMIT".to_owned())
    );
    let variables: std::collections::BTreeSet<String> = keys().map(Key::variable).collect();
    assert_eq!(variables.len(), keys().count());
    for key in keys() {
        assert!(!key.help().is_empty(), "{} has no help", key.path());
    }
}

#[test]
fn a_reload_reads_the_file_again_and_names_what_changed() {
    let given = given("workers = 1\n[admin]\nkey = \"a\"\n", &[("aur.rate_limit", "9")], &[]);
    let old = given.inputs.load().unwrap();
    let file = old.file.clone().unwrap();
    std::fs::write(&file, "workers = 2\n[aur]\nrate_limit = 1\n[admin]\nkey = \"b\"\n").unwrap();
    let new = old.reload().unwrap();
    assert_eq!((new.config.workers, new.config.aur.rate_limit), (2, 9));
    let changed: Vec<String> = old.changed_keys(&new).into_iter().map(Key::path).collect();
    assert_eq!(changed, ["workers", "admin.key"]);
    let source = |password: &str| {
        std::fs::write(&file, format!("[aur]\nsource = \"https://me:{password}@a.example/x\""))
            .unwrap();
        old.reload().unwrap()
    };
    let changed: Vec<String> =
        source("a").changed_keys(&source("b")).into_iter().map(Key::path).collect();
    assert_eq!(changed, ["aur.source"]);
    std::fs::write(&file, "workers = ").unwrap();
    assert!(old.reload().is_err());
}

#[test]
fn the_local_url_is_one_that_this_machine_reaches() {
    let url = |listen: &str| {
        let config = given("", &[("listen", listen)], &[]).inputs.load().unwrap().config;
        let (url, socket) = config.local_url("/readyz");
        format!("{url} {}", socket.map_or("", |socket| socket.to_str().unwrap()))
    };
    assert_eq!(url("0.0.0.0:81"), "http://127.0.0.1:81/readyz ");
    assert_eq!(url("[::]:81,127.0.0.1:1"), "http://[::1]:81/readyz ");
    assert_eq!(url("192.0.2.1:81"), "http://192.0.2.1:81/readyz ");
    assert_eq!(url("unix:/run/l"), "http://localhost/readyz /run/l");
}

#[test]
fn a_site_has_lines_links_and_a_colour() {
    let file = "[site]\nlinks = [\"Our wiki https://wiki.example\", \"Imprint /article/imprint\"]";
    let links = "Our wiki https://wiki.example,Imprint /article/imprint (config.toml:2:1)";
    check(file, &[], &[], "site.links", links);
    check("", &[], &[], "site.title", "Larder (default)");
    check("", &[("site.accent", "#1D4ED8")], &[], "site.accent", "#1d4ed8 (flag --site-accent)");
    for (key, wrong, why) in [
        (
            "site.accent",
            "#ffcc00",
            "site.accent = \"#ffcc00\" (flag --site-accent): words of this colour have a contrast of 1.3 with the light background; expected a colour as #rrggbb that is dark enough to be read: a contrast of at least 4.5 with #f4f1ea",
        ),
        (
            "site.accent",
            "blue",
            r#"site.accent = "blue" (flag --site-accent): expected a colour as #rrggbb that is dark enough to be read: a contrast of at least 4.5 with #f4f1ea"#,
        ),
        (
            "site.links",
            "Wiki javascript:alert(1)",
            r#"site.links = "Wiki javascript:alert(1)" (flag --site-links): expected a list of links, each as LABEL URL: an http, https or mailto URL, or a path of this server"#,
        ),
        (
            "site.title",
            "two\nlines",
            "site.title = \"two\\nlines\" (flag --site-title): expected a text of at most 200 characters in one line",
        ),
    ] {
        check_refused("", &[(key, wrong)], &[], 2, why);
    }
}

#[test]
fn origins_are_written_as_browsers_send_them() {
    check(
        "[cors]\norigins = [\"HTTPS://App.Example:443/\", \"http://localhost:5173\"]",
        &[],
        &[],
        "cors.origins",
        "https://app.example,http://localhost:5173 (config.toml:2:1)",
    );
    check("", &[("cors.origins", "*")], &[], "cors.origins", "* (flag --cors-origins)");
    let hidden = ("https://u@app.example", "https://********@app.example");
    let shown = ["app.example", "https://app.example/path", "null", "ftp://a"].map(|it| (it, it));
    for (wrong, named) in shown.into_iter().chain([hidden]) {
        let expected = format!(
            "cors.origins = \"{named}\" (flag --cors-origins): expected a list of origins of pages, such as https://app.example.org, or *"
        );
        check_refused("", &[("cors.origins", wrong)], &[], 2, &expected);
    }
}
