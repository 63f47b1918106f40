//! The real binary: exit codes, signals, and what `--demo` prints.

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use testbed::{FarHost, Line};

use crate::asking::{Says as _, Words};
use crate::client::{Client, Response};
use crate::server::ROOT_PASSWORD;
use crate::shown::redacted;
use crate::{catalogue, wait_until};

/// The binary, without any configuration of this machine. `LARDER_TEST_BINARY` names another one, such as one that is optimized, to
/// measure it.
pub(crate) fn larder(directory: &Path) -> Command {
    larder_at(None, directory)
}

/// [`larder`], at another host.
fn larder_at(far: Option<&FarHost>, directory: &Path) -> Command {
    let other = std::env::var_os("LARDER_TEST_BINARY");
    let binary = other.unwrap_or_else(|| env!("CARGO_BIN_EXE_larder").into());
    let mut command = far.map_or_else(|| Command::new(&binary), |far| far.command(&binary));
    command.env_clear().env("HOME", directory).current_dir(directory).stdin(Stdio::null());
    command
}

/// The outcome of a command.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The command, for those who read of a failure.
    asked: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Done {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        Done { code: output.status.code(), stdout, stderr, asked: String::new() }
    }
}

impl Done {
    /// Runs a command to its end, with `input` as its standard input.
    pub(crate) fn of(command: &mut Command, input: &str) -> Done {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("piped");
        // The command may end without reading.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let done = child.wait_with_output().expect("it runs").into();
        Done { asked: format!("{command:?}"), ..done }
    }

    /// The JSON that it printed.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// [`Done::of`] a command that must end soon, even if it could go on forever.
    pub(crate) fn in_time(command: &mut Command) -> Done {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        wait_until("the end", || child.try_wait().expect("a child").is_some());
        let done = child.wait_with_output().expect("it has ended").into();
        Done { asked: format!("{command:?}"), ..done }
    }

    /// Everything that it printed.
    pub(crate) fn said(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// It ended with this code, and printed these words.
    #[track_caller]
    pub(crate) fn check<W: AsRef<str>>(&self, code: i32, words: impl Words<W>) -> &Done {
        assert_eq!(self.code, Some(code), "{}: {}", self.asked, self.said());
        self.said().says(words);
        self
    }

    /// It ended with this code, and complained of this.
    #[track_caller]
    pub(crate) fn fails<W: AsRef<str>>(&self, code: i32, words: impl Words<W>) -> &Done {
        self.check(code, "").stderr.says(words);
        self
    }

    /// It ended with this code, and complained of this alone.
    #[track_caller]
    pub(crate) fn complains(&self, code: i32, text: &str) -> &Done {
        let complaint = redacted(self.stderr.trim_end());
        assert_eq!((self.code, &*complaint), (Some(code), text), "{self:?}");
        self
    }

    /// It ended with this code, and its output is this.
    #[track_caller]
    pub(crate) fn prints(&self, code: i32, expected: &str) -> &Done {
        assert_eq!((self.code, &*self.stdout), (Some(code), expected), "{self:?}");
        self
    }
}

/// Makes a store with `root`, who has the password of all tests, in the data directory `data`.
#[track_caller]
pub(crate) fn init(directory: &Path) {
    let arguments = ["init", "--data-dir", "data", "--root-password", ROOT_PASSWORD];
    Done::of(larder(directory).args(arguments), "").check(0, "");
}

/// A running server, killed if the test ends before it does.
pub(crate) struct Process {
    child: Child,
    pub(crate) client: Client,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
    pub(crate) directory: Arc<TempDir>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Collects the lines of a stream until its end.
fn collect(stream: impl std::io::Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let collected = text.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            collected.lock().expect("no panic").push_str(&(line + "\n"));
        }
    });
    text
}

/// A process is asked as its client is.
impl Deref for Process {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Process {
    /// Starts a server with these further arguments in a directory that `prepare` fills.
    pub(crate) fn start(arguments: &[&str], prepare: impl FnOnce(&Path)) -> Process {
        let directory = Arc::new(tempfile::tempdir().expect("a directory"));
        prepare(directory.path());
        Process::start_in(directory, "data", arguments)
    }

    /// Starts a server in a directory that other servers may use as well, each with its own data directory.
    pub(crate) fn start_in(directory: Arc<TempDir>, data: &str, arguments: &[&str]) -> Process {
        Process::start_with(directory, data, arguments, &[])
    }

