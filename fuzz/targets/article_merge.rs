//! Three texts with a byte of zeros between: merged, and compared with each other.

#![no_main]

use article::{
    ArticleName, DifferenceLimits, Merge, MergeSides, Revision, Side, difference, merge,
};
use libfuzzer_sys::fuzz_target;

const LIMITS: DifferenceLimits = DifferenceLimits { bytes_max: 6_000, lines_max: 2_000 };

fuzz_target!(|data: &[u8]| {
    let mut texts = data.splitn(3, |byte| *byte == 0);
    let (Some(base), Some(latest), Some(refused)) = (texts.next(), texts.next(), texts.next())
    else {
        return;
    };
    let name = ArticleName::parse("a").expect("a name");
    let side = |version: u32, bytes| Side {
        name: &name,
        revision: Revision(version),
        bytes,
        is_textual: true,
    };
    let merged = |base, latest, refused| {
        let sides = MergeSides {
            base: Some(side(1, base)),
            latest: Some(side(2, latest)),
            refused: side(3, refused),
        };
        merge(sides, &LIMITS)
    };
    let is_mergeable = match merged(base, latest, refused) {
        Merge::NotMergeable(_) => false,
        Merge::Clean(_) => true,
        Merge::Conflict { text, hunks } => {
            assert!(!hunks.is_empty() && text.contains("<<<<<<<"), "{text}");
            true
        }
    };
    if is_mergeable {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("only text is merged");
        // Where one side has changed nothing, the other's text is the merge.
        for changed in [latest, refused] {
            let together = [base, base, changed].map(<[u8]>::len).iter().sum::<usize>();
            let lines = [base, base, changed].map(lines).iter().sum::<usize>();
            if together <= LIMITS.bytes_max && lines <= LIMITS.lines_max {
                assert_eq!(merged(base, base, changed), Merge::Clean(text(changed)));
                assert_eq!(merged(base, changed, base), Merge::Clean(text(changed)));
            }
        }
    }
    if let Ok(found) = difference(side(1, latest), side(2, refused), &LIMITS) {
        assert_eq!(found.text.is_empty(), latest == refused, "{}", found.text);
    }
});

fn lines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count()
}
