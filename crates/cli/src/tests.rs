//! Command lines, and how they are parsed or what they print.

use super::*;

fn parsed(line: &str) -> Result<Invocation, Exit> {
    let environment = [("HOME", "/home/ada"), ("LARDER_CONFIG", "/dev/null")].into_iter().collect();
    parse(
        std::iter::once("larder").chain(line.split_whitespace()).map(OsString::from),
        &environment,
    )
}

/// The configuration that a command line serves with.
#[track_caller]
fn served(line: &str) -> config::Config {
    match parsed(line) {
        Ok(Invocation::Serve(loaded)) => loaded.config,
        Ok(Invocation::Other(_)) => panic!("`{line}` should serve"),
        Err(exit) => panic!("`{line}` should serve: {exit:?}"),
    }
}

/// Stands in for what only the server can do.
fn of_no_server() -> Server {
    Server {
        check_files: |_| Ok(()),
        export_site: |_, _| Box::pin(async { Ok(::import::SiteReport::default()) }),
    }
}

/// What a command prints, or its exit code and text.
fn printed(line: &str) -> Result<String, (u8, String)> {
    let mut out = Vec::new();
    let ran = parsed(line).and_then(|invocation| match invocation {
        Invocation::Other(request) => request.run(&mut out, of_no_server()),
        Invocation::Serve(_) => panic!("`{line}` serves"),
    });
    match ran {
        Ok(()) => Ok(String::from_utf8(out).unwrap()),
        Err(Exit::Clap(error)) => {
            Err((u8::try_from(error.exit_code()).unwrap(), error.to_string()))
        }
        Err(Exit::Message { code, text }) => Err((code, text)),
    }
}

#[test]
fn the_command_line_is_well_formed() {
    command().debug_assert();
}

#[test]
fn alone_it_says_what_it_is() {
    let start = "Larder is a server for packages and pages: ";
    let (code, help) = printed("--help").expect_err("no command");
    assert!(code == 0 && help.starts_with(start), "{code}: {help}");
    let (code, text) = printed("").expect_err("no command");
    assert!(code == 2 && text.starts_with(start), "{code}: {text}");
    assert!(text.contains("larder serve --demo"), "{text}");
}

#[test]
fn flags_of_serve_need_no_command_and_may_stand_anywhere() {
    assert_eq!(served("--workers 3").workers, 3);
    assert_eq!(served("serve --workers=3 --aur-rate-limit 0").workers, 3);
    assert_eq!(served("--workers 3 serve --aur-rate-limit 0").workers, 3);
    assert_eq!(served("--workers 3 serve --workers 4").workers, 4);
    assert_eq!(
        served("serve --listen 127.0.0.1:1 --listen unix:/run/l,127.0.0.1:2").listen.len(),
        3
    );
}

#[test]
fn a_switch_stands_alone_or_has_a_value() {
    assert!(served("serve --demo").demo);
    assert!(served("--demo").demo);
    assert!(!served("serve --demo=false").demo);
    assert!(!served("serve --metrics-enabled=no").metrics.enabled);
    // The value may also follow the flag; a word that is no value of a switch is a command.
    for key in config::keys().filter(|key| key.kind.is_switch()) {
        for (word, text) in [("false", "false"), ("OFF", "false"), ("no", "false")] {
            let line = format!("config show --{} {word} --listen 127.0.0.1:1", key.flag());
            let shown = printed(&line).unwrap_or_else(|error| panic!("{line}: {error:?}"));
            let expected = format!("{} = {text}  # flag --{}", key.name, key.flag());
            assert!(shown.contains(&expected), "{line}: {shown}");
        }
    }
    assert!(!served("--aur-enabled false serve").aur.enabled);
    assert!(served("--demo true serve --workers 3").demo);
    assert!(served("--demo serve").demo);
    assert!(served("--aur-enabled auto").aur.enabled);
    assert!(served("--aur-enabled --aur-source /dump.json").aur.enabled);
    assert!(parsed("serve -- --demo false").is_err());
}

#[test]
fn every_key_is_a_flag_of_serve() {
    let mut root = command();
    let serve = root.find_subcommand_mut("serve").unwrap();
    let help = serve.render_long_help().to_string();
    for key in config::keys() {
        assert!(help.contains(&format!("--{}", key.flag())), "{}", key.path());
        assert!(help.contains(&format!("[env: {}]", key.variable())), "{}", key.path());
    }
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    for line in [
        "serve --nonsense",
        "frobnicate",
        "demo-data",
        "serve --workers x",
        "completions cobol",
        "config",
    ] {
        let Err(exit) = parsed(line) else { panic!("`{line}` should be refused") };
        assert_eq!(exit.code(), 2, "{line}");
    }
    for line in ["--help", "--version"] {
        assert_eq!(parsed(line).err().map(|exit| exit.code()), Some(0), "{line}");
    }
}