    /// [`Process::start_in`], with these variables in its environment.
    pub(crate) fn start_with(
        directory: Arc<TempDir>,
        data: &str,
        arguments: &[&str],
        variables: &[(&'static str, String)],
    ) -> Process {
        Process::start_at(None, directory, data, arguments, variables)
    }

    /// [`Process::start_with`], at another host.
    pub(crate) fn start_at(
        far: Option<&FarHost>,
        directory: Arc<TempDir>,
        data: &str,
        arguments: &[&str],
        variables: &[(&'static str, String)],
    ) -> Process {
        let process = Process::spawn(far, directory, data, arguments, variables);
        wait_until("readiness", || process.get("/readyz").status == 200);
        process
    }

    /// [`Process::start_in`], of a server that need not become ready.
    pub(crate) fn start_unready(
        directory: Arc<TempDir>,
        data: &str,
        arguments: &[&str],
    ) -> Process {
        Process::spawn(None, directory, data, arguments, &[])
    }

    fn spawn(
        far: Option<&FarHost>,
        directory: Arc<TempDir>,
        data: &str,
        arguments: &[&str],
        variables: &[(&'static str, String)],
    ) -> Process {
        let host = far.map_or(Ipv4Addr::LOCALHOST, |far| far.addresses(Line::Clients)[1]);
        let mut child = larder_at(far, directory.path())
            .args(["serve", "--data-dir", data, "--listen", &format!("{host}:0")])
            .args(["--log-format", "json"])
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdout = collect(child.stdout.take().expect("piped"));
        let stderr = collect(child.stderr.take().expect("piped"));
        let mut address: Option<SocketAddr> = None;
        wait_until("the address in the log", || {
            let log = stderr.lock().expect("no panic").clone();
            let lines =
                log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            address = lines
                .filter(|line| line["message"] == "listening")
                .find_map(|line| line["address"].as_str()?.parse().ok());
            assert!(child.try_wait().expect("a child").is_none(), "it has ended: {log}");
            address.is_some()
        });
        let client = Client { address: address.expect("it was waited for") };
        Process { child, client, stdout, stderr, directory }
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its output on stderr so far.
    pub(crate) fn log(&self) -> String {
        self.stderr.lock().expect("no panic").clone()
    }

    /// Its security log, for `--security-log security.log`.
    pub(crate) fn security_log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("security.log")).expect("a log")
    }

    /// Waits until it has logged these words.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, words: &str) {
        wait_until(words, || self.log().contains(words));
    }

    /// The most memory that it has had resident so far, or since [`Process::forget_memory_peak`], in bytes.
    pub(crate) fn memory_peak_bytes(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// The memory that it has resident now, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// Resets the peak of memory.
    pub(crate) fn forget_memory_peak(&self) {
        let path = format!("/proc/{}/clear_refs", self.child.id());
        fs::write(path, "5").expect("a process of ours");
    }

    fn memory(&self, name: &str) -> u64 {
        let kilobytes = self.status(name);
        kilobytes.strip_suffix(" kB").expect("in kB").parse::<u64>().expect("a number") * 1024
    }

    /// Its threads.
    pub(crate) fn threads(&self) -> u64 {
        self.status("Threads:").parse().expect("a number")
    }

    /// How often its threads have waited for something so far.
    fn waits(&self) -> u64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("a process");
        // A thread may end meanwhile.
        let statuses =
            threads.flatten().flat_map(|it| fs::read_to_string(it.path().join("status")));
        let waits = |status: String| value(&status, "voluntary_ctxt_switches:").parse::<u64>();
        statuses.map(|status| waits(status).expect("a number")).sum()
    }

    fn status(&self, name: &str) -> String {
        let path = format!("/proc/{}/status", self.child.id());
        value(&fs::read_to_string(path).expect("a process"), name)
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
    }

    /// What a demonstration tells its user, once all of it is there.
    #[track_caller]
    fn told(&self) -> String {
        let text = || self.stdout.lock().expect("no panic").clone();
        wait_until("the text", || text().contains("Ctrl-C"));
        text()
    }

    /// Stops the server, which must end with 0.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        self.signal("TERM");
        self.ends_well();
    }

    #[track_caller]
    pub(crate) fn ends_well(&mut self) {
        assert_eq!(self.wait().code(), Some(0), "{}", self.log());
    }

    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the process to end", || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        status.expect("it was waited for")
    }
}

/// What stands after `name` in a file of `/proc`.
fn value(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a value");
    line.trim().to_owned()
}

#[track_caller]
fn check_exit(arguments: &[&str], code: i32, text: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    Done::of(larder(directory.path()).args(arguments), "").check(code, text);
}

#[test]
fn exit_codes() {
    check_exit(&["version"], 0, env!("CARGO_PKG_VERSION"));
    check_exit(&["--help"], 0, "serve");
    check_exit(&["config", "check"], 0, "");
    let webhooks = ["config", "check", "--changes-webhooks-file", "/nowhere.toml"];
    check_exit(&webhooks, 78, "changes.webhooks_file = /nowhere.toml");
    check_exit(&["serve", "--no-such-flag"], 2, "--no-such-flag");
    check_exit(&["serve", "--aur-rate-limit", "many"], 2, "many");
    check_exit(&["no-such-command"], 2, "no-such-command");
    check_exit(&["serve", "--listen", "203.0.113.1:1", "--data-dir", "x"], 1, "203.0.113.1:1");
    check_exit(&["serve", "--config", "no-such-file.toml"], 78, "no-such-file.toml");
    for switch in [&["--aur-enabled"][..], &["--aur-enabled=true"], &["--aur-enabled", "true"]] {
        for command in [&["serve"][..], &["config", "check"], &[]] {
            let text = "aur.enabled = true (flag --aur-enabled): expected aur.source";
            check_exit(&[command, switch].concat(), 78, text);
        }
    }
    check_exit(&["serve", "--aur-enabled", "perhaps"], 2, "perhaps");
    check_exit(&["serve", "--aur-enabled=perhaps"], 2, "expected auto, true or false");
}

/// Nothing but `larder serve`: ready, without packages of the AUR, and it says how to have them.
/// As in a minimal container: it starts, says what is missing, and its own health check works.
#[test]
fn without_certificates_of_authorities_it_is_ready() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let nowhere = ["SSL_CERT_FILE", "SSL_CERT_DIR"].map(|name| (name, "/nowhere".to_owned()));
    let process = Process::start_with(directory.clone(), "data", &[], &nowhere);
    let log = process.log();
    assert_eq!(log.matches("install ca-certificates").count(), 1, "{log}");
    let url = format!("http://{}/readyz", process.client.address);
    let mut healthcheck = larder(directory.path());
    Done::of(healthcheck.envs(nowhere).args(["healthcheck", "--url", &url]), "").check(0, "");
}

#[test]
fn without_any_flag_it_is_ready() {
    let process = Process::start(&[], |_| ());
    process.log().says("`--aur-source FILE|URL` (aur.source)");
    let ask = ["healthcheck", "--listen", &process.client.address.to_string()];
    Done::of(larder(process.directory.path()).args(ask), "").check(0, "");
    process.get("/rpc?v=5&type=info&arg=attest").expect(404);
}

#[test]
fn a_wrong_configuration_is_78_with_its_place() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("larder.toml"), "[aur]\nrate_limt = 5\n").expect("a file");
    for command in [
        ["config", "check", "--config", "larder.toml"],
        ["serve", "--config", "larder.toml", "--demo"],
    ] {
        let done = Done::of(larder(directory.path()).args(command), "");
        done.fails(78, ["larder.toml:2", "rate_limit"]);
    }
    let mut command = larder(directory.path());
    command.args(["config", "check"]).env("LARDER_AUR_RATE_LIMIT", "many");
    Done::of(&mut command, "").check(78, "");
}

