//! [`Endpoints`]: what a provider's discovery document says of log-ins; and [`Hosts`]: where its URLs may be.

use reqwest::Url;
use serde_json::Value;

use super::shown;

/// Where the URLs in a discovery document may be: at the scheme, host and port of the issuer, and at further hosts over HTTPS that
/// the operator has named.
#[derive(Clone, Debug)]
pub(super) struct Hosts {
    issuer: Url,
    further: Vec<String>,
}

/// What a discovery document says of log-ins.
#[derive(Clone, Debug)]
pub(super) struct Endpoints {
    /// Where browsers log in; else why that is not known.
    pub(super) authorization: Result<Url, String>,
    /// Where codes are redeemed.
    pub(super) token: Result<Url, String>,
    /// Where browsers log out, if it has a page for that.
    pub(super) end_session: Option<Url>,
    /// Whether each answer names its issuer (RFC 9207).
    pub(super) names_itself: bool,
    /// Whether clients prove who they are by the header `Authorization`, and not in the form.
    pub(super) takes_basic: bool,
}

impl Hosts {
    pub(super) fn new(issuer: &Url, further: &[String]) -> Hosts {
        Hosts { issuer: issuer.clone(), further: further.to_vec() }
    }

    /// Whether a URL is at one of them.
    pub(super) fn admit(&self, url: &Url) -> bool {
        let is_further = || {
            let host = url.host_str().unwrap_or_default();
            let is_usual = url.scheme() == "https" && url.port().is_none();
            is_usual && self.further.iter().any(|further| further == host)
        };
        let has_no_user = url.username().is_empty() && url.password().is_none();
        has_no_user && (url.origin() == self.issuer.origin() || is_further())
    }
}

impl Endpoints {
    /// Reads a discovery document. What it lacks is missed when it is needed.
    pub(super) fn of(document: &Value, hosts: &Hosts) -> Endpoints {
        let url = |name: &str| {
            let text = document[name].as_str().unwrap_or_default();
            let url = Url::parse(text).ok().filter(|url| hosts.admit(url));
            url.ok_or_else(|| {
                format!(
                    "its `{name}` is `{}`: a URL on its own host was expected, or on one of `hosts` of the provider",
                    shown(text)
                )
            })
        };
        let methods = document["token_endpoint_auth_methods_supported"].as_array();
        Endpoints {
            authorization: url("authorization_endpoint"),
            token: url("token_endpoint"),
            end_session: url("end_session_endpoint").ok(),
            names_itself: document["authorization_response_iss_parameter_supported"] == true,
            takes_basic: methods.is_none_or(|it| it.iter().any(|it| it == "client_secret_basic")),
        }
    }
}
