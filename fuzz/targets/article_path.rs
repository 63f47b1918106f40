//! What follows `/article/` in a URL, percent-decoded.

#![no_main]

use article::{ArticleName, ArticlePath, Target};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|rest: &str| {
    let Ok(path) = ArticlePath::parse(rest) else {
        assert!(
            ArticleName::parse(rest).is_err(),
            "a name alone is the path of its latest version: {rest}"
        );
        return;
    };
    let name = path.name.as_str();
    assert!((1..=ArticleName::BYTES_MAX).contains(&name.len()));
    assert!(!name.chars().any(|character| character.is_control() || character == '\\'), "{name:?}");
    assert!(name.split('/').all(|segment| !matches!(segment, "" | "." | "..")), "{name:?}");
    // It has one spelling, and that leads to the same place.
    let shown = match path.target {
        Target::Latest => name.to_owned(),
        Target::Version(version) => format!("{name}/{version}"),
        Target::History => format!("{name}/history"),
        Target::Diff => format!("{name}/diff"),
    };
    assert_eq!(ArticlePath::parse(&shown).as_ref(), Ok(&path));
    // Every article has its pages, and none of them is an article.
    for page in ["history", "diff", "7"] {
        let page = format!("{name}/{page}");
        assert!(ArticleName::parse(&page).is_err(), "{page}");
        assert_eq!(ArticlePath::parse(&page).map(|path| path.name), Ok(path.name.clone()));
    }
});
