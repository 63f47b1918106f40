//! [`Brand`]: how the operator's site presents itself, made once of `[site]`: its title, its logo, its links, and the style sheet
//! in its colour.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use config::{Config, SiteLink};
use reply::Reply;
use sha2::{Digest as _, Sha256};

/// Hexadecimal digits of a digest that make a name.
const NAME_DIGITS: usize = 16;

/// Bytes of a logo, which is on every page.
const LOGO_BYTES_MAX: u64 = 64 << 10;

/// How all pages look, in the colour of this program.
const STYLE: &str = include_str!("../../templates/style.css");

/// The presentation of this site.
#[derive(Debug)]
pub(crate) struct Brand {
    pub(crate) title: String,
    /// A sentence about it.
    pub(crate) line: Option<String>,
    /// A picture before the title.
    pub(crate) logo: Option<Asset>,
    pub(crate) links: Vec<SiteLink>,
    /// How all pages look.
    pub(crate) style: Asset,
}

impl Brand {
    /// # Errors
    /// The file of the logo cannot be read, is too large, or is no picture.
    pub(crate) fn of(config: &Config) -> anyhow::Result<Brand> {
        let site = &config.site;
        let mut style = STYLE.to_owned();
        if let Some(accent) = site.accent {
            // The colours on it are black or white enough on either.
            let (light, dark) = (accent.light(), accent.dark());
            style.push_str(&format!(
                "\n:root{{--accent:{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{--accent:{dark}}}}}\n"
            ));
        }
        let named = |path: &Path| format!("site.logo = {}", path.display());
        let logo = site.logo.as_deref().map(|path| read_logo(path).with_context(|| named(path)));
        Ok(Brand {
            title: site.title.0.clone(),
            line: site.line.as_ref().map(|line| line.0.clone()),
            logo: logo.transpose()?,
            links: site.links.clone(),
            style: Asset::style(style),
        })
    }

    /// The asset at a path below the root of this server, if it is one of this site.
    pub(crate) fn asset(&self, path: &str) -> Option<&Asset> {
        [&self.style].into_iter().chain(&self.logo).find(|asset| asset.path == path)
    }
}

fn read_logo(path: &Path) -> anyhow::Result<Asset> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(LOGO_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LOGO_BYTES_MAX {
        bail!("the file is too large; expected at most {} KiB", LOGO_BYTES_MAX >> 10);
    }
    let (extension, content_type) = match &bytes[..] {
        [0x89, b'P', b'N', b'G', ..] => ("png", "image/png"),
        [0xff, 0xd8, 0xff, ..] => ("jpg", "image/jpeg"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => ("webp", "image/webp"),
        text if std::str::from_utf8(text).is_ok_and(|text| text.contains("<svg")) => {
            ("svg", "image/svg+xml")
        }
        _ => bail!("the file is no picture that pages can show; expected SVG, PNG, JPEG or WebP"),
    };
    Ok(Asset::new(extension, content_type, bytes))
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

    pub(crate) fn new(
        extension: &str,
        content_type: &'static str,
        body: impl Into<Bytes>,
    ) -> Asset {
        let body = body.into();
        let digest = Sha256::digest(&body);
        let digits = hex::encode(digest);
        Asset {
            path: format!("+static/larder-{}.{extension}", &digits[..NAME_DIGITS]),
            integrity: format!("sha256-{}", BASE64_STANDARD.encode(digest)),
            reply: Reply::tagged(content_type, body),
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

    #[test]
    fn a_logo_is_a_small_picture() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("logo");
        let read = |bytes: &[u8]| {
            std::fs::write(&file, bytes).expect("a file");
            let asset = read_logo(&file).map_err(|problem| problem.to_string())?;
            Ok::<_, String>(asset.path.rsplit('.').next().unwrap_or_default().to_owned())
        };
        assert_eq!(
            read(b"<?xml version=\"1.0\"?><svg xmlns=\"http://www.w3.org/2000/svg\"/>"),
            Ok("svg".to_owned())
        );
        assert_eq!(read(b"\x89PNG\r\n\x1a\n"), Ok("png".to_owned()));
        assert_eq!(read(b"\xff\xd8\xff\xe0"), Ok("jpg".to_owned()));
        assert_eq!(read(b"RIFF\0\0\0\0WEBP"), Ok("webp".to_owned()));
        let no_picture =
            "the file is no picture that pages can show; expected SVG, PNG, JPEG or WebP";
        for other in [&b""[..], b"GIF89a", b"<html></html>", b"<svg \xff"] {
            assert_eq!(read(other), Err(no_picture.to_owned()));
        }
        let mut large = b"\x89PNG".to_vec();
        large.resize(64 << 10, 0);
        assert_eq!(read(&large), Ok("png".to_owned()));
        large.push(0);
        assert_eq!(read(&large), Err("the file is too large; expected at most 64 KiB".to_owned()));
        assert!(read_logo(&directory.path().join("absent")).is_err());
    }
}
