//! The generated catalogue: written once per size, served like any dump, and what to try on it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ::demo::Recipe;
use flate2::Compression;
use flate2::write::GzEncoder;
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::Output;
use crate::config::{Config, ListenAddress};

/// The seed of the catalogue that `--demo` serves.
const DEMO_SEED: u64 = 1;

/// Fast, since the catalogue is written while somebody waits.
const GZIP_LEVEL: u32 = 1;

/// Writes a catalogue as a dump, with a progress bar on a terminal.
///
/// # Errors
/// Those of writing.
pub fn write(recipe: &Recipe, out: &Output) -> io::Result<()> {
    match out {
        Output::Stdout => write_to(recipe, BufWriter::new(io::stdout().lock()))?.flush(),
        Output::File { path, gzip: false } => {
            write_to(recipe, BufWriter::new(File::create(path)?))?.flush()
        }
        Output::File { path, gzip: true } => {
            let file = BufWriter::new(File::create(path)?);
            write_to(recipe, GzEncoder::new(file, Compression::new(GZIP_LEVEL)))?.finish()?.flush()
        }
    }
}

fn write_to<W: Write>(recipe: &Recipe, mut out: W) -> io::Result<W> {
    let bar = ProgressBar::new(recipe.packages.into());
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message("generating packages");
    ::demo::write_dump(recipe, &mut out, &mut |written| bar.set_position(written.into()))?;
    bar.finish_and_clear();
    Ok(out)
}

/// The dump that `--demo` serves; made if the data directory does not have it.
///
/// # Errors
/// Those of writing.
pub fn dump(data_dir: &Path, packages: u32) -> io::Result<PathBuf> {
    let path = data_dir.join(format!("catalogue-{packages}.json.gz"));
    if !path.exists() {
        let unfinished = data_dir.join(format!("catalogue-{packages}.json.gz.tmp"));
        let out = Output::File { path: unfinished.clone(), gzip: true };
        write(&Recipe { packages, seed: DEMO_SEED }, &out)?;
        fs::rename(unfinished, &path)?;
    }
    Ok(path)
}

/// What to try on a server that listens at `addresses`.
pub fn what_to_try(config: &Config, addresses: &[ListenAddress]) -> String {
    let scheme = if config.tls.certificate.is_some() { "https" } else { "http" };
    let (base, curl) = match addresses.first() {
        Some(ListenAddress::Unix(path)) => {
            ("http://larder".to_owned(), format!("curl --unix-socket {}", path.display()))
        }
        Some(ListenAddress::Tcp(address)) => (format!("{scheme}://{address}"), "curl".to_owned()),
        None => (String::new(), "curl".to_owned()),
    };
    format!(
        "\nLarder serves a generated catalogue of {} packages at {base}\n\n\
         Try:\n  \
         {curl} '{base}/rpc?v=5&type=search&arg=attest'\n  \
         {curl} '{base}/rpc?v=5&type=suggest&arg=python-'\n  \
         {curl} '{base}/rpc/v5/search/ttf-font?by=provides'\n  \
         {curl} '{base}/metrics'\n\n\
         Documentation with a form to try it: {base}/docs\n\
         Stop with Ctrl-C.\n",
        config.demo_packages
    )
}