#[test]
fn sigterm_drains_and_ends_well() {
    let mut process = Process::start(&["--aur-source", "dump.json"], |directory| {
        fs::write(directory.join("dump.json"), catalogue::small()).expect("a dump");
    });
    let body = "v=5&type=info&arg=attest";
    let stream = process.anybody().announce("POST", "/rpc", body.len());
    process.signal("TERM");
    process.wait_until_closed();
    let response = Response::after(body, stream);
    assert_eq!((response.status, response.names()), (200, "attest".to_owned()));
    process.ends_well();
}

#[test]
fn sighup_reads_configuration_and_data_again() {
    let process = Process::start(&["--config", "larder.toml"], |directory| {
        fs::write(
            directory.join("larder.toml"),
            "[aur]\nsource = \"dump.json\"\nresults_max = 100\n",
        )
        .expect("a file");
        fs::write(directory.join("dump.json"), catalogue::generation(1, 20)).expect("a dump");
    });
    let client = process.client;
    assert_eq!(client.get("/rpc/v5/search/shared").json()["resultcount"], 20);
    let directory = process.directory.path();
    fs::write(directory.join("larder.toml"), "[aur]\nsource = \"dump.json\"\nresults_max = 5\n")
        .expect("a file");
    fs::write(directory.join("next.json"), catalogue::generation(2, 20)).expect("a dump");
    fs::rename(directory.join("next.json"), directory.join("dump.json")).expect("a rename");
    process.signal("HUP");
    wait_until("the new bound", || {
        client.get("/rpc/v5/search/shared").names() == "error: Too many package results."
    });
    wait_until("the new data", || {
        client.get("/rpc/v5/info/shared-0001").json()["results"][0]["Version"] == "2-1"
    });

    // A dump that has lost too much is refused until the bound is raised: with a reload, as its error says.
    fs::write(directory.join("next.json"), catalogue::generation(3, 4)).expect("a dump");
    fs::rename(directory.join("next.json"), directory.join("dump.json")).expect("a rename");
    process.wait_for_log("aur.shrink_percent_max");
    fs::write(
        directory.join("larder.toml"),
        "[aur]\nsource = \"dump.json\"\nresults_max = 5\nshrink_percent_max = 90\n",
    )
    .expect("a file");
    process.signal("HUP");
    wait_until("the smaller catalogue", || {
        client.get("/rpc/v5/info/shared-0001").json()["results"][0]["Version"] == "3-1"
    });

    // A configuration that cannot be read changes nothing.
    fs::write(directory.join("larder.toml"), "nonsense").expect("a file");
    process.signal("HUP");
    process.wait_for_log("the configuration cannot be read again");
    assert_eq!(client.get("/rpc/v5/info/shared-0001").names(), "shared-0001");
}

