//! How each form of a dump is kept, what a restart finds, and which errors of a disk are survived.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use flate2::write::GzEncoder;

use super::*;
use crate::spec::sha256_hex;
use crate::spool::SPOOL_PREFIX;

/// Opens a data directory. Another test may just be starting a program, which for a moment has the lock that was let go of here.
pub(crate) fn opened(data_dir: &Path) -> KeptDump {
    let begun = std::time::Instant::now();
    loop {
        match KeptDump::open(data_dir) {
            Err(SourceError::Locked { .. }) if begun.elapsed() < Duration::from_secs(10) => {
                std::thread::sleep(Duration::from_millis(5));
            }
            kept => return kept.expect("a data directory"),
        }
    }
}

const JSON: &[u8] = b"[\n{\"Name\":\"attest\"}\n]";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    MultiGzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
    plain
}

/// A dump in a file of the operator.
fn foreign(directory: &Path, bytes: &[u8]) -> Arrival {
    let path = directory.join("dump");
    fs::write(&path, bytes).unwrap();
    let mut arrival = Arrival::open(&path, u64::MAX).unwrap();
    arrival.source_fingerprint = "fingerprint".to_owned();
    arrival.validators.etag = Some("\"a\"".to_owned());
    arrival
}

/// A spooled dump with these bytes, as if it had been fetched.
fn spooled(spool_dir: &Path, bytes: &[u8]) -> Arrival {
    let mut spool = tempfile::Builder::new().prefix(SPOOL_PREFIX).tempfile_in(spool_dir).unwrap();
    spool.write_all(bytes).unwrap();
    let (file, path) = spool.into_parts();
    Arrival {
        file: Arc::new(file),
        path: path.to_path_buf(),
        sha256: Some(sha256_hex(bytes)),
        kind: ArrivalKind::Spooled(path),
        ..foreign(tempfile::tempdir().unwrap().path(), bytes)
    }
}

fn read(mut reader: FileReader) -> Vec<u8> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    bytes
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Keeps `bytes`, once from a file and once as spooled. Expects that the kept bytes are `expected`, are described
/// correctly, and are found again after a restart.
#[track_caller]
fn check(bytes: &[u8], expected: impl Fn(&[u8]) -> bool) {
    for is_spooled in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("data");
        let mut kept = opened(&data_dir);
        let mut arrival = if is_spooled {
            spooled(kept.spool_dir(), bytes)
        } else {
            foreign(directory.path(), bytes)
        };
        let modified_at = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        arrival.modified_at = Some(modified_at);
        let file = kept.keep(&arrival).unwrap();
        drop(arrival);

        let on_disk = fs::read(data_dir.join("aur/packages-meta-ext-v1.json.gz")).unwrap();
        assert!(expected(&on_disk), "spooled: {is_spooled}");
        assert_eq!(read(file.reader()), on_disk);
        assert_eq!(file.size_bytes, on_disk.len() as u64);
        assert_eq!(file.modified_at, modified_at);
        let digest = sha256_hex(&on_disk);
        assert_eq!(file.sha256, digest);
        assert_eq!(names(kept.spool_dir()), ["packages-meta-ext-v1.json.gz", "source.json"]);
        drop(kept);

        let mut kept = opened(&data_dir);
        let arrival = kept.load().unwrap().unwrap();
        assert_eq!(read(arrival.reader()), on_disk);
        assert_eq!(arrival.modified_at, Some(modified_at));
        assert_eq!(arrival.validators.etag.as_deref(), Some("\"a\""));
        assert_eq!(arrival.source_fingerprint, "fingerprint");
        assert_eq!(kept.current().unwrap().sha256, digest);
        // Keeping the kept copy again changes nothing.
        assert_eq!(kept.keep(&arrival).unwrap().sha256, digest);
        assert_eq!(fs::read(arrival.path()).unwrap(), on_disk);
    }
}

