//! The values of `[site]`: lines of text, links, and a colour that can be read.

use super::key::{FromText, Kind, expected};

/// Characters of a line.
const LINE_CHARS_MAX: usize = 200;

/// A text of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line(pub String);

impl FromText for Line {
    fn from_text(text: &str, kind: Kind) -> Result<Self, String> {
        let text = text.trim();
        let is_fit = !text.is_empty()
            && text.chars().count() <= LINE_CHARS_MAX
            && !text.chars().any(char::is_control);
        if is_fit { Ok(Self(text.to_owned())) } else { Err(expected(kind)) }
    }

    fn to_text(&self) -> String {
        self.0.clone()
    }
}

/// A link in the footer of pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteLink {
    /// What it is called.
    pub label: String,
    /// Where it leads: an http, https or mailto URL, or a path of this server.
    pub url: String,
}

impl FromText for SiteLink {
    fn from_text(text: &str, kind: Kind) -> Result<Self, String> {
        let Line(text) = Line::from_text(text, kind)?;
        let (label, url) = text.rsplit_once(' ').ok_or_else(|| expected(kind))?;
        let (label, url) = (label.trim().to_owned(), url.to_owned());
        // `//host` would be another host.
        let is_path = url.starts_with('/') && !url.starts_with("//") && !url.contains('\\');
        let is_url = || {
            let url = reqwest::Url::parse(&url);
            url.is_ok_and(|url| matches!(url.scheme(), "http" | "https" | "mailto"))
        };
        if is_path || is_url() { Ok(Self { label, url }) } else { Err(expected(kind)) }
    }

    fn to_text(&self) -> String {
        format!("{} {}", self.label, self.url)
    }
}

/// The colour of links and buttons. Words in it, and words on it, can be read: by WCAG 2.2, 1.4.3, their contrast is at least 4.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accent([u8; 3]);

/// The least contrast of words with what is behind them.
const CONTRAST_MIN: f64 = 4.5;

/// The darkest background of pages in light colours, and the lightest of those in dark ones.
const LIGHT: [u8; 3] = [0xf4, 0xf1, 0xea];
const DARK: [u8; 3] = [0x2a, 0x28, 0x25];

impl Accent {
    /// On a light background.
    pub fn light(self) -> String {
        written(self.0)
    }

    /// On a dark one: as much lighter as it has to be.
    pub fn dark(self) -> String {
        let lighter = |percent: u32| {
            self.0.map(|part| (part as u32 + (255 - part as u32) * percent / 100) as u8)
        };
        let good = (0..=100).step_by(5).map(lighter);
        let colour = good.into_iter().find(|colour| contrast(*colour, DARK) >= CONTRAST_MIN);
        written(colour.unwrap_or([0xff; 3]))
    }
}

impl std::str::FromStr for Accent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::from_text(text, Kind::Colour)
    }
}

fn written(colour: [u8; 3]) -> String {
    format!("#{}", hex::encode(colour))
}

impl FromText for Accent {
    fn from_text(text: &str, kind: Kind) -> Result<Self, String> {
        let digits = text.strip_prefix('#').ok_or_else(|| expected(kind))?;
        let mut colour = [0; 3];
        hex::decode_to_slice(digits, &mut colour).map_err(|_| expected(kind))?;
        let contrast = contrast(colour, LIGHT);
        if contrast < CONTRAST_MIN {
            return Err(format!(
                "words of this colour have a contrast of {contrast:.1} with the light background; {}",
                expected(kind)
            ));
        }
        Ok(Self(colour))
    }

    fn to_text(&self) -> String {
        written(self.0)
    }
}

/// The contrast of two colours, from 1 to 21 (WCAG 2.2, "contrast ratio").
fn contrast(one: [u8; 3], other: [u8; 3]) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// The relative luminance of a colour in sRGB (WCAG 2.2, "relative luminance").
fn luminance(colour: [u8; 3]) -> f64 {
    let linear = colour.map(|part| {
        let part = f64::from(part) / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    });
    0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contrast_is_as_defined() {
        assert!((contrast([0; 3], [255; 3]) - 21.0).abs() < 1e-9);
        assert!((contrast([0x77; 3], [255; 3]) - 4.48).abs() < 0.01);
    }

    #[test]
    fn an_accent_can_be_read_on_both_backgrounds() {
        for text in ["#8a3b12", "#000000", "#1D4ED8"] {
            let accent = Accent::from_text(text, Kind::Colour).expect(text);
            assert_eq!(accent.light(), text.to_lowercase());
            let dark = accent.dark();
            let mut colour = [0; 3];
            hex::decode_to_slice(&dark[1..], &mut colour).expect("digits");
            assert!(contrast(colour, DARK) >= CONTRAST_MIN, "{text} {dark}");
        }
        let pale = Accent::from_text("#ffcc00", Kind::Colour).expect_err("it is too pale");
        assert!(pale.starts_with("words of this colour have a contrast of 1."), "{pale}");
        for wrong in ["", "red", "#12345", "#1234567", "8a3b12"] {
            assert!(Accent::from_text(wrong, Kind::Colour).is_err(), "{wrong}");
        }
    }

    #[test]
    fn links_lead_to_pages() {
        let link = SiteLink::from_text("Our  wiki https://wiki.example/x", Kind::Links);
        let expected = SiteLink { label: "Our  wiki".into(), url: "https://wiki.example/x".into() };
        assert_eq!(link, Ok(expected));
        assert!(SiteLink::from_text("Imprint /article/imprint", Kind::Links).is_ok());
        for wrong in
            ["x", "x javascript:alert(1)", "x //other.example", "x data:text/html,x", "x\n /"]
        {
            assert!(SiteLink::from_text(wrong, Kind::Links).is_err(), "{wrong}");
        }
    }
}
