//! Names of release files: what they tell, and which are refused.

use proptest::prelude::*;

use super::*;

/// Expects the parts in lines of `filename = project | version | kind | tags`, or `filename = nothing`.
#[track_caller]
fn check_split(project: Option<&str>, cases: &str) {
    let project = project.map(|project| ProjectName::parse(project).expect("a name"));
    for case in cases.lines().map(str::trim).filter(|case| !case.is_empty()) {
        let (text, expected) = case.split_once(" = ").expect("a case");
        let filename = Filename::parse(text).expect("a filename");
        let found = filename.split(project.as_ref()).map(|parts| {
            let version = parts.version.map_or("-".to_owned(), |version| version.to_string());
            let tags = parts.tags.map_or("-".to_owned(), |tags| {
                format!(
                    "{} {} {} {}",
                    tags.build.unwrap_or("-"),
                    tags.python,
                    tags.abi,
                    tags.platform
                )
            });
            format!("{} | {version} | {:?} | {tags}", parts.project, parts.kind)
        });
        assert_eq!(found.unwrap_or("nothing".to_owned()), expected, "{text}");
    }
}

#[test]
fn a_wheels_name_has_all_parts() {
    check_split(
        None,
        "foo-1.0-py3-none-any.whl = foo | 1.0 | Wheel | - py3 none any
         Foo_Bar-1.0rc1-2a-cp312-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl = Foo_Bar | 1.0rc1 | Wheel | 2a cp312 abi3 manylinux_2_17_x86_64.manylinux2014_x86_64
         foo-1.0+local.1-py2.py3-none-any.WHL = foo | 1.0+local.1 | Wheel | - py2.py3 none any
         foo-1.0_local.1-py3-none-any.whl = foo | 1.0+local.1 | Wheel | - py3 none any
         foo-1.0_post1-py3-none-any.whl = foo | 1.0_post1 | Wheel | - py3 none any
         foo-2004d-py3-none-any.whl = foo | 2004d | Wheel | - py3 none any
         foo-1.0-build-py3-none-any.whl = nothing
         foo-1.0-py3-any.whl = nothing
         foo-1.0-1-2-py3-none-any.whl = nothing
         foo-1.0--none-any.whl = nothing
         foo.whl = nothing",
    );
}

#[test]
fn other_names_are_split_where_a_version_begins() {
    check_split(
        None,
        "foo-1.0.tar.gz = foo | 1.0 | Sdist | -
         foo-bar-1.0.zip = foo-bar | 1.0 | Sdist | -
         foo_bar-1.0.tgz = foo_bar | 1.0 | Sdist | -
         foo-2-1.0.tar.bz2 = foo-2 | 1.0 | Sdist | -
         foo-1.0-1.tar.gz = foo | 1.0-1 | Sdist | -
         foo-1.0-rc1.tar.gz = foo | 1.0-rc1 | Sdist | -
         foo-1.0-final-2.tar.gz = foo-1.0-final | 2 | Sdist | -
         foo-bar.tar.gz = foo | bar | Sdist | -
         foo.tar.gz = foo | - | Sdist | -
         foo-1.0.linux-x86_64.tar.gz = foo | 1.0 | Sdist | -
         foo-1.0.macosx-10.9-x86_64.tar.gz = foo | 1.0 | Sdist | -
         foo-1.0.win32.zip = foo | 1.0 | Sdist | -
         foo-1.0-py2.7.egg = foo | 1.0 | Egg | -
         foo-1.0-py2.7-linux-x86_64.egg = foo | 1.0 | Egg | -
         foo-1.0.win32-py2.7.exe = foo | 1.0 | WindowsInstaller | -
         foo-1.0.win-amd64-py3.4.msi = foo | 1.0 | Msi | -
         foo-1.0.win32.exe = foo | 1.0 | WindowsInstaller | -
         foo-1.0-1.noarch.rpm = foo | 1.0-1 | Rpm | -
         foo_1.0_all.deb = foo | 1.0 | Deb | -
         foo-1.0.bz2 = foo | 1.0 | Other | -",
    );
}