#[test]
fn one_layer_is_kept_byte_for_byte() {
    check(&gzip(JSON), |kept| kept == gzip(JSON));
    let members = [gzip(&JSON[..5]), gzip(&JSON[5..])].concat();
    check(&members, |kept| kept == members);
}

#[test]
fn two_layers_become_the_inner_one() {
    check(&gzip(&gzip(JSON)), |kept| kept == gzip(JSON));
    check(&gzip(&gzip(&gzip(JSON))), |kept| kept == gzip(JSON));
}

#[test]
fn a_plain_dump_is_compressed_repeatably() {
    check(JSON, |kept| kept.starts_with(&GZIP_MAGIC) && gunzip(kept) == JSON);
    let large: Vec<u8> = (0..COPY_BUFFER_BYTES * 3 + 1).map(|index| (index % 251) as u8).collect();
    check(&large, |kept| gunzip(kept) == large);
    let digest = |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut kept = opened(directory.path());
        kept.keep(&foreign(directory.path(), JSON)).unwrap().sha256
    };
    assert_eq!(digest(1), digest(2));
}

#[test]
fn endless_wrapping_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut kept = opened(directory.path());
    let bytes = (0..9).fold(JSON.to_vec(), |bytes, _| gzip(&bytes));
    let error = kept.keep(&foreign(directory.path(), &bytes)).unwrap_err();
    let origin = directory.path().join("dump");
    assert_eq!(
        error.to_string(),
        format!("the dump from `{}` is compressed more than 8 times", origin.display())
    );
    assert_eq!(names(kept.spool_dir()), [""; 0]);
}

#[test]
fn the_operators_file_is_not_tied_to_the_copy() {
    let directory = tempfile::tempdir().unwrap();
    let mut kept = opened(directory.path());
    let arrival = foreign(directory.path(), &gzip(JSON));
    let file = kept.keep(&arrival).unwrap();
    fs::write(arrival.path(), "rewritten in place").unwrap();
    assert_eq!(fs::read(&file.path).unwrap(), gzip(JSON));
}

#[test]
fn a_fetched_dump_is_linked_and_not_copied() {
    let directory = tempfile::tempdir().unwrap();
    let mut kept = opened(directory.path());
    let arrival = spooled(kept.spool_dir(), &gzip(JSON));
    let file = kept.keep(&arrival).unwrap();
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_eq!(inode(&file.path), inode(arrival.path()));
}

#[test]
fn a_file_rewritten_since_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let mut kept = opened(directory.path());
    kept.keep(&foreign(directory.path(), &gzip(JSON))).unwrap();
    let arrival = foreign(directory.path(), &gzip(b"[]"));
    fs::write(arrival.path(), "rewritten in place, at another length").unwrap();
    let error = kept.keep(&arrival).unwrap_err();
    assert!(matches!(error, SourceError::ChangedWhileRead { .. }), "{error}");
    assert_eq!(fs::read(&kept.current().unwrap().path).unwrap(), gzip(JSON));
    assert_eq!(names(kept.spool_dir()), ["packages-meta-ext-v1.json.gz", "source.json"]);
}

#[test]
fn a_former_copy_stays_readable() {
    let directory = tempfile::tempdir().unwrap();
    let mut kept = opened(directory.path());
    let former = kept.keep(&foreign(directory.path(), &gzip(JSON))).unwrap();
    kept.keep(&spooled(kept.spool_dir(), &gzip(b"[]"))).unwrap();
    assert_eq!(read(former.reader()), gzip(JSON));
    assert_eq!(gunzip(&read(kept.current().unwrap().reader())), b"[]");
}

