//! Connections with TLS.

use super::*;

/// A certificate for localhost in files.
pub(super) struct Certificate {
    directory: tempfile::TempDir,
}

impl Certificate {
    pub(super) fn new() -> Self {
        let certificate = Self { directory: tempfile::tempdir().unwrap() };
        certificate.renew();
        certificate
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a new pair.
    fn renew(&self) {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        for (name, text) in
            [("certificate", pair.cert.pem()), ("key", pair.signing_key.serialize_pem())]
        {
            fs::write(self.path("new"), text).unwrap();
            fs::rename(self.path("new"), self.path(name)).unwrap();
        }
    }

    pub(super) fn load(&self) -> Arc<TlsReloader> {
        TlsReloader::load(self.path("certificate"), self.path("key")).unwrap()
    }

    /// An encrypted connection, for whatever bytes a test sends.
    pub(super) fn stream(
        &self,
        server: &Running,
    ) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
        use rustls::pki_types::pem::PemObject;
        let certificate = fs::read(self.path("certificate")).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(rustls::pki_types::CertificateDer::from_pem_slice(&certificate).unwrap())
            .unwrap();
        let config =
            rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let name = "localhost".try_into().unwrap();
        let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        rustls::StreamOwned::new(connection, server.connect())
    }

    /// A client that trusts the certificate in the files now, and no other.
    fn client(&self, server: &Running, is_http1_only: bool) -> reqwest::Client {
        let root =
            reqwest::Certificate::from_pem(&fs::read(self.path("certificate")).unwrap()).unwrap();
        let builder = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([root])
            .resolve("localhost", server.tcp())
            .timeout(PATIENCE);
        if is_http1_only { builder.http1_only() } else { builder }.build().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_speaks_http2_and_http1() {
    install_crypto_provider();
    let certificate = Certificate::new();
    let server = Running::start_on(
        tcp(),
        limits(),
        Some(certificate.load()),
        TrustedProxies::default(),
        PATIENCE,
    );
    let url = format!("https://localhost:{}/peer", server.tcp().port());
    for (is_http1_only, version) in [(false, "HTTP/2.0"), (true, "HTTP/1.1")] {
        let client = certificate.client(&server, is_http1_only);
        let answer = client.get(&url).send().await.unwrap().text().await.unwrap();
        assert_eq!(answer, format!("127.0.0.1 true {version}"));
    }
    let client = certificate.client(&server, true);
    let large = client
        .get(format!("https://localhost:{}/large", server.tcp().port()))
        .send()
        .await
        .unwrap();
    assert_eq!(large.bytes().await.unwrap().len(), 64 << 20);
    let long = format!("https://localhost:{}/{}", server.tcp().port(), "a".repeat(50_000));
    assert_eq!(client.get(long).send().await.unwrap().status(), 414);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_is_used_for_new_connections() {
    install_crypto_provider();
    let certificate = Certificate::new();
    let reloader = certificate.load();
    let server = Running::start_on(
        tcp(),
        limits(),
        Some(reloader.clone()),
        TrustedProxies::default(),
        PATIENCE,
    );
    let url = format!("https://localhost:{}/", server.tcp().port());
    let old = certificate.client(&server, true);
    assert_eq!(old.get(&url).send().await.unwrap().status(), 200);

    certificate.renew();
    let new = certificate.client(&server, true);
    assert!(new.get(&url).send().await.is_err(), "nobody has looked at the files yet");
    let watch = tokio::spawn(reloader.watch(Duration::from_millis(10), server.shutdown.clone()));
    within(async {
        while new.get(&url).send().await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(certificate.load().reload(), Reload::Unchanged);
    assert_eq!(
        old.get(&url).send().await.unwrap().status(),
        200,
        "the open connection keeps its certificate"
    );
    server.stop().await;
    within(watch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_handshake_is_counted_and_cut_off() {
    let certificate = Certificate::new();
    let limits = Limits { header_timeout: SHORT, ..limits() };
    let server = Running::start_on(
        tcp(),
        limits,
        Some(certificate.load()),
        TrustedProxies::default(),
        PATIENCE,
    );
    let answer = server.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(!answer.contains("HTTP/1.1 2"), "{answer}");
    until(|| server.counters.tls_errors.get() == 1).await;
    assert_eq!(server.exchange("").await, "", "silence");
    assert_eq!(server.counters.tls_errors.get(), 2);
    server.stop().await;
}