#[test]
fn a_known_project_shows_where_its_name_ends() {
    check_split(
        Some("foo-2"),
        "foo-2-1.0.tar.gz = foo-2 | 1.0 | Sdist | -
         Foo_2-beta.tar.gz = Foo_2 | beta | Sdist | -
         foo-1.0.tar.gz = nothing
         foo_2-1.0-py3-none-any.whl = foo_2 | 1.0 | Wheel | - py3 none any
         foo-1.0-py3-none-any.whl = nothing
         foo-2.tar.gz = foo-2 | - | Sdist | -",
    );
    check_split(
        Some("foo"),
        "foo-2-1.tar.gz = foo | 2-1 | Sdist | -
         foobar-1.0.tar.gz = nothing
         foo_1.0.tar.gz = foo | 1.0 | Sdist | -
         foo-1.0-final-2.tar.gz = foo | 1.0-final-2 | Sdist | -
         foo-bar-1.0.tar.gz = foo | bar-1.0 | Sdist | -",
    );
}

/// Expects the outcome in lines of `filename, project, version: message`, or `…: ok`.
#[track_caller]
fn check_upload(cases: &str) {
    for case in cases.lines().map(str::trim).filter(|case| !case.is_empty()) {
        let (input, expected) = case.split_once(": ").expect("a case");
        let input: Vec<&str> = input.split(", ").collect();
        let version = Version::parse(input[2]).expect("a version");
        let found = match Filename::of_upload(input[0], input[1], &version) {
            Ok(filename) => {
                assert_eq!(filename.as_str(), input[0]);
                "ok".to_owned()
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn an_upload_is_checked_in_devpis_order_and_words() {
    check_upload(
        "foo-1.0.tar.gz, foo, 1.0: ok
         foo-1.0.tar.gz, foo, 1.1: filename 'foo-1.0.tar.gz' does not contain version '1.1'
         foo-1.0.txt, bar, 1.0: 'foo-1.0.txt' is not a valid archive name: one that ends in .whl, .tar.gz, .zip, .tgz, .tar.bz2 or .egg was expected
         foo-1.0.tar, bar, 1.0: 'foo-1.0.tar' is not a valid archive name: one that ends in .whl, .tar.gz, .zip, .tgz, .tar.bz2 or .egg was expected
         foo-1.0.tar.gz, bar, 1.0: filename 'foo-1.0.tar.gz' does not match project name 'bar'
         foo's-1.0.tar.gz, bar, 1.0: filename \"foo's-1.0.tar.gz\" does not match project name 'bar'
         foobar-1.0.tar.gz, foo, 1.0: filename 'foobar-1.0.tar.gz' does not match project name 'foo'
         foo-1.0+local-py3-none-any.whl, foo, 1.0+local: ok
         foo-1.0_local-py3-none-any.whl, foo, 1.0+local: filename 'foo-1.0_local-py3-none-any.whl' does not contain version '1.0+local'
         foo-1.0.1.tar.gz, foo, 1.0: filename 'foo-1.0.1.tar.gz' does not contain version '1.0'
         foo-11.0.zip, foo, 1.0: filename 'foo-11.0.zip' does not contain version '1.0'
         foo-1.0b1-py3.13.egg, foo, 1.0: filename 'foo-1.0b1-py3.13.egg' does not contain version '1.0'
         foo-1.0-src.tar.gz, foo, 1.0: filename 'foo-1.0-src.tar.gz' does not contain version '1.0'
         foo-2-1.0.tar.gz, foo, 1.0: filename 'foo-2-1.0.tar.gz' does not match project name 'foo'
         foo-2-1.0.tar.gz, foo_2, 1.0.0: ok
         foo-2024.09.04.tar.gz, foo, 2024.9.4: ok
         foo-1.0.linux-x86_64.tar.gz, foo, 1.0: ok
         foo_1.0-1_all.deb, foo, 1.0: ok
         foo-1.0-1.noarch.rpm, foo, 1.0: ok
         foo-1.0_1-py2.7.egg, foo, 1.0-1: ok
         foo-2004d.tar.gz, foo, 2004d: installers do not know the version '2004d': one by PEP 440 was expected, as `1.0.post1`
         foo-2004d-py2.7.egg, foo, 2004d: ok
         Foo.Bar-1.0.zip, foo_bar, 1.0: ok
         Foo.Bar-1.0.ZIP, foo_bar, 1.0: 'Foo.Bar-1.0.ZIP' is not a valid archive name: one that ends in .whl, .tar.gz, .zip, .tgz, .tar.bz2 or .egg was expected
         foo_bar-1.0-py3-none-any.whl, Foo-Bar, 1.0: ok
         foo-1.0rc1.tar.gz, foo, 1.0-RC1: ok
         foo-1.0.0.tar.gz, foo, 1.0: ok
         foo-1.tar.gz, foo, 1.0.0: ok
         foo-1.0.rpm, foo, 1.0: ok
         foo-11.0-py3-none-any.whl, foo, 1.0: filename 'foo-11.0-py3-none-any.whl' does not contain version '1.0'
         foo_bar-1.0-py3-none-any.whl, foo, 1.0: filename 'foo_bar-1.0-py3-none-any.whl' does not match project name 'foo'
         foo-1.0-any.whl, foo, 1.0: filename 'foo-1.0-any.whl' is not a wheel's: `name-version(-build)-python-abi-platform.whl` was expected, a build beginning with a digit, no `__`, and the ending in lower case
         foo-1.0-py3-none-any.WHL, foo, 1.0: filename 'foo-1.0-py3-none-any.WHL' is not a wheel's: `name-version(-build)-python-abi-platform.whl` was expected, a build beginning with a digit, no `__`, and the ending in lower case
         a__b-1.0-py3-none-any.whl, a-b, 1.0: filename 'a__b-1.0-py3-none-any.whl' is not a wheel's: `name-version(-build)-python-abi-platform.whl` was expected, a build beginning with a digit, no `__`, and the ending in lower case",
    );
}

#[test]
fn path_tricks_are_refused_by_name_before_anything_else() {
    let refused = [
        ("../foo-1.0.zip", "a leading dot"),
        (".foo-1.0.zip", "a leading dot"),
        ("x/../foo-1.0.zip", "a slash"),
        ("/foo-1.0.zip", "a slash"),
        ("foo\\..\\1.0.zip", "a backslash"),
        ("foo-1.0.zip\n", "white space at an end"),
        ("foo-1.0\0.zip", "a control character"),
        ("foo-1.0\u{202e}piz.zip", "a character that hides others"),
    ];
    for (text, what) in refused {
        let expected = format!("filename {text:?} is refused: {what} cannot be in one");
        assert_eq!(Filename::parse(text).expect_err(text).to_string(), expected);
        let version = Version::parse("1.0").expect("a version");
        let error = Filename::of_upload(text, "foo", &version).expect_err(text);
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!(Filename::parse(""), Err(FilenameError::Empty));
    assert_eq!(Filename::parse(&"x".repeat(256)), Err(FilenameError::TooLong(256)));
    assert_eq!(
        Filename::parse(".zip").expect_err("a name").to_string(),
        "filename \".zip\" is refused: a leading dot cannot be in one"
    );
    assert!(Filename::parse(&format!("{}.zip", "x".repeat(251))).is_ok());
}

#[test]
fn a_file_without_a_form_has_a_filetype_and_a_pyversion() {
    let facts = |text: &str| {
        let filename = Filename::parse(text).expect("a filename");
        format!("{} {}", filename.filetype(), filename.pyversion())
    };
    assert_eq!(facts("foo-1.0.tar.gz"), "sdist source");
    assert_eq!(facts("foo-1.0-py2.py3-none-any.whl"), "bdist_wheel py2.py3");
    assert_eq!(facts("foo-1.0-py2.7-linux-x86_64.egg"), "bdist_egg 2.7");
    assert_eq!(facts("foo-1.0.win32-py2.7.exe"), "bdist_wininst 2.7");
    assert_eq!(facts("foo-1.0-1.noarch.rpm"), "bdist_rpm any");
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,60}", ending in "|\\.whl|\\.tar\\.gz|\\.egg|\\.exe|\\.deb|\\.rpm") {
        let text = format!("{text}{ending}");
        if let Ok(filename) = Filename::parse(&text) {
            let _ = (filename.split(None), filename.pyversion(), filename.filetype());
            prop_assert!(!text.contains('/') && !text.starts_with('.'));
        }
    }

    #[test]
    fn no_name_of_parts_panics(text in "[a-z0-9_.é-]{0,30}(-py[0-9])?", ending in "\\.whl|\\.tar\\.gz|\\.egg|\\.exe|\\.deb|\\.rpm") {
        if let Ok(filename) = Filename::parse(&format!("{text}{ending}")) {
            let _ = (filename.split(None), filename.pyversion());
            let version = Version::parse("1.0").expect("a version");
            let _ = Filename::of_upload(filename.as_str(), "foo", &version);
        }
    }
}
