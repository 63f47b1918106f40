//! Archives that are accepted, and every kind that is refused.

use proptest::prelude::*;

use super::testing::{
    TestMember, bzip2, end_record, file, gzip, tarball, tarball_plain, tarred, with_end_record_64,
    zip,
};
use super::*;

const METADATA: &str = "Metadata-Version: 2.1\nName: foo\nVersion: 1.0\n";

/// The sizes of metadata and members in `bytes`, or why the archive is refused.
fn look(filename: &str, bytes: &[u8], limits: &ArchiveLimits) -> String {
    let filename = Filename::parse(filename).expect("a filename");
    match inspect(bytes, bytes.len() as u64, &filename, limits) {
        Ok(facts) => {
            if let Some(metadata) = &facts.metadata {
                assert_eq!(metadata, METADATA.as_bytes());
                assert!(facts.core_metadata().is_ok_and(|metadata| metadata.is_some()));
            }
            let metadata = if facts.metadata.is_some() { facts.metadata_name } else { "nothing" };
            format!("{metadata}, {} members", facts.members)
        }
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn check(filename: &str, bytes: &[u8], expected: &str) {
    assert_eq!(look(filename, bytes, &ArchiveLimits::default()), expected);
}

const WHEEL: &str = "foo-1.0-py3-none-any.whl";

/// The members of a valid wheel.
fn wheel_members() -> Vec<TestMember> {
    vec![
        file("foo/__init__.py", "print('foo')\n"),
        file("foo-1.0.dist-info/METADATA", METADATA),
        file("foo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n"),
        file("foo-1.0.dist-info/RECORD", "foo/__init__.py,,\n"),
    ]
}

/// Checks a wheel with changed members.
#[track_caller]
fn check_wheel(change: impl FnOnce(&mut Vec<TestMember>), expected: &str) {
    let mut members = wheel_members();
    change(&mut members);
    check(WHEEL, &zip(&members), expected);
}

#[test]
fn a_wheel_gives_its_metadata_verbatim() {
    check_wheel(|_| {}, "METADATA, 4 members");
    for method in [0, 8] {
        check_wheel(|members| members[1].method = method, "METADATA, 4 members");
    }
    // Vendored packages have their own, in a deeper directory.
    check_wheel(
        |members| members.push(file("foo/_vendor/bar-1.dist-info/METADATA", "")),
        "METADATA, 5 members",
    );
    check_wheel(|members| members.push(file("empty/", "")), "METADATA, 5 members");
    for descriptor_bytes in [12, 16, 20, 24] {
        let change = |members: &mut Vec<TestMember>| {
            members.iter_mut().for_each(|member| member.descriptor_bytes = descriptor_bytes);
        };
        check_wheel(change, "METADATA, 4 members");
    }
}

#[test]
fn a_wheels_dist_info_is_its_own_and_whole() {
    let rename = |from: &'static str, to: &'static str| {
        move |members: &mut Vec<TestMember>| {
            for member in members {
                let name = String::from_utf8(member.name.clone()).expect("UTF-8");
                member.name = name.replace(from, to).into();
            }
        }
    };
    check_wheel(rename("foo-1.0.d", "Foo-1.0.0.d"), "METADATA, 4 members");
    check_wheel(
        rename("foo-1.0.d", "bar-1.0.d"),
        "the wheel has the directory \"bar-1.0.dist-info\": one for foo 1.0 was expected",
    );
    check_wheel(
        rename("foo-1.0.d", "foo-1.1.d"),
        "the wheel has the directory \"foo-1.1.dist-info\": one for foo 1.0 was expected",
    );
    check_wheel(
        rename("foo-1.0.dist-info", "foo-1.0.egg-info"),
        "the wheel has no directory *.dist-info",
    );
    check_wheel(
        |members| members.push(file("foo-1.0.1.dist-info/METADATA", METADATA)),
        "the archive is ambiguous: it has both \"foo-1.0.dist-info\" and \"foo-1.0.1.dist-info\"",
    );
    for (number, name) in [(1, "METADATA"), (2, "WHEEL"), (3, "RECORD")] {
        let remove = |members: &mut Vec<TestMember>| {
            members.remove(number);
        };
        check_wheel(remove, &format!("the wheel has no foo-1.0.dist-info/{name}"));
    }
}

#[test]
fn a_wheel_that_installers_cannot_install_is_refused() {
    check_wheel(
        |members| members[2].bytes = b"Wheel-Version: 2.0\n".to_vec(),
        "the wheel's WHEEL has the Wheel-Version \"2.0\": 1.0 was expected",
    );
    check_wheel(
        |members| members[2].bytes = b"\n".to_vec(),
        "the wheel's WHEEL has no Wheel-Version",
    );
    check_wheel(
        |members| members[3].bytes = b"foo/__init__.py\n".to_vec(),
        "the wheel's RECORD has \"foo/__init__.py\" in line 1: path, digest and size were expected",
    );
    let with = |name: &'static str, text: &'static str| {
        move |members: &mut Vec<TestMember>| members.push(file(name, text))
    };
    let entry_points = "foo-1.0.dist-info/entry_points.txt";
    check_wheel(with(entry_points, "[console_scripts]\nfoo = foo:main\n"), "METADATA, 5 members");
    check_wheel(
        with(entry_points, "[console_scripts]\nfoo = foo\n"),
        "the wheel's entry_points.txt has \"foo = foo\" in line 2: `script = module:function` was expected",
    );
    for place in ["purelib", "platlib", "headers", "scripts", "data"] {
        let add = |members: &mut Vec<TestMember>| {
            members.push(file("foo-1.0.data/", ""));
            members.push(file(&format!("foo-1.0.data/{place}/x"), ""));
        };
        check_wheel(add, "METADATA, 6 members");
    }
    for name in ["foo-1.0.data/include/x", "foo-1.0.data/x", "foo.data/x.py", "foo.data"] {
        let top = name.split('/').next().expect("a name");
        let what = format!("a place in {top:?} that installers do not know");
        let expected = format!("the archive has a member {name:?}, which has {what}");
        check_wheel(|members| members.push(file(name, "")), &expected);
    }
    check_wheel(
        with("foo/a\u{202e}b", ""),
        "the archive has a member \"foo/a\\u{202e}b\", which has a character in its name that is not seen",
    );
    let ambiguous = "the archive is ambiguous: \"foo/a\" is a file in it, and a directory";
    let two = |first: &'static str, second: &'static str| {
        move |members: &mut Vec<TestMember>| members.extend([file(first, ""), file(second, "")])
    };
    check_wheel(two("foo/a", "foo/a/b"), ambiguous);
    check_wheel(two("foo/a/b/c", "foo/a"), ambiguous);
    check_wheel(two("foo/a/", "foo/a/b"), "METADATA, 6 members");
    check_wheel(
        |members| members[0].method = 14,
        "the archive has a member \"foo/__init__.py\", which has a compression that installers lack: 14 (LZMA)",
    );
}

/// Expects this of the metadata of a wheel whose `METADATA` has this text.
#[track_caller]
fn check_core_metadata(text: &[u8], expected: &str) {
    let mut members = wheel_members();
    members[1].bytes = text.to_vec();
    let wheel = zip(&members);
    let filename = Filename::parse(WHEEL).expect("a filename");
    let facts = inspect(&wheel[..], wheel.len() as u64, &filename, &ArchiveLimits::default());
    let read = facts.expect("a wheel").core_metadata();
    let said = read.map_or_else(|error| error.to_string(), |_| "right".to_owned());
    assert_eq!(said, expected, "{}", String::from_utf8_lossy(text));
}

#[test]
fn metadata_that_installers_cannot_read_is_refused() {
    let with = |line: &str| format!("{METADATA}{line}\n");
    check_core_metadata(METADATA.as_bytes(), "right");
    for line in [
        "Author: Jos\u{e9}",
        "Requires-Dist: bar (>=1.0) ; extra == 'x'",
        "Requires-Python: >=3.6.*",
        "Requires-Python:",
        "Metadata-Version: 9.9",
        "Provides-Extra: a b",
    ] {
        check_core_metadata(with(line).as_bytes(), "right");
    }
    check_core_metadata(
        &[b"\xef\xbb\xbf", METADATA.as_bytes()].concat(),
        "METADATA begins with a byte-order mark, which installers take for a part of a name",
    );
    let latin = [METADATA.as_bytes(), b"Author: Jos\xe9\n"].concat();
    check_core_metadata(&latin, "METADATA is not UTF-8");
    check_core_metadata(format!("\n{METADATA}").as_bytes(), "the field name is missing");
    check_core_metadata(
        METADATA.replace("1.0", "unknown").as_bytes(),
        "METADATA has the Version \"unknown\", which installers cannot read: a version by PEP 440 was expected",
    );
    check_core_metadata(
        with("Requires-Dist: a b c").as_bytes(),
        "METADATA has the Requires-Dist \"a b c\", which installers cannot read: `;`, or the end, was expected at \"b c\"",
    );
    check_core_metadata(
        with("Requires-Python: python 3").as_bytes(),
        "METADATA has the Requires-Python \"python 3\", which installers cannot read: a comparison with a version was \
         expected at \"python 3\"",
    );
}

#[test]
fn a_member_outside_the_directory_is_refused() {
    for (name, what) in [
        ("../evil.py", "a path with `..`"),
        ("foo/../../evil.py", "a path with `..`"),
        ("/etc/passwd", "an absolute path"),
        ("C:/evil.py", "an absolute path"),
        ("foo\\evil.py", "a backslash in its name"),
        ("foo//evil.py", "a path with an empty segment or `.`"),
        ("foo/\u{7}.py", "a control character in its name"),
        ("", "no name"),
    ] {
        check_wheel(
            |members| members.push(file(name, "evil")),
            &format!("the archive has a member {name:?}, which has {what}"),
        );
    }
    check_wheel(
        |members| members.push(TestMember { name: b"\xff".to_vec(), ..TestMember::default() }),
        "the archive has a member \"\u{fffd}\", which has a name that is not UTF-8",
    );
}

#[test]
fn an_archive_that_two_readers_could_read_differently_is_refused() {
    let ambiguous = |reason: &str| format!("the archive is ambiguous: {reason}");
    check_wheel(
        |members| members.push(file("foo/__init__.py", "print('evil')\n")),
        &ambiguous("\"foo/__init__.py\" is in it twice"),
    );
    check_wheel(
        |members| members.push(file("foo/__init__.py/", "")),
        &ambiguous("\"foo/__init__.py\" is in it twice"),
    );
    check_wheel(
        |members| members[0].header_name = Some(b"foo/__evil__.py".to_vec()),
        &ambiguous("the header of \"foo/__init__.py\" has another name than the directory"),
    );
    check_wheel(
        |members| members[0].header_method = Some(0),
        &ambiguous("the header of \"foo/__init__.py\" has another compression than the directory"),
    );
    check_wheel(
        |members| members[0].header_crc32 = Some(1),
        &ambiguous(
            "the header of \"foo/__init__.py\" has another size or checksum than the directory",
        ),
    );
    check_wheel(
        |members| members[0].directory_size = Some(1),
        &ambiguous(
            "the header of \"foo/__init__.py\" has another size or checksum than the directory",
        ),
    );
    check_wheel(
        |members| members[0].behind = b"hidden".to_vec(),
        &ambiguous("6 bytes follow \"foo/__init__.py\""),
    );
    check_wheel(
        |members| {
            members[0].descriptor_bytes = 16;
            members[0].behind = vec![0; 4];
        },
        &ambiguous("the 20 bytes behind \"foo/__init__.py\" are not its descriptor"),
    );
    check_wheel(
        |members| members[3].behind = zip(&[file("evil.py", "evil")]),
        &ambiguous("118 bytes follow \"foo-1.0.dist-info/RECORD\""),
    );
    let second_name = b"\x75\x70\x05\x00\x01\0\0\0\0".to_vec();
    check_wheel(
        |members| members[0].directory_extra = second_name,
        "the archive has a member \"foo/__init__.py\", which has a second name",
    );
    check_wheel(
        |members| members[0].flags = 1,
        "the archive has a member \"foo/__init__.py\", which has encrypted bytes",
    );
}

#[test]
fn bytes_around_a_zip_are_refused() {
    let wheel = zip(&wheel_members());
    let size = wheel.len();
    let followed = [wheel.clone(), b"hidden".to_vec()].concat();
    check(
        WHEEL,
        &followed,
        &format!(
            "the archive is ambiguous: it ends at byte {size}, but the file has {} bytes",
            size + 6
        ),
    );
    let led = [b"#!/bin/sh\n".to_vec(), wheel.clone()].concat();
    check(
        WHEEL,
        &led,
        "the archive is ambiguous: its end record does not agree with its directory",
    );
    let two = [zip(&[file("evil.py", "evil")]), wheel.clone()].concat();
    check(
        WHEEL,
        &two,
        "the archive is ambiguous: its end record does not agree with its directory",
    );
    // An end record in the comment of another one: it has no members and comes right after the other.
    let mut hidden = wheel.clone();
    hidden[size - 2..].copy_from_slice(&22u16.to_le_bytes());
    hidden.extend(end_record(0, 0, size as u32, b""));
    check(
        WHEEL,
        &hidden,
        &format!("the archive is ambiguous: {size} bytes stand before its directory"),
    );
    let mut commented = wheel.clone();
    commented[size - 2..].copy_from_slice(&5u16.to_le_bytes());
    check(WHEEL, &[&commented, &b"hello"[..]].concat(), "METADATA, 4 members");
    check(
        WHEEL,
        &[&commented, &b"PK\x05\x06!"[..]].concat(),
        "the file is not a whole zip archive: Unexpected end of file",
    );
    let mut miscounted = wheel;
    miscounted[size - 12] = 3;
    check(
        WHEEL,
        &miscounted,
        "the archive is ambiguous: its end record does not agree with its directory",
    );
}

#[test]
fn the_64_bit_end_record_agrees_with_the_directory() {
    let wheel = zip(&wheel_members());
    check(WHEEL, &with_end_record_64(&wheel, |_| {}), "METADATA, 4 members");
    // Changes one bit in each number of the record, and of its locator.
    for at in [4, 16, 24, 32, 40, 48, 60, 64, 73] {
        let changed = with_end_record_64(&wheel, |record| record[at] ^= 1);
        let found = look(WHEEL, &changed, &ArchiveLimits::default());
        assert!(!found.ends_with("members"), "{at}: {found}");
    }
}

#[test]
fn a_truncated_or_damaged_wheel_is_refused() {
    let wheel = zip(&wheel_members());
    for end in [0, 1, 21, 22, 100, wheel.len() - 1] {
        let found = look(WHEEL, &wheel[..end], &ArchiveLimits::default());
        assert!(found.starts_with("the file is not a whole zip archive: "), "{end}: {found}");
    }
    check_wheel(
        |members| {
            members[1].method = 0;
            members[1].bytes = b"x".to_vec();
            members[1].bytes.extend(METADATA.bytes());
            members[1].name = b"foo-1.0.dist-info/METADATA".to_vec();
            members[1].method = 99;
        },
        "the archive has a member \"foo-1.0.dist-info/METADATA\", which has a compression that installers lack: 99 (AES)",
    );
    // Changes one bit of the metadata, which is stored without compression.
    let mut members = wheel_members();
    members[1].method = 0;
    let mut damaged = zip(&members);
    let at = damaged.windows(9).position(|bytes| bytes == b"Name: foo").expect("the metadata");
    damaged[at] ^= 1;
    let found = look(WHEEL, &damaged, &ArchiveLimits::default());
    assert!(found.starts_with("the file is not a whole zip archive: "), "{found}");
}

#[test]
fn a_bomb_is_refused_before_it_is_unpacked() {
    let limits = ArchiveLimits { ratio_free_bytes: 10_000, ..ArchiveLimits::default() };
    let mut members = wheel_members();
    members.push(file("zeros", vec![0; 1 << 20]));
    let bomb = zip(&members);
    let unpacked = (1 << 20) + members[..4].iter().map(|member| member.bytes.len()).sum::<usize>();
    assert_eq!(
        look(WHEEL, &bomb, &limits),
        format!(
            "the archive has {unpacked} bytes when unpacked: at most {} were expected",
            bomb.len() * 100
        )
    );
    check(WHEEL, &bomb, "METADATA, 5 members");

    // Many members that share their bytes.
    let shared = TestMember { is_shared: true, ..members[4].clone() };
    let quine =
        (0..50).map(|number| TestMember { name: format!("{number}").into(), ..shared.clone() });
    members.extend(quine);
    check(
        WHEEL,
        &zip(&members),
        "the archive is ambiguous: the bytes of \"zeros\" overlap with the next ones",
    );

    let limits = ArchiveLimits { members_max: 3, ..ArchiveLimits::default() };
    assert_eq!(
        look(WHEEL, &zip(&wheel_members()), &limits),
        "the archive has 4 members: at most 3 were expected"
    );
    let limits = ArchiveLimits { directory_bytes_max: 100, ..ArchiveLimits::default() };
    assert!(
        look(WHEEL, &zip(&wheel_members()), &limits).contains(" bytes of directory: at most 100")
    );
}

#[test]
fn metadata_of_more_than_a_mebibyte_is_refused() {
    check_wheel(
        |members| members[1].bytes.resize((1 << 20) + 1, b'x'),
        "the archive has 1048577 bytes of METADATA: at most 1048576 were expected",
    );
    // The limit also holds if both headers give a false size.
    let mut members = wheel_members();
    members[1].bytes.resize(2 << 20, b'x');
    let mut lying = zip(&members);
    let size = (2u32 << 20).to_le_bytes();
    let places: Vec<usize> =
        (0..lying.len() - 4).filter(|at| lying[*at..*at + 4] == size).collect();
    assert_eq!(places.len(), 2);
    places.iter().for_each(|at| lying[*at..*at + 4].copy_from_slice(&9u32.to_le_bytes()));
    let found = look(WHEEL, &lying, &ArchiveLimits::default());
    assert!(found.starts_with("the file is not a whole zip archive: "), "{found}");
}

const SDIST: &str = "foo-1.0.tar.gz";

fn file_in_zip(name: &str) -> TestMember {
    file(name, METADATA)
}

fn sdist_members() -> Vec<Vec<u8>> {
    vec![
        tarred(b'5', "foo-1.0/", "", b""),
        tarred(b'0', "foo-1.0/setup.py", "", b"setup()\n"),
        tarred(b'0', "foo-1.0/PKG-INFO", "", METADATA.as_bytes()),
    ]
}

#[track_caller]
fn check_sdist(add: &[Vec<u8>], expected: &str) {
    let mut members = sdist_members();
    members.extend_from_slice(add);
    check(SDIST, &tarball(&members), expected);
}

#[test]
fn a_source_archive_gives_its_metadata_if_it_has_any() {
    check_sdist(&[], "PKG-INFO, 3 members");
    check(SDIST, &tarball(&sdist_members()[..2]), "nothing, 2 members");
    check("foo-1.0.tgz", &tarball(&sdist_members()), "PKG-INFO, 3 members");
    check("foo-1.0.tar.bz2", &bzip2(&tarball_plain(&sdist_members())), "PKG-INFO, 3 members");
    // Whatever the directory is called: the name of the file can be wrong.
    check("bar-1.0.tar.gz", &tarball(&sdist_members()), "PKG-INFO, 3 members");
    let project = || file("any/setup.py", "");
    check("foo-1.0.zip", &zip(&[project(), file_in_zip("any/PKG-INFO")]), "PKG-INFO, 2 members");
    check("foo-1.0.zip", &zip(&[project()]), "nothing, 1 members");
    check("foo-1.0.linux-x86_64.zip", &zip(&[file("usr/x", "")]), "nothing, 1 members");
    check("foo-1.0-py3.8.egg", &zip(&[file("EGG-INFO/PKG-INFO", METADATA)]), "PKG-INFO, 1 members");
    for unopened in ["foo-1.0.exe", "foo-1.0.msi", "foo-1.0.rpm", "foo-1.0.deb"] {
        check(unopened, b"anything", "nothing, 0 members");
    }
    // Some tools pad their output.
    let padded = [tarball(&sdist_members()), vec![0; 700]].concat();
    check(SDIST, &padded, "PKG-INFO, 3 members");
    let padded = [zip(&[project()]), vec![0; 512]].concat();
    check("foo-1.0.zip", &padded, "nothing, 1 members");
    check_sdist(
        &[
            tarred(b'2', "foo-1.0/link", "setup.py", b""),
            tarred(b'1', "foo-1.0/hard", "foo-1.0/setup.py", b""),
            tarred(b'g', "pax_global_header", "", b"15 comment=abc\n"),
            tarred(b'x', "pax", "", b"20 mtime=1700000.12\n24 path=foo-1.0/\xc3\xa9/long\n"),
            tarred(b'0', "foo-1.0/truncated", "", b""),
            tarred(b'L', "././@LongLink", "", b"foo-1.0/another long name\0"),
            tarred(b'0', "foo-1.0/truncated", "", b""),
        ],
        "PKG-INFO, 10 members",
    );
}

#[test]
fn a_source_archive_that_installers_cannot_unpack_is_refused() {
    let check_member = |member: Vec<u8>, name: &str, what: &str| {
        check_sdist(&[member], &format!("the archive has a member {name:?}, which has {what}"));
    };
    let link = |kind, target: &str| tarred(kind, "foo-1.0/l", target, b"");
    let out = "a link that leads out of the archive";
    for target in ["..", "../LICENSE", "../foo-1.0/setup.py", "./../x"] {
        check_member(link(b'2', target), "foo-1.0/l", out);
    }
    check_member(link(b'2', "l"), "foo-1.0/l", "a link that leads in a circle");
    check_member(link(b'2', ""), "foo-1.0/l", "a link without a target");
    for target in
        ["LICENSE", "setup.py", "foo-1.0", "foo-1.0/l", "./foo-1.0/setup.py", "foo-1.0/nothing"]
    {
        let what = format!("a hard link to {target:?}, which is no file before it");
        check_member(link(b'1', target), "foo-1.0/l", &what);
    }
    check_member(tarred(b'2', "foo-1.0/l", "setup.py", b"x"), "foo-1.0/l", "bytes, but is a link");
    for (name, what) in [
        ("foo-1.0/a\nb", "a control character in its name"),
        ("foo-1.0/a\\b", "a backslash or colon in its name"),
        ("foo-1.0/a:b", "a backslash or colon in its name"),
        ("foo-1.0/a ", "a blank at a name's end"),
        ("foo-1.0/a/", "a slash at its end, but is no directory"),
    ] {
        check_member(tarred(b'0', name, "", b""), name, what);
    }
    check_sdist(
        &[tarred(b'x', "x", "", b"14 path=f/\xff\xffx\n"), tarred(b'0', "foo-1.0/a", "", b"")],
        "the archive has a member \"f/\u{fffd}\u{fffd}x\", which has a name that is not UTF-8",
    );
    let nothing = ArchiveError::NoProject.to_string();
    check_sdist(&[tarred(b'0', "other/x.py", "", b"")], &nothing);
    check_sdist(&[tarred(b'0', "./foo-1.0/x.py", "", b"")], &nothing);
    check("foo-1.0.zip", &zip(&[file("a/setup.py", ""), file("b/x", "")]), &nothing);
    check("foo-1.0.zip", &zip(&[]), &nothing);
    // uv wants two blocks of zeros at the end, and reads one stream.
    let tar = sdist_members().concat();
    for zeros in [0, 512] {
        let short = [&tar[..], &vec![0; zeros]].concat();
        check(SDIST, &gzip(&short), "the file is not a whole tar.gz archive: it ends too early");
    }
    let whole = tarball_plain(&sdist_members());
    let two = [gzip(&whole[..512]), gzip(&whole[512..])].concat();
    check(SDIST, &two, &nothing);
    let followed = [gzip(&whole), b"x".to_vec()].concat();
    check(SDIST, &followed, "the archive is ambiguous: bytes follow its end");
    let member = TestMember { method: 12, ..file("a/x", "") };
    check(
        "foo-1.0.zip",
        &zip(&[file("a/setup.py", ""), member]),
        "the archive has a member \"a/x\", which has a compression that installers lack: 12 (BZIP2)",
    );
}

#[test]
fn a_source_archive_with_paths_outside_is_refused() {
    let check_member = |member: Vec<u8>, name: &str, what: &str| {
        check_sdist(&[member], &format!("the archive has a member {name:?}, which has {what}"));
    };
    let leaving = "a link that leads out of the archive";
    check_member(tarred(b'0', "../evil", "", b""), "../evil", "a path with `..`");
    check_member(tarred(b'0', "/etc/passwd", "", b""), "/etc/passwd", "an absolute path");
    check_member(
        tarred(b'0', "foo\\..\\..\\evil", "", b""),
        "foo\\..\\..\\evil",
        "a path with `..`",
    );
    check_member(tarred(b'2', "foo-1.0/link", "/etc/passwd", b""), "foo-1.0/link", leaving);
    check_member(tarred(b'2', "foo-1.0/link", "../../x", b""), "foo-1.0/link", leaving);
    check_member(tarred(b'1', "foo-1.0/link", "../x", b""), "foo-1.0/link", leaving);
    // Two steps: `top` is the archive's own directory, and `link` points above that.
    check_sdist(
        &[
            tarred(b'2', "foo-1.0/top", "..", b""),
            tarred(b'2', "foo-1.0/link", "top/..", b""),
            tarred(b'0', "foo-1.0/later", "", b""),
        ],
        "the archive has a member \"foo-1.0/link\", which has a link that leads through another link",
    );
    check_sdist(
        &[tarred(b'2', "foo-1.0/top", "..", b""), tarred(b'0', "foo-1.0/top/evil", "", b"")],
        "the archive has a member \"foo-1.0/top/evil\", which has the path of a link, or one below it",
    );
    let kind = "a kind that is neither file nor directory nor link";
    check_member(tarred(b'3', "foo-1.0/dev", "", b""), "foo-1.0/dev", kind);
    check_member(
        tarred(b'S', "foo-1.0/s", "", b""),
        "foo-1.0/s",
        "holes, which readers fill differently",
    );
    check_sdist(
        &[tarred(b'x', "x", "", b"16 path=../evil\n"), tarred(b'0', "foo-1.0/a", "", b"")],
        "the archive has a member \"../evil\", which has a path with `..`",
    );
    check_sdist(
        &[tarred(b'L', "x", "", b"../evil\0"), tarred(b'0', "foo-1.0/a", "", b"")],
        "the archive has a member \"../evil\", which has a path with `..`",
    );
    check_sdist(
        &[tarred(b'K', "x", "", b"/evil\0"), tarred(b'2', "foo-1.0/a", "b", b"")],
        &format!("the archive has a member \"foo-1.0/a\", which has {leaving}"),
    );
}

#[test]
fn a_source_archive_that_two_readers_could_read_differently_is_refused() {
    let file = || tarred(b'0', "foo-1.0/a", "", b"abc");
    let check_before = |before: &[Vec<u8>], reason: &str| {
        let members = [before, &[file()][..]].concat();
        check_sdist(&members, &format!("the archive is ambiguous: {reason}"));
    };
    check_before(&[tarred(b'x', "x", "", b"9 size=0\n")], "a member has two sizes");
    check_before(
        &[tarred(b'x', "x", "", b"10 path=b\n"), tarred(b'L', "x", "", b"c\0")],
        "a member has two names",
    );
    check_before(
        &[tarred(b'L', "x", "", b"b\0"), tarred(b'L', "x", "", b"c\0")],
        "a member has two records of one kind",
    );
    check_before(&[tarred(b'x', "x", "", b"22 GNU.sparse.major=1\n")], "a member has holes");
    check_before(&[tarred(b'g', "x", "", b"10 path=b\n")], "it sets \"path\" for all members");
    let second = "the archive is ambiguous: `PKG-INFO` is in it twice";
    check_sdist(&[sdist_members().remove(2)], second);
    let other_kind =
        "the archive has a member \"foo-1.0/PKG-INFO\", which has another kind than a file's";
    // The second may be anything: a link, a directory, or a kind that some readers take for a file.
    for (kind, link) in [(b'2', "setup.py"), (b'1', "foo-1.0/setup.py"), (b'5', ""), (b'7', "")] {
        let other = tarred(kind, "foo-1.0/PKG-INFO", link, b"");
        check_sdist(std::slice::from_ref(&other), second);
        let members = [&sdist_members()[..2], &[other]].concat();
        check(SDIST, &tarball(&members), other_kind);
    }
    check_sdist(&[tarred(b'x', "x", "", b"9 size=3\n"), file()], "PKG-INFO, 5 members");
    let mut followed = sdist_members().concat();
    followed.resize(followed.len() + 1024, 0);
    followed.extend(file());
    check(SDIST, &gzip(&followed), "the archive is ambiguous: bytes follow its end");
    check_sdist(
        &[tarred(b'x', "x", "", b"99 path=b\n"), file()],
        "the file is not a whole tar.gz archive: a record before a member is malformed",
    );
}

#[test]
fn a_damaged_source_archive_or_a_bomb_is_refused() {
    let sdist = tarball(&sdist_members());
    for end in [0, 1, 10, 50, sdist.len() - 9, sdist.len() - 1] {
        let found = look(SDIST, &sdist[..end], &ArchiveLimits::default());
        assert!(found.starts_with("the file is not a whole tar.gz archive: "), "{end}: {found}");
    }
    for other in [b"anything at all".to_vec(), gzip(&[b'x'; 2000]), zip(&wheel_members())] {
        let found = look(SDIST, &other, &ArchiveLimits::default());
        assert!(found.starts_with("the file is not a whole tar.gz archive: "), "{found}");
    }
    let mut members = sdist_members();
    members.push(tarred(b'0', "foo-1.0/zeros", "", &vec![0; 1 << 20]));
    let bomb = tarball(&members);
    let limits = ArchiveLimits { ratio_free_bytes: 10_000, ..ArchiveLimits::default() };
    let found = look(SDIST, &bomb, &limits);
    let expected = format!("bytes when unpacked: at most {} were expected", bomb.len() * 100);
    assert!(found.ends_with(&expected), "{found}");
    check(SDIST, &bomb, "PKG-INFO, 4 members");
    let limits = ArchiveLimits { members_max: 2, ..ArchiveLimits::default() };
    assert_eq!(look(SDIST, &sdist, &limits), "the archive has 3 members: at most 2 were expected");
    check_sdist(
        &[tarred(b'x', "x", "", &vec![b'x'; 70_000])],
        "the archive has 70000 bytes in a record before a member: at most 65536 were expected",
    );
    let long = tarred(b'0', "foo-1.0/PKG-INFO", "", &vec![b'x'; (1 << 20) + 1]);
    check(
        SDIST,
        &tarball(&[long]),
        "the archive has 1048577 bytes of PKG-INFO: at most 1048576 were expected",
    );
}

#[test]
fn a_disk_error_is_not_the_archives_fault() {
    struct Broken;
    impl ReaderAt for Broken {
        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            Err(io::Error::other("the store is away"))
        }
    }
    for filename in [WHEEL, SDIST] {
        let filename = Filename::parse(filename).expect("a filename");
        let error =
            inspect(Broken, 1000, &filename, &ArchiveLimits::default()).expect_err("a broken disk");
        let ArchiveError::Io(error) = error else { panic!("{error:?}") };
        assert_eq!(error.to_string(), "the store is away");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        look(WHEEL, &bytes, &ArchiveLimits::default());
        let filename = Filename::parse(SDIST).expect("a filename");
        let _ = inspect(&gzip(&bytes)[..], bytes.len() as u64, &filename, &ArchiveLimits::default());
    }

    /// Changing any byte of a wheel causes no panic, and an accepted wheel has the right metadata.
    #[test]
    fn no_changed_byte_of_a_wheel_goes_wrong(at in 0..700usize, byte in any::<u8>(), descriptor in any::<bool>()) {
        let mut members = wheel_members();
        members[0].descriptor_bytes = if descriptor { 16 } else { 0 };
        let mut wheel = zip(&members);
        let at = at % wheel.len();
        wheel[at] = byte;
        look(WHEEL, &wheel, &ArchiveLimits::default());
    }

    #[test]
    fn no_changed_byte_of_a_tar_panics(at in 0..3000usize, byte in any::<u8>()) {
        let mut tar = sdist_members();
        tar.insert(1, tarred(b'x', "x", "", b"10 path=b\n"));
        let mut tar = tar.concat();
        let at = at % tar.len();
        tar[at] = byte;
        let filename = Filename::parse(SDIST).expect("a filename");
        let tar = gzip(&tar);
        let _ = inspect(&tar[..], tar.len() as u64, &filename, &ArchiveLimits::default());
    }
}
