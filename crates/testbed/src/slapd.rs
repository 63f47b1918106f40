//! A directory (OpenLDAP's slapd) for one test, in a temporary directory. A test can change what it knows, stop it, start it
//! again, and freeze it.
//!
//! It has `alice` (password `wonderland`) and `bob` (`builder`) below `ou=people,dc=example,dc=org`, the groups `developers`
//! (both) and `ops` (bob) below `ou=groups,…`, and below `ou=hidden,…`, which only `cn=larder,dc=example,dc=org` (`service word`)
//! may read, `carol` (`secret`).

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::daemon::{Daemon, free_address};
use crate::postgres::said;
use crate::signals::FrozenServer;

/// A running directory; it ends with the test's process at the latest.
pub struct Slapd {
    /// Its ports, without encryption or with StartTLS, and with encryption from the beginning.
    ports: [u16; 2],
    server: Mutex<Daemon>,
    directory: TempDir,
}

const ENTRIES: &str = "\
dn: dc=example,dc=org
objectClass: organization
objectClass: dcObject
o: example
dc: example

dn: cn=larder,dc=example,dc=org
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: larder
userPassword: service word

dn: ou=people,dc=example,dc=org
objectClass: organizationalUnit
ou: people

dn: ou=groups,dc=example,dc=org
objectClass: organizationalUnit
ou: groups

dn: ou=hidden,dc=example,dc=org
objectClass: organizationalUnit
ou: hidden

dn: uid=alice,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: alice
cn: Alice
sn: Liddell
userPassword: wonderland

dn: uid=bob,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: bob
cn: Bob
sn: Builder
userPassword: builder

dn: uid=carol,ou=hidden,dc=example,dc=org
objectClass: inetOrgPerson
uid: carol
cn: Carol
sn: Hidden
userPassword: secret

dn: cn=developers,ou=groups,dc=example,dc=org
objectClass: groupOfNames
cn: developers
member: uid=alice,ou=people,dc=example,dc=org
member: uid=bob,ou=people,dc=example,dc=org

dn: cn=ops,ou=groups,dc=example,dc=org
objectClass: groupOfNames
cn: ops
member: uid=bob,ou=people,dc=example,dc=org
";

impl Slapd {
    /// The DN that may change everything, and its password.
    pub const ROOT: (&str, &str) = ("cn=root,dc=example,dc=org", "root word");

