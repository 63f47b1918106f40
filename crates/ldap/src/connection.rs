//! [`Connection`]: a connection to a directory, with a bound on time and on bytes for everything that it answers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Host;

use crate::ber::{self, Malformed};
use crate::message::{self, Answer, Entry, Outcome, SUCCESS, Search};
use crate::server_url::ServerUrl;

/// Most bytes that a directory answers to one wish.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Most referrals in one answer.
const REFERRALS_MAX: usize = 1_000;

/// Why a directory gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("it did not answer within {} s", .0.as_secs())]
    Silent(Duration),
    #[error("{0}")]
    Connection(#[from] io::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(
        "it answers with more than {ANSWER_BYTES_MAX} bytes, or more entries than it was asked for"
    )]
    TooMuch,
    #[error("it does not encrypt: {0}")]
    NoStartTls(Outcome),
    #[error("it ended the connection: {0}")]
    Ended(Outcome),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection. A wish whose answer did not come in time leaves it unusable.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    /// Bytes that have arrived and are not read yet.
    arrived: Vec<u8>,
    last_id: u32,
    timeout: Duration,
    /// Bytes that the answer to the present wish may still have.
    bytes_left: usize,
}

impl Connection {
    /// Connects; with `tls` the connection is encrypted, and the server has shown a certificate for its name.
    pub(crate) async fn open(
        url: &ServerUrl,
        tls: Option<&Arc<ClientConfig>>,
        limit: Duration,
    ) -> Result<Connection, ConnectionError> {
        let opening = async {
            let stream = match &url.host {
                Host::Domain(name) => TcpStream::connect((name.as_str(), url.port)).await?,
                Host::Ipv4(address) => TcpStream::connect((*address, url.port)).await?,
                Host::Ipv6(address) => TcpStream::connect((*address, url.port)).await?,
            };
            stream.set_nodelay(true)?;
            match tls {
                None => Ok(Connection::on(stream, limit)),
                Some(tls) if url.is_ldaps => {
                    Ok(Connection::on(encrypted(stream, url, tls).await?, limit))
                }
                Some(tls) => {
                    let mut plain = Connection::on(stream, limit);
                    let outcome = plain.result(&message::start_tls()).await?;
                    if outcome.code != SUCCESS {
                        return Err(ConnectionError::NoStartTls(outcome));
                    }
                    // Whoever is on the way could have put bytes here that would count as encrypted.
                    if !plain.arrived.is_empty() {
                        return Err(Malformed.into());
                    }
                    let stream = encrypted(plain.stream, url, tls).await?;
                    Ok(Connection::on(stream, limit))
                }
            }
        };
        timeout(limit, opening).await.unwrap_or(Err(ConnectionError::Silent(limit)))
    }

    fn on(stream: impl Stream + 'static, timeout: Duration) -> Connection {
        let (arrived, bytes_left) = (Vec::new(), 0);
        Connection { stream: Box::new(stream), arrived, last_id: 0, timeout, bytes_left }
    }

    /// Binds.
    pub(crate) async fn bind(
        &mut self,
        dn: &str,
        password: &str,
    ) -> Result<Outcome, ConnectionError> {
        let limit = self.timeout;
        let wish = message::bind(dn, password.as_bytes());
        timeout(limit, self.result(&wish)).await.unwrap_or(Err(ConnectionError::Silent(limit)))
    }

    /// The entries that a search finds, and its result. Referrals are left out.
    pub(crate) async fn search(
        &mut self,
        search: &Search<'_>,
    ) -> Result<(Vec<Entry>, Outcome), ConnectionError> {
        let limit = self.timeout;
        let searching = async {
            let (mut entries, mut referrals) = (Vec::new(), 0);
            self.send(&message::search(search)).await?;
            loop {
                match self.answer().await? {
                    Answer::Result(outcome) => return Ok((entries, outcome)),
                    Answer::Entry(entry) if entries.len() < search.entries_max as usize => {
                        entries.push(entry);
                    }
                    Answer::Referral if referrals < REFERRALS_MAX => referrals += 1,
                    Answer::Entry(_) | Answer::Referral => return Err(ConnectionError::TooMuch),
                }
            }
        };
        timeout(limit, searching).await.unwrap_or(Err(ConnectionError::Silent(limit)))
    }

    /// Ends the connection, without waiting for the directory.
    pub(crate) async fn end(mut self) {
        let _ = timeout(Duration::from_secs(1), async {
            self.send(&message::unbind()).await?;
            self.stream.shutdown().await
        })
        .await;
    }

    /// The one answer to a wish.
    async fn result(&mut self, wish: &[u8]) -> Result<Outcome, ConnectionError> {
        self.send(wish).await?;
        match self.answer().await? {
            Answer::Result(outcome) => Ok(outcome),
            Answer::Entry(_) | Answer::Referral => Err(Malformed.into()),
        }
    }

    async fn send(&mut self, wish: &[u8]) -> io::Result<()> {
        self.last_id += 1;
        self.bytes_left = ANSWER_BYTES_MAX;
        self.stream.write_all(&message::message(self.last_id, wish)).await?;
        self.stream.flush().await
    }

    /// The next answer to the last wish.
    async fn answer(&mut self) -> Result<Answer, ConnectionError> {
        let (id, answer) = message::answer(&self.message().await?)?;
        match answer {
            // The directory may say at any time that it ends the connection.
            Answer::Result(outcome) if id == 0 => Err(ConnectionError::Ended(outcome)),
            answer if id == self.last_id => Ok(answer),
            _ => Err(Malformed.into()),
        }
    }

