//! [`Brand`]: how the operator's site presents itself, made once of `[site]`: its title, its links, and the style sheet in its
//! colour.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use config::{Config, SiteLink};
use reply::Reply;
use sha2::{Digest as _, Sha256};

/// Hexadecimal digits of a digest that make a name.
const NAME_DIGITS: usize = 16;

/// How all pages look, in the colour of this program.
const STYLE: &str = include_str!("../../templates/style.css");

/// The presentation of this site.
#[derive(Debug)]
pub(crate) struct Brand {
    pub(crate) title: String,
    /// A sentence about it.
    pub(crate) line: Option<String>,
    pub(crate) links: Vec<SiteLink>,
    /// How all pages look.
    pub(crate) style: Asset,
}

impl Brand {
    pub(crate) fn of(config: &Config) -> Brand {
        let site = &config.site;
        let mut style = STYLE.to_owned();
        if let Some(accent) = site.accent {
            // The colours on it are black or white enough on either.
            let (light, dark) = (accent.light(), accent.dark());
            style.push_str(&format!(
                "\n:root{{--accent:{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{--accent:{dark}}}}}\n"
            ));
        }
        Brand {
            title: site.title.0.clone(),
            line: site.line.as_ref().map(|line| line.0.clone()),
            links: site.links.clone(),
            style: Asset::style(style),
        }
    }
}

/// A file of all pages.
#[derive(Debug)]
pub(crate) struct Asset {
    /// Its path below the root of this server, without the leading slash.
    pub(crate) path: String,
    /// Its hash for `integrity` and for a policy: `sha256-` and the digest in base64.
    pub(crate) integrity: String,
    pub(crate) reply: Reply,
}

impl Asset {
    /// A style sheet.
    pub(crate) fn style(text: String) -> Asset {
        Asset::new("css", "text/css; charset=utf-8", text)
    }

    pub(crate) fn new(extension: &str, content_type: &'static str, text: String) -> Asset {
        let digest = Sha256::digest(&text);
        let digits = hex::encode(digest);
        Asset {
            path: format!("+static/larder-{}.{extension}", &digits[..NAME_DIGITS]),
            integrity: format!("sha256-{}", BASE64_STANDARD.encode(digest)),
            reply: Reply::tagged(content_type, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assets_are_named_by_their_digests() {
        // The well-known SHA-256 of the empty text.
        let empty = Asset::new("css", "text/css", String::new());
        assert_eq!(empty.path, "+static/larder-e3b0c44298fc1c14.css");
        assert_eq!(empty.integrity, "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        assert_ne!(Asset::new("css", "text/css", "a".to_owned()).path, empty.path);
    }
}