    /// Starts a directory. If it is not installed, the result is `None` and a line says so.
    pub fn start() -> Option<Slapd> {
        let (server, tool) = ["/usr/sbin/slapd", "/usr/bin/ldapmodify"].map(Path::new).into();
        if !server.exists() || !tool.exists() {
            crate::skipped("OpenLDAP was not found (Debian packages slapd, ldap-utils)");
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        fs::create_dir(path.join("data")).expect("a directory");
        certify(path);
        fs::write(path.join("slapd.conf"), configuration(path)).expect("a file");
        fs::write(path.join("entries"), ENTRIES).expect("a file");
        // Some systems confine the program at its own place to its own files.
        // By another program: a child that some other thread starts meanwhile would hold this file open for writing, and what is
        // open for writing cannot be run.
        said(Command::new("cp").arg(server).arg(path.join("slapd")));
        let mut add = Command::new(path.join("slapd"));
        add.args(["-T", "add", "-f"]).arg(path.join("slapd.conf"));
        said(add.arg("-l").arg(path.join("entries")));
        let ports = [free_address(), free_address()].map(|address| address.port());
        Some(Slapd { ports, server: Mutex::new(run(path, ports)), directory })
    }

    /// Its URL, for StartTLS or without encryption.
    pub fn url(&self) -> String {
        format!("ldap://localhost:{}", self.ports[0])
    }

    /// Its URL with encryption from the beginning.
    pub fn ldaps_url(&self) -> String {
        format!("ldaps://localhost:{}", self.ports[1])
    }

    /// The certificate of the authority that signed its own, which is for `localhost`.
    pub fn ca_file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Changes entries, by LDIF.
    ///
    /// # Panics
    /// If it refuses.
    #[track_caller]
    pub fn change(&self, ldif: &str) {
        let (dn, password) = Slapd::ROOT;
        let mut tool = Command::new("ldapmodify");
        tool.args(["-x", "-H", &self.url(), "-D", dn, "-w", password]).stdin(Stdio::piped());
        tool.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut tool = tool.spawn().expect("the tool");
        let mut input = tool.stdin.take().expect("a pipe");
        input.write_all(ldif.as_bytes()).expect("a tool that reads");
        drop(input);
        let mut said = String::new();
        tool.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        assert!(tool.wait().expect("an end").success(), "{said}");
    }

    /// How many binds it has seen whose DN begins so.
    pub fn binds(&self, dn: &str) -> usize {
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        let bind = format!("BIND dn=\"{dn}");
        log.lines().filter(|line| line.contains(&bind) && line.contains("method=")).count()
    }

    /// Ends it at once.
    pub fn stop(&self) {
        self.server.lock().expect("no panic").stop();
    }

    /// Starts it again, at the same ports.
    pub fn resume(&self) {
        *self.server.lock().expect("no panic") = run(self.directory.path(), self.ports);
    }

    /// Freezes it: connections are made, but nothing answers until the returned value is dropped.
    pub fn freeze(&self) -> FrozenServer {
        let pid = self.server.lock().expect("no panic").pid().as_raw_pid();
        FrozenServer::stop(pid)
    }
}

/// Starts it, and waits until it answers.
fn run(directory: &Path, ports: [u16; 2]) -> Daemon {
    let mut command = Command::new(directory.join("slapd"));
    // With a level of logging it stays in the foreground, and logs to its standard error.
    command.args(["-d", "stats", "-f"]).arg(directory.join("slapd.conf"));
    command.args(["-h", &format!("ldap://127.0.0.1:{} ldaps://127.0.0.1:{}", ports[0], ports[1])]);
    let (log, address) = (directory.join("log"), ([127, 0, 0, 1], ports[1]).into());
    let running = Daemon::start(&mut command, Signal::KILL, &log, address, || true);
    running.unwrap_or_else(|log| panic!("slapd does not run: {log}"))
}

/// Writes the certificate of an authority, and one for `localhost` that it has signed.
fn certify(directory: &Path) {
    let mut authority = CertificateParams::new([]).expect("parameters");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(authority, key).expect("a certificate");
    let key = KeyPair::generate().expect("a key");
    let own = CertificateParams::new(["localhost".to_owned()]).expect("parameters");
    let own = own.signed_by(&key, &authority).expect("a certificate");
    for (name, text) in
        [("ca.pem", authority.pem()), ("own.pem", own.pem()), ("key.pem", key.serialize_pem())]
    {
        fs::write(directory.join(name), text).expect("a file");
    }
}

fn configuration(directory: &Path) -> String {
    let schemas: String = ["core", "cosine", "inetorgperson"]
        .map(|name| format!("include /etc/ldap/schema/{name}.schema\n"))
        .concat();
    let (directory, (root, password)) = (directory.display(), Slapd::ROOT);
    format!(
        "{schemas}modulepath /usr/lib/ldap\nmoduleload back_mdb\nsizelimit unlimited\n\
         TLSCertificateFile {directory}/own.pem\nTLSCertificateKeyFile {directory}/key.pem\n\
         database mdb\nsuffix dc=example,dc=org\nrootdn {root}\nrootpw \"{password}\"\n\
         directory {directory}/data\nmaxsize 33554432\n\
         access to attrs=userPassword by anonymous auth by * none\n\
         access to dn.subtree=ou=hidden,dc=example,dc=org attrs=entry,uid by dn.exact=cn=larder,dc=example,dc=org read by * auth\n\
         access to dn.subtree=ou=hidden,dc=example,dc=org by dn.exact=cn=larder,dc=example,dc=org read by * none\n\
         access to * by * read\n"
    )
}