    /// The content of the next message.
    async fn message(&mut self) -> Result<Vec<u8>, ConnectionError> {
        loop {
            if self.arrived.first().is_some_and(|tag| *tag != ber::SEQUENCE) {
                return Err(Malformed.into());
            }
            let length = ber::length(self.arrived.get(1..).unwrap_or_default())?;
            if let Some((length, head)) = length {
                let begin = 1 + head;
                // Where numbers have 32 bits, the sum would overflow first.
                if length > self.bytes_left.saturating_sub(begin) {
                    return Err(ConnectionError::TooMuch);
                }
                let end = begin + length;
                if self.arrived.len() >= end {
                    let content = self.arrived[begin..end].to_vec();
                    self.arrived.drain(..end);
                    self.bytes_left -= end;
                    return Ok(content);
                }
            }
            let mut bytes = [0; 8192];
            match self.stream.read(&mut bytes).await? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                read => self.arrived.extend_from_slice(&bytes[..read]),
            }
        }
    }
}

async fn encrypted(
    stream: impl Stream + 'static,
    url: &ServerUrl,
    tls: &Arc<ClientConfig>,
) -> io::Result<impl Stream + 'static> {
    let name = match &url.host {
        Host::Domain(name) => ServerName::try_from(name.clone())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
        Host::Ipv4(address) => ServerName::from(std::net::IpAddr::from(*address)),
        Host::Ipv6(address) => ServerName::from(std::net::IpAddr::from(*address)),
    };
    TlsConnector::from(tls.clone()).connect(name, stream).await
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::net::SocketAddr;

    use tokio::net::TcpListener;

    use super::*;
    use crate::ber::{ENUMERATED, INTEGER, SEQUENCE, element, number, octets};
    use crate::message::Scope;

    /// A server that answers anything with these bytes, and then waits.
    async fn answering(bytes: Vec<u8>) -> (ServerUrl, impl Future<Output = ()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address: SocketAddr = listener.local_addr().expect("an address");
        let url = format!("ldap://{address}").parse().expect("a URL");
        let serving = async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut wish = [0; 1024];
            let _ = stream.read(&mut wish).await;
            let _ = stream.write_all(&bytes).await;
            std::future::pending::<()>().await;
        };
        (url, serving)
    }

    fn outcome(id: u32, tag: u8, code: u32) -> Vec<u8> {
        let wish = element(tag, &[&number(ENUMERATED, code), &octets(b""), &octets(b"")]);
        element(SEQUENCE, &[&number(INTEGER, id), &wish])
    }

    async fn bound(bytes: Vec<u8>) -> String {
        let (url, serving) = answering(bytes).await;
        let binding = async {
            let limit = Duration::from_secs(1);
            let mut connection = Connection::open(&url, None, limit).await.expect("a connection");
            match connection.bind("uid=a", "b").await {
                Ok(outcome) => outcome.to_string(),
                Err(broken) => broken.to_string(),
            }
        };
        tokio::select! { said = binding => said, () = serving => unreachable!("it waits") }
    }

    #[tokio::test]
    async fn answers_are_bounded() {
        assert_eq!(bound(outcome(1, 0x61, 49)).await, "result 49 (invalidCredentials)");
        assert_eq!(bound(outcome(2, 0x61, 0)).await, "the answer is malformed");
        let ended = "it ended the connection: result 52 (unavailable)";
        assert_eq!(bound(outcome(0, 0x78, 52)).await, ended);
        let long = [&[0x30, 0x83, 0x10, 0, 0][..], &[0; 100]].concat();
        assert!(bound(long).await.starts_with("it answers with more than 1048576 bytes"));
        let longest = [&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff][..], &[0; 100]].concat();
        assert!(bound(longest).await.starts_with("it answers with more than 1048576 bytes"));
        assert_eq!(
            bound(b"HTTP/1.1 400 Bad Request\r\n".to_vec()).await,
            "the answer is malformed"
        );
        assert_eq!(bound(vec![0x30, 0x80]).await, "the answer is malformed");
        assert_eq!(bound(vec![0x30]).await, "it did not answer within 1 s");
        // So deep that recursion would end the process.
        let nested = (0..10_000).fold(Vec::new(), |inner, _| element(SEQUENCE, &[&inner]));
        assert_eq!(bound(nested).await, "the answer is malformed");
    }

    #[tokio::test]
    async fn a_search_finds_no_more_than_was_asked_for() {
        let entry = element(0x64, &[&octets(b"uid=a"), &element(SEQUENCE, &[])]);
        let entry = element(SEQUENCE, &[&number(INTEGER, 1), &entry]);
        let referral = element(SEQUENCE, &[&number(INTEGER, 1), &element(0x73, &[])]);
        let found = |bytes: Vec<u8>| async move {
            let (url, serving) = answering(bytes).await;
            let searching = async {
                let limit = Duration::from_secs(1);
                let mut connection =
                    Connection::open(&url, None, limit).await.expect("a connection");
                let search = Search {
                    base: "",
                    scope: Scope::Base,
                    filter: Vec::new(),
                    attribute: "uid",
                    entries_max: 2,
                    seconds_max: 1,
                };
                connection.search(&search).await.map(|(entries, _)| entries.len())
            };
            tokio::select! { found = searching => found, () = serving => unreachable!("it waits") }
        };
        let done = outcome(1, 0x65, 0);
        let two = [entry.clone(), referral.clone(), entry.clone(), done.clone()].concat();
        assert_eq!(found(two).await.expect("two"), 2);
        let three = [entry.clone(), entry.clone(), entry, done.clone()].concat();
        assert!(matches!(found(three).await, Err(ConnectionError::TooMuch)));
        let referrals = [referral.repeat(REFERRALS_MAX + 1), done].concat();
        assert!(matches!(found(referrals).await, Err(ConnectionError::TooMuch)));
    }
}
