//! A generated catalogue as a dump of the AUR, in a file: `larder demo-data` writes it, and `larder serve --demo` serves it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use demo::{Recipe, SqlWriter};
use flate2::Compression;
use flate2::write::GzEncoder;

/// Fast, since the catalogue is written while somebody waits.
const GZIP_LEVEL: u32 = 1;

/// The output of a generated catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output, plain.
    Stdout,
    /// A file.
    File {
        /// Its path.
        path: PathBuf,
        /// Whether to compress: the name ends in `.gz`.
        gzip: bool,
    },
}

impl From<OsString> for Output {
    fn from(path: OsString) -> Output {
        if path == "-" {
            return Output::Stdout;
        }
        let path = PathBuf::from(path);
        let gzip = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        Output::File { path, gzip }
    }
}

/// Writes a catalogue as a dump; with `sql`, also as the statements of aurweb's database into that file. `progress` gets the number
/// of packages that are written, from time to time. This blocks.
///
/// # Errors
/// Those of writing.
pub fn write(
    recipe: &Recipe,
    out: &Output,
    sql: Option<&Path>,
    progress: &mut dyn FnMut(u32),
) -> io::Result<()> {
    let sql = match sql {
        Some(path) => Some(SqlWriter::begin(BufWriter::new(created(path)?))?),
        None => None,
    };
    match out {
        Output::Stdout => {
            write_to(recipe, BufWriter::new(io::stdout().lock()), sql, progress)?.flush()
        }
        Output::File { path, gzip: false } => {
            write_to(recipe, BufWriter::new(created(path)?), sql, progress)?.flush()
        }
        Output::File { path, gzip: true } => {
            let file = BufWriter::new(created(path)?);
            let out = GzEncoder::new(file, Compression::new(GZIP_LEVEL));
            write_to(recipe, out, sql, progress)?.finish()?.flush()
        }
    }
}

/// A new file; an error names its path.
fn created(path: &Path) -> io::Result<File> {
    File::create(path)
        .map_err(|error| io::Error::new(error.kind(), format!("`{}`: {error}", path.display())))
}

/// Writes to the dump, and to the statements if there are any.
struct TeeWriter<W, S: Write> {
    dump: W,
    sql: Option<SqlWriter<S>>,
}

impl<W: Write, S: Write> Write for TeeWriter<W, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.dump.write_all(bytes)?;
        if let Some(sql) = &mut self.sql {
            sql.write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.dump.flush()
    }
}

fn write_to<W: Write>(
    recipe: &Recipe,
    dump: W,
    sql: Option<SqlWriter<impl Write>>,
    progress: &mut dyn FnMut(u32),
) -> io::Result<W> {
    let mut out = TeeWriter { dump, sql };
    demo::write_dump(recipe, &mut out, progress)?;
    if let Some(sql) = out.sql {
        sql.finish()?;
    }
    Ok(out.dump)
}