#[test]
fn demo_data_is_in_the_exact_format() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |out: &str, seed: &str| {
        let mut command = larder(directory.path());
        command.args(["demo-data", "--packages", "300", "--seed", seed, "--out", out]);
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        fs::read(directory.path().join(out)).unwrap_or(output.stdout)
    };
    let plain = write("plain.json", "5");
    let mut command = larder(directory.path());
    let line = "demo-data --packages 3 --out small.json --sql small.sql";
    Done::of(command.args(line.split(' ')), "")
        .check(0, ["wrote 3 packages to small.json", "wrote 3 packages to small.sql"]);
    let nowhere = "demo-data --packages 3 --out no/such/folder.json";
    Done::of(larder(directory.path()).args(nowhere.split(' ')), "")
        .fails(1, "`no/such/folder.json`");
    assert_eq!(catalogue::gunzip(&write("packed.json.gz", "5")), plain, "packed by the name's end");
    assert_eq!(write("again.json", "5"), plain, "the same seed, the same bytes");
    assert_ne!(write("other.json", "6"), plain);

    let text = String::from_utf8(plain).expect("UTF-8");
    let lines: Vec<&str> = text.split('\n').collect();
    assert_eq!((lines[0], lines[301], lines.len()), ("[", "]", 302));
    let keys = [
        "ID",
        "Name",
        "PackageBaseID",
        "PackageBase",
        "Version",
        "Description",
        "URL",
        "NumVotes",
        "Popularity",
        "OutOfDate",
        "Maintainer",
        "Submitter",
        "FirstSubmitted",
        "LastModified",
        "URLPath",
    ];
    for (at, line) in lines[1..301].iter().enumerate() {
        let record = if at < 299 { line.strip_suffix(',').expect("a comma") } else { line };
        let value: serde_json::Value = serde_json::from_str(record).expect("a record a line");
        let places: Vec<_> = keys.iter().map(|key| record.find(&format!("\"{key}\":"))).collect();
        assert!(places.is_sorted() && places[0] == Some(1), "the keys in their order: {record}");
        assert!(value["Popularity"].is_f64(), "popularity always has a point: {record}");
        for (key, list) in value.as_object().expect("an object").iter().skip(15) {
            assert!(
                !list.as_array().is_some_and(Vec::is_empty),
                "an empty `{key}` is left out: {record}"
            );
        }
    }
}

