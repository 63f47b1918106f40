//! What belongs together in `[proxy_login]`.

use http::header::{AUTHORIZATION, COOKIE, HOST, HeaderName, ORIGIN};

use super::Config;

/// Headers that say something else already.
const OTHERS: [HeaderName; 6] = [
    AUTHORIZATION,
    COOKIE,
    HOST,
    ORIGIN,
    HeaderName::from_static("x-devpi-auth"),
    HeaderName::from_static("x-larder-hops"),
];

/// Rules about several keys together that do not hold: the key, and the complaint, with `{at}` for where its value came from.
/// `trusts_by_default`: whether nobody has named the proxies.
pub(super) fn problems(config: &Config, trusts_by_default: bool) -> Vec<(&'static str, String)> {
    let (login, mut problems) = (&config.proxy_login, Vec::new());
    let Some(header) = &login.header else { return problems };
    let groups_header = login.groups_header.as_ref();
    let is_taken =
        |header: &HeaderName| OTHERS.contains(header) || *header == config.client_address_header;
    let taken = |name: &str, header: &HeaderName| {
        format!(
            "{name} = \"{header}\" ({{at}}) says something else already: expected a header of its own, such as x-remote-user"
        )
    };
    if is_taken(header) {
        problems.push(("proxy_login.header", taken("proxy_login.header", header)));
    }
    if let Some(groups) = groups_header.filter(|groups| is_taken(groups) || *groups == header) {
        problems.push(("proxy_login.groups_header", taken("proxy_login.groups_header", groups)));
    }
    if groups_header.is_some() == login.groups.is_empty() {
        let text = "proxy_login.groups_header and proxy_login.groups belong together: expected both or neither ({at})";
        problems.push(("proxy_login.header", text.to_owned()));
    }
    if trusts_by_default {
        let text = format!(
            "proxy_login.header = \"{header}\" ({{at}}) lets trusted proxies say who someone is: expected trusted_proxies to be \
             set, because its default trusts every program on this machine"
        );
        problems.push(("proxy_login.header", text));
    }
    problems
}
