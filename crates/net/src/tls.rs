//! TLS with a certificate that can be renewed while the server runs.
//!
//! PEM files -> [`TlsReloader`] -> handshakes. Each handshake uses the pair that is current when it begins; open connections
//! keep theirs. A pair that does not parse or does not match never replaces a valid one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, ServerConfig, version};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Why a certificate and key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read `{}`: {source}; it must be readable for the user that larder runs as", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file of the certificate holds none.
    #[error(
        "`{}` holds no certificate; expected a PEM file with BEGIN CERTIFICATE, the server's own certificate first \
         and the intermediate ones after it",
        path.display()
    )]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// The file of the key holds none.
    #[error(
        "`{}` holds no private key; expected a PEM file with BEGIN PRIVATE KEY, BEGIN EC PRIVATE KEY or BEGIN RSA \
         PRIVATE KEY, without a passphrase",
        path.display()
    )]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// A file is damaged.
    #[error("`{}` is not valid PEM: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The certificate and the key do not belong together.
    #[error("`{}` is not the private key of the certificate in `{}`", key.display(), certificate.display())]
    Mismatch {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// rustls cannot use the certificate or the key.
    #[error("`{}` and `{}` cannot be used together: {source}", certificate.display(), key.display())]
    Unusable {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// rustls's error.
        source: rustls::Error,
    },
}

/// The outcome of [`TlsReloader::reload`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// The files have not changed since they were last read.
    Unchanged,
    /// New handshakes use the new pair.
    Renewed,
    /// The files have changed but cannot be used; the old pair stays. Logged once per change.
    KeptOld,
}

/// A certificate and its key, read from files and read again when those change.
#[derive(Debug)]
pub struct TlsReloader {
    certificate_path: PathBuf,
    key_path: PathBuf,
    current: Arc<CurrentPair>,
    config: Arc<ServerConfig>,
    /// The files as they were last read, usable or not.
    seen: Mutex<Stamps>,
}

impl TlsReloader {
    /// Reads certificate chain and key (PEM).
    ///
    /// # Errors
    /// [`TlsError`] if the pair cannot be used.
    pub fn load(
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Result<Arc<Self>, TlsError> {
        let (certificate_path, key_path) = (certificate.into(), key.into());
        // The stamps come first, so that the next look notices a change during the reading.
        let seen = Stamps::of(&certificate_path, &key_path);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let pair = read_pair(&certificate_path, &key_path, &provider)?;
        let current = Arc::new(CurrentPair(ArcSwap::from_pointee(pair)));
        let unusable = |source| TlsError::Unusable {
            certificate: certificate_path.clone(),
            key: key_path.clone(),
            source,
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map_err(unusable)?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(unusable)?;
        Ok(Arc::new(Self {
            certificate_path,
            key_path,
            current,
            config: Arc::new(config),
            seen: Mutex::new(seen),
        }))
    }

    /// Looks at the files and takes them over if they have changed and can be used. Blocks on the file system.
    pub fn reload(&self) -> Reload {
        let stamps = Stamps::of(&self.certificate_path, &self.key_path);
        let mut seen = self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if *seen == stamps {
            return Reload::Unchanged;
        }
        *seen = stamps;
        match read_pair(&self.certificate_path, &self.key_path, self.config.crypto_provider()) {
            Ok(pair) => {
                self.current.0.store(Arc::new(pair));
                tracing::info!(certificate = %self.certificate_path.display(), "renewed the TLS certificate");
                Reload::Renewed
            }
            Err(error) => {
                tracing::error!(%error, "cannot renew the TLS certificate; the old one stays in use");
                Reload::KeptOld
            }
        }
    }

    /// Reloads every `interval` until `shutdown`. Polling sees what file notifications miss: network file systems,
    /// bind mounts, and directories that are swapped whole by changing a symbolic link.
    pub async fn watch(self: Arc<Self>, interval: Duration, shutdown: CancellationToken) {
        while shutdown.run_until_cancelled(tokio::time::sleep(interval)).await.is_some() {
            let reloader = self.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || reloader.reload()).await {
                tracing::error!(%error, "the check for a renewed TLS certificate failed");
            }
        }
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.clone())
    }
}

/// Makes aws-lc-rs the provider of whatever in this process uses rustls without naming one. Call it at the start;
/// further calls change nothing.
pub fn install_crypto_provider() {
    // An error means that there is one already.
    let _ = aws_lc_rs::default_provider().install_default();
}

/// The pair for new handshakes.
#[derive(Debug)]
struct CurrentPair(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for CurrentPair {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

fn read_pair(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let damaged =
        |path: &Path, error| TlsError::Damaged { path: path.to_owned(), problem: problem(error) };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&read(certificate)?)
        .collect::<Result<_, _>>()
        .map_err(|error| damaged(certificate, error))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: certificate.to_owned() });
    }
    let private_key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::NoKey { path: key.to_owned() },
        error => damaged(key, error),
    })?;
    CertifiedKey::from_der(chain, private_key, provider).map_err(|source| {
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        match source {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                TlsError::Mismatch { certificate, key }
            }
            source => TlsError::Unusable { certificate, key, source },
        }
    })
}