#[test]
fn demo_mirrors_an_index_of_its_own() {
    let mut process = Process::start(&["--demo", "--demo-packages", "1000"], |_| ());
    let page = |process: &Process, project: &str| {
        process.get(&["", "root", "dev", "+simple", project, ""].join("/"))
    };
    let text = process.told();
    text.says("/root/dev/+simple/' larder-soup");
    process.client.get("/").says("root/pypi");
    let soup = page(&process, "larder-soup").text();
    let link = soup.split('"').find(|it| it.contains("/larder_soup-2.0-py3-none-any.whl"));
    let link = link.unwrap_or_else(|| panic!("{soup}"));
    let (path, _) = link.split_once('#').unwrap_or((link, ""));
    let file = path.trim_start_matches("../");
    assert!(file.starts_with("root/pypi/+upstream/127.0.0.1:"), "{link}");
    let wheel = process.get(&format!("/{file}"));
    assert_eq!((wheel.status, &wheel.body[..2]), (200, &b"PK"[..]));
    assert_eq!(
        page(&process, "larder-hello").files(),
        "larder_hello-0.2-py3-none-any.whl larder_hello-0.1-py3-none-any.whl"
    );
    process.signal("INT");
    assert_eq!(process.wait().code(), Some(0));

    let directory = process.directory.clone();
    let again = Process::start_in(directory, "data", &["--demo", "--demo-packages", "1000"]);
    again.told();
    // It was not asked for before.
    assert_eq!(
        page(&again, "larder-spices").files(),
        "larder_spices-1.1-py3-none-any.whl larder_spices-1.0-py3-none-any.whl"
    );
}

#[test]
fn sighup_takes_mirrors_offline_and_back() {
    let configure = |directory: &Path, is_offline: bool| {
        let text = format!("[python]\nmirrors_offline = {is_offline}\n");
        fs::write(directory.join("larder.toml"), text).expect("a file");
    };
    let arguments = ["--demo", "--demo-packages", "1000", "--config", "larder.toml"];
    let process = Process::start(&arguments, |directory| configure(directory, true));
    let status =
        |project: &str| process.get(&["", "root", "pypi", "+simple", project, ""].join("/")).status;
    // A page that is asked for too early would be known.
    let is_offline = || process.get("/readyz?verbose").text().contains("no upstream is asked");
    wait_until("the mirror", || status("larder-soup") == 504);
    assert!(is_offline());
    configure(process.directory.path(), false);
    process.signal("HUP");
    wait_until("upstreams may be asked", || !is_offline());
    assert_eq!(status("larder-soup"), 200);
    configure(process.directory.path(), true);
    process.signal("HUP");
    wait_until("no upstream may be asked", is_offline);
    assert_eq!(status("larder-spices"), 504);
    assert_eq!(status("larder-soup"), 200, "it is known");
}

#[test]
fn demo_prints_what_to_try_and_answers_it() {
    let mut process = Process::start(&["--demo", "--demo-packages", "1000"], |_| ());
    let text = process.told();
    let base = format!("http://{}", process.client.address);
    let urls: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("curl '")?.strip_suffix('\''))
        .collect();
    assert!(urls.len() >= 3, "{text}");
    for url in urls {
        let target = url.strip_prefix(&base).unwrap_or_else(|| panic!("{url} is not at {base}"));
        let response = process.get(target).expect(200);
        if target.starts_with("/rpc") {
            assert!(
                !response.names().is_empty() && !response.names().starts_with("error"),
                "{url}: {}",
                response.text()
            );
        }
    }
    let password = text.split("root:").nth(1).and_then(|it| it.split('\'').next());
    let shown = text.replace(&base, "URL").replace(password.expect("a password"), "PASSWORD");
    insta::assert_snapshot!("demo", shown);
    // Files that pip would read: the stage's own, and inherited ones.
    for (project, files) in [
        ("hello", "larder_hello-0.2-py3-none-any.whl larder_hello-0.1-py3-none-any.whl"),
        (
            "greetings",
            "larder_greetings-2.0rc1-py3-none-any.whl larder_greetings-1.1-py3-none-any.whl larder_greetings-1.0-py3-none-any.whl",
        ),
        ("colors", "larder_colors-1.0-py3-none-any.whl"),
    ] {
        let page = process.get(&format!("/root/dev/+simple/larder-{project}/"));
        assert_eq!(page.files(), files);
    }
    let articles = process.get("/articles?limit=100").text().matches("\"name\":").count();
    assert_eq!(articles, 20);
    process.get("/docs").expect(200);
    assert_eq!(
        process.client.get("/rpc/v5/info/x").find("ratelimit-limit"),
        None,
        "no limit in a demonstration"
    );
    process.signal("INT");
    assert_eq!(process.wait().code(), Some(0));
}

/// Twenty looks a second at a log that only it writes would be 60 of these waits, and each look of a task at a file some six.
#[test]
fn a_server_that_nobody_asks_hardly_wakes() {
    let process = Process::start(&["--demo", "--demo-packages", "1000"], |_| ());
    process.told();
    wait_until("it to sleep", || {
        let before = process.waits();
        std::thread::sleep(Duration::from_secs(3));
        process.waits().saturating_sub(before) < 20
    });
}