#[test]
fn validators_of_another_dump_are_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let file = {
        let mut kept = opened(&data_dir);
        kept.keep(&foreign(directory.path(), &gzip(JSON))).unwrap()
    };
    // As if the machine had stopped between the two files.
    fs::write(&file.path, gzip(b"[]")).unwrap();
    let arrival = opened(&data_dir).load().unwrap().unwrap();
    assert!(arrival.validators.is_empty());
    assert_eq!(arrival.origin, format!("{} (kept)", file.path.display()));

    fs::write(&file.path, gzip(JSON)).unwrap();
    fs::write(data_dir.join("aur/source.json"), "{\"sha256\":").unwrap();
    let arrival = opened(&data_dir).load().unwrap().unwrap();
    assert!(arrival.validators.is_empty());
}

#[test]
fn an_empty_directory_has_no_copy_and_leftovers_of_a_kill_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("aur")).unwrap();
    for name in [".spool-x", "packages-meta-ext-v1.json.gz.tmp", "source.json.tmp", "mine"] {
        fs::write(directory.path().join("aur").join(name), "").unwrap();
    }
    let mut kept = opened(directory.path());
    assert!(kept.load().unwrap().is_none());
    assert!(kept.current().is_none());
    assert_eq!(names(kept.spool_dir()), ["mine"]);
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error_value() {
    let directory = tempfile::tempdir().unwrap();
    let mut kept = opened(directory.path());
    // A file in its place stops everybody, root included.
    fs::remove_dir(kept.spool_dir()).unwrap();
    fs::write(kept.spool_dir(), "").unwrap();
    let error = kept.keep(&foreign(directory.path(), &gzip(JSON))).unwrap_err();
    let place = kept.spool_dir().join("packages-meta-ext-v1.json.gz.tmp");
    assert_eq!(
        error.to_string(),
        format!("cannot write `{}`: Not a directory (os error 20)", place.display())
    );
    assert_eq!(error.kind(), "write");
    // Keeping works again once the place is free.
    fs::remove_file(kept.spool_dir()).unwrap();
    kept.keep(&foreign(directory.path(), &gzip(JSON))).unwrap();
}

#[test]
fn a_read_only_directory_is_loaded_from() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    opened(&data_dir).keep(&foreign(directory.path(), &gzip(JSON))).unwrap();
    let set_mode = |mode| {
        for path in [&data_dir.join("aur"), &data_dir.join("larder.lock"), &data_dir] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    set_mode(0o555);
    // Modes do not bind root; as root this can test only the loading.
    let is_bound = fs::write(data_dir.join("probe"), "").is_err();
    let mut kept = opened(&data_dir);
    let arrival = kept.load().unwrap().unwrap();
    assert_eq!(read(arrival.reader()), gzip(JSON));
    let outcome = kept.keep(&foreign(directory.path(), JSON));
    assert_eq!(outcome.is_err(), is_bound);
    set_mode(0o755);
}

/// A failure is remembered, so that clients that ask again do not have everything compressed again, and passes.
#[test]
fn a_dump_that_cannot_be_compressed_is_tried_again_later() {
    let directory = tempfile::tempdir().unwrap();
    let arrival = foreign(directory.path(), JSON);
    let mut kept = opened(&directory.path().join("data"));
    let file = kept.keep(&arrival).unwrap();
    let good = fs::read(&file.path).unwrap();
    assert!(file.zstd_at_hand().is_none());
    fs::write(&file.path, &good[..good.len() / 2]).unwrap();
    let problem = file.in_zstd().unwrap_err();
    fs::write(&file.path, &good).unwrap();
    assert_eq!(file.in_zstd().unwrap_err(), problem);
    assert_eq!(file.clone().zstd_at_hand().unwrap().unwrap_err(), problem);
    let at = Instant::now().checked_sub(ZSTD_RETRY_AFTER).unwrap();
    *file.zstd() = Zstd::Failed { problem, at };
    assert!(file.zstd_at_hand().is_none());
    let made = file.in_zstd().unwrap();
    assert!(
        read(made.reader()).starts_with(&[0x28, 0xb5, 0x2f, 0xfd]),
        "the magic number of RFC 8878"
    );
    assert_eq!(file.zstd_at_hand().unwrap().unwrap().sha256, made.sha256);
}
