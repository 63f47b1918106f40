//! `entry_points.txt` of a wheel: can pip and uv read it, and make the scripts in it?
//!
//! Lines are comments, `[section]` or `name = value`. Two sections name scripts: `name = module:function`.

use std::collections::HashSet;

/// Checks that pip and uv can read the file.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8")?;
    let mut section = None;
    let (mut sections, mut names) = (HashSet::new(), HashSet::new());
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let wrong = |expected: &str| {
            let shown = record::excerpt(line, 80);
            Err(format!("has {shown:?} in line {}: {expected} was expected", at + 1))
        };
        // pip reads `;` in a section as a name.
        if line.is_empty() || line.starts_with('#') || section.is_none() && line.starts_with(';') {
            continue;
        }
        if let Some((name, _)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            if !sections.insert(name) {
                return wrong("each section once");
            }
            section = Some(name);
            continue;
        }
        let Some(section) = section else { return wrong("`[section]`") };
        let Some((name, value)) = line.split_once('=') else { return wrong("`name = value`") };
        let (name, value) = (name.trim(), value.trim());
        if !names.insert((section, name)) {
            return wrong("each name once in a section");
        }
        if ["console_scripts", "gui_scripts"].contains(&section) {
            let is_plain =
                !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\']);
            if !is_plain || !is_function(value) {
                return wrong("`script = module:function`");
            }
        }
    }
    Ok(())
}

/// Whether it is `module:function`, perhaps with extras.
fn is_function(value: &str) -> bool {
    let value = match value.split_once('[') {
        Some((value, extras)) if extras.ends_with(']') => value.trim_end(),
        _ => value,
    };
    let is_path = |text: &str| {
        let is_name =
            |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
        text.split('.').all(is_name)
    };
    value.split_once(':').is_some_and(|(module, function)| is_path(module) && is_path(function))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_installers_read_is_accepted() {
        for text in [
            "",
            "# c\n; d\n\n[console_scripts]\r\n# e\n  foo-bar.baz = a.b:c.d [x]\nFOO=a:b\n\n[gui_scripts]\nfoo = a:b\n",
            "[x.y] z\nfoo = a.b\nbar =\nbaz = %(x)s\n",
        ] {
            assert_eq!(check(text.as_bytes()), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_one_of_them_cannot_read_is_refused() {
        let check = |text: &str| check(text.as_bytes()).expect_err(text);
        assert_eq!(check("foo = a:b\n"), "has \"foo = a:b\" in line 1: `[section]` was expected");
        assert_eq!(check("[x]\nfoo\n"), "has \"foo\" in line 2: `name = value` was expected");
        assert_eq!(check("[x]\n; c\n"), "has \"; c\" in line 2: `name = value` was expected");
        assert_eq!(check("[x]\n[x]\n"), "has \"[x]\" in line 2: each section once was expected");
        let twice = "has \"foo = b\" in line 3: each name once in a section was expected";
        assert_eq!(check("[x]\nfoo = a\nfoo = b\n"), twice);
        check("[console_scripts\nfoo = a:b\n");
        check("\u{feff}[console_scripts]\nfoo = a:b\n");
        for script in [
            "foo = a",
            "foo =",
            "../foo = a:b",
            ".. = a:b",
            "foo = a : b",
            "foo = a:b # c",
            "foo = a-b:c",
            "foo = a:b()",
        ] {
            let said = check(&format!("[gui_scripts]\n{script}\n"));
            assert_eq!(
                said,
                format!("has {script:?} in line 2: `script = module:function` was expected")
            );
        }
        assert_eq!(super::check(b"[x]\n# caf\xe9\n"), Err("is not UTF-8".to_owned()));
    }
}
