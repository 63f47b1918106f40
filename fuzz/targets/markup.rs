//! A text that somebody wrote, in every format: what is made of it may stand in a page.

#![no_main]

use html5gum::{Token, Tokenizer};
use libfuzzer_sys::fuzz_target;
use markup::{Format, Options, Target, render};

const ELEMENTS_NEVER: [&[u8]; 14] = [
    b"script", b"style", b"iframe", b"object", b"embed", b"form", b"input", b"link", b"meta", b"base", b"svg", b"maction",
    b"annotation-xml", b"mglyph",
];

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let resolve = |link: &str| match link.len() % 4 {
        0 => None,
        1 => Some(Target::Missing("/article/missing".to_owned())),
        2 => Some(Target::Picture("/article/picture".to_owned())),
        _ => Some(Target::Page("/article/page".to_owned())),
    };
    let options = Options { resolve: &resolve, is_article: true, ..Options::default() };
    for format in [Format::Markdown, Format::RestructuredText, Format::Html, Format::Plain] {
        let rendered = render(text, format, &options);
        check(&rendered.html);
        for heading in &rendered.contents {
            assert!(rendered.html.contains(&format!("id=\"{}\"", heading.id)), "{}", heading.id);
        }
    }
    // Line by line against what comes after the first half.
    let half = text.floor_char_boundary(text.len() / 2);
    if let Ok(found) = markup::compare(&text[..half], &text[half..]) {
        assert_eq!(found.places.is_empty(), text[..half] == text[half..]);
    }
});

/// Elements are closed in order, and none of them runs, loads or leads where it may not.
fn check(html: &str) {
    let mut open: Vec<Vec<u8>> = Vec::new();
    for token in Tokenizer::new(html) {
        match token {
            Ok(Token::StartTag(tag)) => {
                let name = tag.name.to_vec();
                assert!(!ELEMENTS_NEVER.contains(&name.as_slice()), "{html}");
                for (key, value) in &tag.attributes {
                    assert!(!key.starts_with(b"on") && key.as_slice() != b"style", "{html}");
                    if key.as_slice() == b"href" {
                        let starts: [&[u8]; 5] = [b"http://", b"https://", b"mailto:", b"#u-", b"/article/"];
                        assert!(starts.iter().any(|start| value.starts_with(start)), "{html}");
                    }
                    if key.as_slice() == b"src" {
                        assert_eq!(value.as_slice(), b"/article/picture", "{html}");
                    }
                }
                if !matches!(name.as_slice(), b"br" | b"hr" | b"img" | b"wbr") {
                    open.push(name);
                }
            }
            Ok(Token::EndTag(tag)) => assert_eq!(open.pop(), Some(tag.name.to_vec()), "{html}"),
            Ok(Token::String(_)) => {}
            other => panic!("{other:?} in {html}"),
        }
    }
    assert!(open.is_empty(), "{html}");
}
