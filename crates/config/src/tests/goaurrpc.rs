//! A configuration of goaurrpc becomes one of Larder, or is refused.

use super::*;

/// A goaurrpc configuration with every setting.
const GOAURRPC: &str = r#"{
    "Port": 10666, "AurFileLocation": "https://aur.example.org/packages-meta-ext-v1.json.gz", "MaxResults": 4000,
    "RefreshInterval": 600, "RateLimit": 100, "LoadFromFile": false, "RateLimitCleanupInterval": 600,
    "RateLimitTimeWindow": 3600, "TrustedReverseProxies": ["127.0.0.1", "10.0.0.0/8"], "EnableSSL": true,
    "CertFile": "/etc/c.pem", "KeyFile": "/etc/k.pem", "EnableSearchCache": true, "CacheCleanupInterval": 60,
    "CacheExpirationTime": 180, "LogFile": "/var/log/goaurrpc.log", "EnableMetrics": false, "EnableAdminApi": true,
    "AdminAPIKey": "open-sesame"
}"#;

#[test]
fn a_goaurrpc_configuration_becomes_one_of_larder() {
    let toml = import_goaurrpc(GOAURRPC).unwrap();
    let config = given(&toml, &[], &[]).inputs.load().unwrap().config;
    assert_eq!(config.listen, ["0.0.0.0:10666".parse().unwrap()]);
    let url = "https://aur.example.org/packages-meta-ext-v1.json.gz".to_owned();
    assert_eq!(config.aur.source, Some(AurSource::Url(url)));
    assert_eq!((config.aur.results_max, config.aur.rate_limit), (4000, 100));
    assert_eq!(config.aur.refresh, Duration::from_secs(600));
    assert_eq!(config.aur.rate_limit_window, Duration::from_secs(3600));
    assert_eq!(
        config.trusted_proxies,
        ["127.0.0.1".parse().unwrap(), "10.0.0.0/8".parse().unwrap()]
    );
    assert_eq!(config.tls.files(), Some((Path::new("/etc/c.pem"), Path::new("/etc/k.pem"))));
    assert!(!config.metrics.enabled);
    assert_eq!(config.admin.key, Some(Secret::new("open-sesame")));
    let names: serde_json::Map<String, serde_json::Value> = serde_json::from_str(GOAURRPC).unwrap();
    for name in names.keys() {
        assert!(toml.contains(name), "{name} is not mentioned in\n{toml}");
    }
}

/// Imports a short goaurrpc configuration: lines that the result has, or the error.
#[track_caller]
fn check_import(json: &str, expected: Result<&[&str], &str>) {
    match (import_goaurrpc(json), expected) {
        (Ok(toml), Ok(lines)) => {
            for line in lines {
                assert!(toml.lines().any(|found| found == *line), "{line:?} is missing in\n{toml}");
            }
            given(&toml, &[], &[]).inputs.load().unwrap();
        }
        (found, expected) => {
            assert_eq!(found, expected.map(|_| String::new()).map_err(str::to_owned))
        }
    }
}

#[test]
fn the_example_key_of_goaurrpc_is_not_taken_over() {
    let json = r#"{"EnableAdminApi": true, "AdminAPIKey": "change-me", "RefreshInterval": 300}"#;
    check_import(
        json,
        Ok(&["#key = \"\"", "refresh_seconds = 300", "listen = \"127.0.0.1:8081\""]),
    );
    assert!(!import_goaurrpc(json).unwrap().lines().any(|line| line.starts_with("key =")));
    assert!(!import_goaurrpc(r#"{"AdminAPIKey": "open-sesame"}"#).unwrap().contains("sesame"));
}

#[test]
fn goaurrpc_settings_keep_their_meaning() {
    check_import(
        r#"{"AurFileLocation": "/srv/a.json", "LoadFromFile": true}"#,
        Ok(&["source = \"/srv/a.json\""]),
    );
    check_import(r#"{"ratelimit": 0}"#, Ok(&["rate_limit = 0"]));
    check_import(
        r#"{"EnableSSL": false, "CertFile": "c", "KeyFile": ""}"#,
        Ok(&["#certificate = \"c\""]),
    );
    check_import("{}", Ok(&[]));
    let file = import_goaurrpc(r#"{"RateLimits": 1, "Ze\nbra": 2}"#).expect("a file");
    let left_out: Vec<&str> = file.lines().filter(|line| line.contains("left out")).collect();
    let expected = [
        "# RateLimits is no setting of goaurrpc, so it is left out; did you mean `RateLimit`?",
        "# Ze\\nbra is no setting of goaurrpc, so it is left out",
    ];
    assert_eq!(left_out, expected);
}

#[test]
fn a_goaurrpc_configuration_with_mistakes_is_refused() {
    check_import(
        r#"{"Port": "80"}"#,
        Err("Port = \"80\": expected a whole number from 1 to 65535"),
    );
    check_import(
        r#"{"RefreshInterval": 0}"#,
        Err(
            "RefreshInterval = 0, which becomes aur.refresh_seconds: expected whole seconds from 1 to 604800",
        ),
    );
    check_import(
        r#"{"AurFileLocation": "https://a.example/x", "LoadFromFile": true}"#,
        Err(
            "AurFileLocation = \"https://a.example/x\" does not fit LoadFromFile = true: expected a path",
        ),
    );
    check_import(r#"{"EnableSSL": 1}"#, Err("EnableSSL = 1: expected true or false"));
    check_import("[]", Err("expected a JSON object of goaurrpc's settings"));
    check_import("{", Err("not valid JSON: EOF while parsing an object at line 1 column 1"));
}
