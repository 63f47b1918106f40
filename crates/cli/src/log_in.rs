//! `larder login` and `larder logout`: a token for this machine, by a browser in which its user is logged in.
//!
//! server -> two codes (RFC 8628) -> the user approves one in a browser, however they log in there -> a token that ends ->
//! [`KeptTokens`], where `larder use` and the commands with `--server` find it

use std::io::Write;
use std::time::{Duration, Instant};

use clap::Args;
use config::Environment;
use import::clients;
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};
use serde_json::Value;
use state::text::counted;

use super::kept_tokens::{KeptToken, KeptTokens};
use super::remote::{TOKEN_USER, server_url};
use super::{Exit, note, print, runtime};

/// Time to connect, and for a whole answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The kind of grant, as RFC 8628 names it.
const GRANT: &str = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code";

/// The end of the help.
pub(super) const HELP: &str = "The command shows a URL and a code: open the URL in any browser, also on another machine, log in there, and approve \
    the code. The token is yours alone, ends after 30 days unless you say otherwise there, and stands on the page of your account. `larder logout` \
    revokes it.";

#[derive(Args)]
pub(super) struct LogIn {
    // A comment for the help, where angle brackets would be shown.
    #[allow(rustdoc::bare_urls)]
    /// The server: https://larder.example
    url: String,
}

#[derive(Args)]
pub(super) struct LogOut {
    // As above.
    #[allow(rustdoc::bare_urls)]
    /// The server: https://larder.example
    url: String,
}

fn client() -> Result<Client, Exit> {
    let builder = || {
        Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            .redirect(Policy::none())
            .user_agent(format!("larder/{}", version::VERSION))
    };
    net::build_client(builder)
        .map_err(|error| Exit::failure(format!("cannot use the network: {error}")))
}

fn place(base: &Url, parts: &[&str]) -> Url {
    let mut url = base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(parts);
    }
    url
}

fn no_answer(url: &Url, error: reqwest::Error) -> Exit {
    let hint = clients::about_authority(&error).map(str::to_owned);
    Exit::failure(format!(
        "no answer from {url}: {}",
        hint.unwrap_or_else(|| net::reason_of(error))
    ))
}

/// The status and the JSON of an answer to this form.
async fn post(client: &Client, url: &Url, form: String) -> Result<(StatusCode, Value), Exit> {
    let told = |error| no_answer(url, error);
    let request = client.post(url.clone()).body(form);
    let request = request.header("Content-Type", "application/x-www-form-urlencoded");
    let mut response = request.send().await.map_err(told)?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(told)? {
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(Exit::failure(format!("{url} sends too much")));
        }
        body.extend_from_slice(&chunk);
    }
    let value = serde_json::from_slice(&body).unwrap_or_default();
    Ok((status, value))
}

impl LogIn {
    /// Asks for a log-in, waits until somebody approves it, and keeps the token.
    ///
    /// # Errors
    /// The server is none of ours, or nobody approved in time.
    pub(super) fn run(self, environment: &Environment, out: &mut dyn Write) -> Result<(), Exit> {
        let base = server_url(&self.url).map_err(Exit::usage)?;
        // Whether the token can be kept is known before anybody approves.
        KeptTokens::read(environment)?.write()?;
        let got = runtime()?.block_on(wait(&base))?;
        let mut kept = KeptTokens::read(environment)?;
        let older = kept.of(&base).filter(|older| older.server == base.as_str());
        let text = |name: &str| got[name].as_str().unwrap_or_default();
        kept.keep(&base, text("access_token"), text("user"))?;
        let days = got["expires_in"].as_u64().map(|seconds| (seconds + 43_200) / 86_400);
        let days = days.filter(|days| *days > 0);
        let days = days.map_or_else(String::new, |days| format!(" for {}", counted(days, "day")));
        let path = kept.path().display();
        let text =
            format!("logged in at {base} as {}{days}; the token is in {path}\n", text("user"));
        print(&text, out)?;
        // It is forgotten here, so nobody would revoke it.
        let Some(older) = older else { return Ok(()) };
        match runtime()?.block_on(revoke(&older)) {
            Ok(()) => print("the token of the log-in before is revoked\n", out),
            Err(_) => {
                note(
                    "the token of the log-in before could not be revoked: it stands on the page of your account until it ends",
                );
                Ok(())
            }
        }
    }
}