#[test]
fn a_bad_configuration_is_exit_code_78() {
    for (flags, expected) in [
        (
            "--config /nowhere.toml",
            "/nowhere.toml: the configuration file cannot be read: No such file or directory (os error 2)",
        ),
        (
            "--tls-certificate /nowhere.c --tls-key /nowhere.k",
            "tls.certificate = \"/nowhere.c\": No such file or directory (os error 2)\n\
             tls.key = \"/nowhere.k\": No such file or directory (os error 2)",
        ),
    ] {
        let (code, text) = printed(&format!("config check {flags}")).unwrap_err();
        assert_eq!((code, text.as_str()), (78, expected));
    }
}

#[test]
fn demo_data_goes_to_stdout_or_a_file() {
    let out = |line: &str| {
        let Ok(Invocation::Other(request)) = parsed(line) else { panic!("`{line}` is a command") };
        let Command::DemoData(DemoData { packages, seed, out, sql }) = *request.command else {
            panic!("`{line}` writes data")
        };
        assert_eq!(sql, line.contains("--sql").then(|| "a.sql".into()));
        (packages, seed, out)
    };
    assert_eq!(out("demo-data --out -"), (100_000, 1, Output::Stdout));
    let file = |path: &str, gzip| Output::File { path: path.into(), gzip };
    assert_eq!(out("demo-data --packages 7 --seed 9 --out a.json"), (7, 9, file("a.json", false)));
    assert_eq!(out("demo-data --out - --sql a.sql"), (100_000, 1, Output::Stdout));
    assert_eq!(out("demo-data --out a.json.gz"), (100_000, 1, file("a.json.gz", true)));
}

#[test]
fn config_commands_print() {
    assert_eq!(printed("config check").unwrap(), "the configuration is valid (/dev/null)\n");
    // An empty name reads no file, not even that of the environment.
    assert_eq!(
        printed("config check --config=").unwrap(),
        "the configuration is valid (no file)\n"
    );
    assert_eq!(
        printed("config check --aur-source /nowhere.json").unwrap(),
        "warning: aur.source = \"/nowhere.json\" does not exist yet\nthe configuration is valid (/dev/null)\n"
    );
    assert!(
        printed("config show --workers 3").unwrap().contains("workers = 3  # flag --workers\n")
    );
    assert_eq!(printed("config init").unwrap(), config::template());
    assert_eq!(printed("config docs").unwrap(), config::docs());
    let expected = "/nowhere.json: cannot be read: No such file or directory (os error 2)";
    assert_eq!(printed("config import-goaurrpc /nowhere.json"), Err((78, expected.to_owned())));

    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let import = |json: &str| {
        std::fs::write(path("old.json"), json).expect("a file");
        printed(&format!(
            "config import-goaurrpc {} --output {}",
            path("old.json"),
            path("new.toml")
        ))
    };
    import(r#"{"RateLimit": "many"}"#).unwrap_err();
    assert!(!std::path::Path::new(&path("new.toml")).exists(), "a mistake leaves no file");
    assert_eq!(import(r#"{"RateLimit": 7}"#).unwrap(), "");
    let made = std::fs::read_to_string(path("new.toml")).expect("a file");
    let set = made.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    assert_eq!(set.collect::<Vec<_>>(), ["[aur]", "rate_limit = 7"]);
}

#[test]
fn completions_and_the_man_page_know_every_flag() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            printed(&format!("completions {shell}")).unwrap().contains("aur-rate-limit"),
            "{shell}"
        );
    }
    let page = printed("man").unwrap();
    assert!(page.contains(".TH larder"), "{page}");
    assert!(page.contains("aur\\-rate\\-limit"), "{page}");
}

#[test]
fn the_version_is_text_or_json() {
    assert!(printed("version").unwrap().starts_with("larder "));
    let json: serde_json::Value =
        serde_json::from_str(&printed("version --json").unwrap()).unwrap();
    assert_eq!(json["name"], "larder");
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert!(json["commit"].is_string(), "{json}");
}

/// A server on loopback that answers one request with these bytes; gives its URL.
fn answering(answer: &'static str) -> String {
    use std::io::Read;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/readyz", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        let length = stream.read(&mut request).unwrap();
        assert!(request[..length].starts_with(b"GET /readyz HTTP/1.1\r\n"));
        stream.write_all(answer.as_bytes()).unwrap();
    });
    url
}

#[test]
fn a_healthcheck_tells_ready_from_not_ready_from_absent() {
    let url = answering("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nready\n");
    assert_eq!(printed(&format!("healthcheck --url {url}")).unwrap(), "ready\n");
    let url = answering("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 7\r\n\r\nloading");
    let expected = format!("{url}: 503 Service Unavailable: loading");
    assert_eq!(printed(&format!("healthcheck --url {url}")), Err((1, expected)));
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, text) = printed(&format!("healthcheck --url http://{free}/readyz")).unwrap_err();
    let expected = "http://HOST/readyz: error sending request for url (http://HOST/readyz): client error (Connect): tcp \
                    connect error: Connection refused (os error 111); does the server run, and is this its address?";
    assert_eq!((code, text.replace(&free.to_string(), "HOST").as_str()), (1, expected));
}

#[test]
fn a_healthcheck_goes_through_a_socket() {
    use std::io::Read;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("larder.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nready").unwrap();
    });
    assert_eq!(
        printed(&format!("healthcheck --timeout-seconds 60 --listen unix:{}", path.display()))
            .unwrap(),
        "ready\n"
    );
}
