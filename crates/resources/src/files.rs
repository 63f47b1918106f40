//! Opens files that may have been replaced by something else while the server runs. Opening a pipe would wait for its other end, for
//! ever if nobody has it; here it is an error, as is everything that is no file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file, or a device such as `/dev/full`, with these options, which set no flags of their own. Waits for nobody.
///
/// # Errors
/// Those of opening; if there is something else.
pub fn open_with(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Of a file, this flag changes nothing.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = options.custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    match kind.is_file() || kind.is_char_device() {
        true => Ok(file),
        false => Err(io::Error::other("there is something other than a file")),
    }
}

/// Opens a file to read it, as [`open_with`] does.
///
/// # Errors
/// Those of [`open_with`].
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OpenOptions::new().read(true))
}

/// The bytes of a file, which is opened as [`open_with`] does.
///
/// # Errors
/// Those of [`open_with`] and of reading.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn what_is_no_file_is_an_error_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let [file, pipe] = ["file", "pipe"].map(|name| directory.path().join(name));
        fs::write(&file, "text").expect("a file");
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        assert_eq!(read(&file).expect("a file"), b"text");
        let mut append = OpenOptions::new();
        append.create(true).append(true);
        open_with(&file, &mut append).expect("a file");
        for path in [&pipe, directory.path()] {
            open(path).expect_err("no file");
            open_with(path, &mut append).expect_err("no file");
        }
        // Nor if the other end of the pipe is open.
        let _reader = OpenOptions::new().read(true).write(true).open(&pipe).expect("a pipe");
        open(&pipe).expect_err("no file");
        open_with(&pipe, &mut append).expect_err("no file");
        let missing = open(&directory.path().join("missing")).expect_err("nothing");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