/// The answer with the token.
async fn wait(base: &Url) -> Result<Value, Exit> {
    let client = client()?;
    let (status, begun) =
        post(&client, &place(base, &["+tokens", "device"]), String::new()).await?;
    let text = |name: &str| begun[name].as_str().unwrap_or_default();
    let code = text("device_code");
    if !status.is_success() || code.is_empty() {
        let said = begun["detail"].as_str().unwrap_or("is this the URL of a Larder, not too old?");
        return Err(Exit::failure(format!("{base} answers {}: {said}", status.as_u16())));
    }
    note(&format!("open {} in a browser", text("verification_uri_complete")));
    note(&format!("and approve the code {}", text("user_code")));
    let seconds = |name: &str, usual: u64| begun[name].as_u64().unwrap_or(usual).clamp(1, 3_600);
    let ends = Instant::now() + Duration::from_secs(seconds("expires_in", 600));
    let mut interval = Duration::from_secs(seconds("interval", 5));
    let encoded: String = form_urlencoded::byte_serialize(code.as_bytes()).collect();
    let url = place(base, &["+tokens", "device", "token"]);
    while Instant::now() < ends {
        tokio::time::sleep(interval).await;
        let form = format!("grant_type={GRANT}&client_id=larder&device_code={encoded}");
        // The line or the server may be gone for a moment, and somebody may have approved already.
        let Ok((status, answer)) = post(&client, &url, form).await else {
            interval += Duration::from_secs(5);
            continue;
        };
        match answer["error"].as_str() {
            None if status.is_success() && answer["access_token"].is_string() => return Ok(answer),
            Some("authorization_pending") => {}
            Some("slow_down") => interval += Duration::from_secs(5),
            // The server is busy or restarts.
            _ if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {}
            error => {
                let said = answer["error_description"].as_str().or(error).unwrap_or("no reason");
                return Err(Exit::failure(format!("{base} answers {}: {said}", status.as_u16())));
            }
        }
    }
    Err(Exit::failure("nobody approved the log-in in time: begin again"))
}

impl LogOut {
    /// Revokes the token of a server, and forgets it.
    ///
    /// # Errors
    /// There is none, or the server does not answer; then it stays.
    pub(super) fn run(self, environment: &Environment, out: &mut dyn Write) -> Result<(), Exit> {
        let base = server_url(&self.url).map_err(Exit::usage)?;
        let mut kept = KeptTokens::read(environment)?;
        let found = kept.of(&base);
        let found = found.ok_or_else(|| Exit::failure(format!("not logged in at {base}")))?;
        runtime()?.block_on(revoke(&found))?;
        kept.forget(&found.server)?;
        print(&format!("logged out at {}\n", found.server), out)
    }
}

/// Revokes a token; one that has ended already is no error.
///
/// # Errors
/// The server does not answer, or refuses.
async fn revoke(kept: &KeptToken) -> Result<(), Exit> {
    // The text of a token is more than its id, and is taken for it: only the id goes into a path.
    let id = kept.token.split('_').nth(1).unwrap_or_default();
    let server: Url = kept.server.parse().map_err(Exit::failure)?;
    let request = client()?.delete(place(&server, &["+tokens", id]));
    let request = request.basic_auth(TOKEN_USER, Some(&kept.token));
    let failed = |error| no_answer(&server, error);
    let status = request.send().await.map_err(failed)?.status();
    if status.is_success() || status == StatusCode::UNAUTHORIZED {
        return Ok(());
    }
    Err(Exit::failure(format!("{server} answers {}: the token stays", status.as_u16())))
}