/// What is wrong with a PEM file: the library shows the bytes of its lines as numbers.
fn problem(error: pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!("the line END {} is missing", String::from_utf8_lossy(&end_marker))
        }
        pem::Error::IllegalSectionStart { line } => {
            format!("`{}` begins no section", String::from_utf8_lossy(&line).trim_end())
        }
        error => error.to_string(),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })
}

/// What distinguishes two versions of the files: time, size and inode, through symbolic links.
#[derive(Debug, PartialEq, Eq)]
struct Stamps([Option<(SystemTime, u64, u64)>; 2]);

impl Stamps {
    fn of(certificate: &Path, key: &Path) -> Self {
        Self([certificate, key].map(|path| {
            use std::os::unix::fs::MetadataExt;
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PEM of a new certificate for localhost, and of its key.
    fn pair() -> (String, String) {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (pair.cert.pem(), pair.signing_key.serialize_pem())
    }

    struct Files {
        directory: tempfile::TempDir,
    }

    impl Files {
        fn new((certificate, key): (String, String)) -> Self {
            let files = Self { directory: tempfile::tempdir().unwrap() };
            files.write("certificate.pem", &certificate);
            files.write("key.pem", &key);
            files
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        /// Renames the file into place, as certbot and Kubernetes do, so that the inode changes even within one tick of the
        /// clock.
        fn write(&self, name: &str, text: &str) {
            fs::write(self.path("new"), text).unwrap();
            fs::rename(self.path("new"), self.path(name)).unwrap();
        }

        fn load(&self) -> Result<Arc<TlsReloader>, TlsError> {
            TlsReloader::load(self.path("certificate.pem"), self.path("key.pem"))
        }
    }

    #[track_caller]
    fn check_error(certificate: &str, key: &str, error: &str) {
        let files = Files::new((certificate.to_owned(), key.to_owned()));
        let found = files.load().unwrap_err().to_string();
        assert_eq!(found.replace(&files.path("").display().to_string(), ""), error);
    }

    #[test]
    fn errors_name_the_file_and_what_was_expected() {
        let (certificate, key) = pair();
        check_error(
            "",
            &key,
            "`certificate.pem` holds no certificate; expected a PEM file with BEGIN CERTIFICATE, the server's own certificate first and the intermediate ones after it",
        );
        check_error(
            &certificate,
            "",
            "`key.pem` holds no private key; expected a PEM file with BEGIN PRIVATE KEY, BEGIN EC PRIVATE KEY or BEGIN RSA PRIVATE KEY, without a passphrase",
        );
        check_error(
            &key,
            &key,
            "`certificate.pem` holds no certificate; expected a PEM file with BEGIN CERTIFICATE, the server's own certificate first and the intermediate ones after it",
        );
        check_error(
            &certificate,
            &certificate,
            "`key.pem` holds no private key; expected a PEM file with BEGIN PRIVATE KEY, BEGIN EC PRIVATE KEY or BEGIN RSA PRIVATE KEY, without a passphrase",
        );
        check_error(
            &certificate[..certificate.len() / 2],
            &key,
            "`certificate.pem` is not valid PEM: the line END CERTIFICATE is missing",
        );
        check_error(
            "-----BEGIN CERTIFICATE\n",
            &key,
            "`certificate.pem` is not valid PEM: `-----BEGIN CERTIFICATE` begins no section",
        );
        check_error(
            &certificate,
            &pair().1,
            "`key.pem` is not the private key of the certificate in `certificate.pem`",
        );
        let absent = TlsReloader::load("/nowhere/certificate.pem", "/nowhere/key.pem")
            .unwrap_err()
            .to_string();
        assert!(absent.starts_with("cannot read `/nowhere/certificate.pem`"), "{absent}");
    }

    #[test]
    fn a_renewed_pair_is_taken_over_and_a_broken_one_is_not() {
        let files = Files::new(pair());
        let reloader = files.load().unwrap();
        let first = reloader.current.0.load_full();
        assert_eq!(reloader.reload(), Reload::Unchanged);

        let (certificate, key) = pair();
        files.write("certificate.pem", &certificate);
        assert_eq!(reloader.reload(), Reload::KeptOld, "the key is still the old one's");
        assert_eq!(reloader.reload(), Reload::Unchanged, "and this is said only once");
        assert!(Arc::ptr_eq(&first, &reloader.current.0.load_full()));

        files.write("key.pem", &key);
        assert_eq!(reloader.reload(), Reload::Renewed);
        let second = reloader.current.0.load_full();
        assert_ne!(first.cert, second.cert);

        fs::remove_file(files.path("key.pem")).unwrap();
        assert_eq!(reloader.reload(), Reload::KeptOld);
        files.write("key.pem", &key);
        assert_eq!(reloader.reload(), Reload::Renewed);
        assert_eq!(second.cert, reloader.current.0.load_full().cert);
    }
}
