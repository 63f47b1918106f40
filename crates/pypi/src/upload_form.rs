//! [`UploadForm`]: the form of `POST /{user}/{index}/`, and the digests that it claims for its file.
//!
//! fields -> [`UploadForm::read`] -> action, release, [`Metadata`], [`ClaimedDigests`]; the file's bytes, as they
//! arrive -> [`DigestHasher`] -> [`FileDigests`] -> [`ClaimedDigests::verify`]. Where devpi has a message, it is
//! devpi's. This module decides neither whether the sender may upload nor whether the file exists already.

use blake2::Blake2b256;
use md5::{Digest as _, Md5};

use crate::filename::Quoted;
use crate::{Filename, FilenameError, Metadata, MetadataError, ProjectName, Version};

/// The action that a form asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadAction {
    /// `file_upload`: add a release file.
    FileUpload,
    /// `submit`: register a release, without a file.
    Submit,
    /// `doc_upload`: add a zip of documentation.
    DocUpload,
}

/// The form of `POST /{user}/{index}/`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadForm {
    /// The action that the form asks for.
    pub action: UploadAction,
    /// The project, normalized; the name as it was sent is the metadata's text `name`.
    pub project: ProjectName,
    /// The version. `None` only for documentation, which then belongs to the latest release.
    pub version: Option<Version>,
    /// Every field of metadata that was sent.
    pub metadata: Metadata,
    /// `filetype` as sent: `sdist`, `bdist_wheel`; `None` if it was not sent.
    pub filetype: Option<String>,
    /// `pyversion` as sent: `source`, `py3`; `None` if it was not sent.
    pub pyversion: Option<String>,
    /// The digests that the form claims for the file.
    pub digests: ClaimedDigests,
}

/// Why a form is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UploadFormError {
    /// It has no `:action`.
    #[error(":action field not found")]
    NoAction,
    /// Its `:action` is not one of [`UploadAction`].
    #[error("action {} not supported", Quoted(.0))]
    Action(String),
    /// It has no file, though its action needs one.
    #[error("content file field not found")]
    NoContent,
    /// The name, the version or another field is not valid.
    #[error("invalid metadata: {0}")]
    Metadata(#[from] MetadataError),
    /// A digest is not hexadecimal, or has the wrong length.
    #[error("invalid metadata: {field} is {found:?}: {digits} hexadecimal digits were expected")]
    Digest {
        /// The field's key.
        field: &'static str,
        /// The text that was found, shortened.
        found: String,
        /// How many digits the digest should have.
        digits: usize,
    },
    /// A field that may occur once occurs twice, with different values.
    #[error("invalid metadata: the field {field} is given twice: {first:?} and {second:?}")]
    Twice {
        /// Its key.
        field: &'static str,
        /// The first value.
        first: String,
        /// The second value.
        second: String,
    },
}

impl UploadForm {
    /// Checks the text fields of a form, in order. `has_content` says whether the form has a file field `content` (or
    /// whether that has just begun: clients send it last).
    ///
    /// # Errors
    /// [`UploadFormError`], in devpi's order: action, content, then name, version and digests.
    pub fn read<'a, Fields>(
        fields: Fields,
        has_content: bool,
    ) -> Result<UploadForm, UploadFormError>
    where
        Fields: IntoIterator<Item = (&'a str, &'a str)> + Clone,
    {
        let once = |key| once(fields.clone(), key);
        let action = match once(":action")?.ok_or(UploadFormError::NoAction)? {
            "file_upload" => UploadAction::FileUpload,
            "submit" => UploadAction::Submit,
            "doc_upload" => UploadAction::DocUpload,
            other => return Err(UploadFormError::Action(other.to_owned())),
        };
        if !has_content && action != UploadAction::Submit {
            return Err(UploadFormError::NoContent);
        }
        let metadata = Metadata::from_form(fields.clone())?;
        let project = metadata.project()?;
        let is_latest = action == UploadAction::DocUpload && once("version")?.is_none();
        let version = if is_latest { None } else { Some(metadata.version()?) };
        let owned = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        Ok(UploadForm {
            action,
            project,
            version,
            filetype: owned(once("filetype")?),
            pyversion: owned(once("pyversion")?),
            digests: ClaimedDigests {
                sha256: digest("sha256_digest", once("sha256_digest")?)?,
                md5: digest("md5_digest", once("md5_digest")?)?,
                blake2_256: digest("blake2_256_digest", once("blake2_256_digest")?)?,
            },
            metadata,
        })
    }

    /// The name under which the file is stored, if `sent` is a valid name for a file of this release. A zip of
    /// documentation gets a name of its own, whatever `sent` is. The version must be known by now.
    ///
    /// # Errors
    /// [`FilenameError`], see [`Filename::of_upload`].
    pub fn filename(&self, sent: &str, version: &Version) -> Result<Filename, FilenameError> {
        match self.action {
            UploadAction::DocUpload => Filename::parse(&doc_filename(&self.project, version)),
            _ => Filename::of_upload(sent, self.metadata.text("name"), version),
        }
    }

    /// The name under which the file is stored, as [`UploadForm::filename`], but by devpi's rules. These accept names
    /// that installers do not understand.
    ///
    /// # Errors
    /// [`FilenameError`], see [`Filename::of_upload_to_devpi`].
    pub fn filename_for_devpi(
        &self,
        sent: &str,
        version: &Version,
    ) -> Result<Filename, FilenameError> {
        match self.action {
            UploadAction::DocUpload => self.filename(sent, version),
            _ => Filename::of_upload_to_devpi(sent, self.metadata.text("name"), version),
        }
    }
}

/// The name under which a zip of documentation is stored.
pub fn doc_filename(project: &ProjectName, version: &Version) -> String {
    format!("{project}-{version}.doc.zip")
}

/// The value of a field that must not occur twice with different values: otherwise one of them might be checked and
/// the other one stored.
fn once<'a>(
    fields: impl IntoIterator<Item = (&'a str, &'a str)>,
    key: &'static str,
) -> Result<Option<&'a str>, UploadFormError> {
    let mut values = fields.into_iter().filter(|(name, _)| *name == key).map(|(_, value)| value);
    let Some(first) = values.next() else { return Ok(None) };
    match values.find(|value| *value != first) {
        None => Ok(Some(first)),
        Some(second) => {
            let (first, second) = (first.to_owned(), second.to_owned());
            Err(UploadFormError::Twice { field: key, first, second })
        }
    }
}

/// The bytes of a digest in hexadecimal; an empty field counts as not sent.
fn digest<const BYTES: usize>(
    field: &'static str,
    text: Option<&str>,
) -> Result<Option<[u8; BYTES]>, UploadFormError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let error = || {
        let found = record::excerpt(text, 80).into();
        UploadFormError::Digest { field, found, digits: 2 * BYTES }
    };
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    if text.len() != 2 * BYTES {
        return Err(error());
    }
    let mut bytes = [0; BYTES];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let (high, low) = value(pair[0]).zip(value(pair[1])).ok_or_else(error)?;
        *byte = high << 4 | low;
    }
    Ok(Some(bytes))
}

/// The digests that a form claims for its file; those that it did not send are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimedDigests {
    /// `sha256_digest`.
    pub sha256: Option<[u8; 32]>,
    /// `md5_digest`.
    pub md5: Option<[u8; 16]>,
    /// `blake2_256_digest`: BLAKE2b of 256 bits.
    pub blake2_256: Option<[u8; 32]>,
}

/// The digests of a file: its SHA-256, and the others that were requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDigests {
    /// SHA-256: the name of the file's blob.
    pub sha256: record::Digest,
    /// MD5, if it was requested.
    pub md5: Option<[u8; 16]>,
    /// BLAKE2b of 256 bits, if it was requested.
    pub blake2_256: Option<[u8; 32]>,
    /// Number of bytes that were digested.
    pub size_bytes: u64,
}

/// The file does not have the digest in its form: it was damaged on its way, or exchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} of the form is {expected}, but that of the file is {found}")]
pub struct DigestMismatch {
    /// The field's key.
    pub field: &'static str,
    /// The digest in the form, in hexadecimal.
    pub expected: String,
    /// The digest of the file, in hexadecimal.
    pub found: String,
}

impl ClaimedDigests {
    /// Checks every digest that the form has. One that was not computed for the file counts as different: use a
    /// [`DigestHasher::new`] of these digests, or [`DigestHasher::of_all`].
    ///
    /// # Errors
    /// [`DigestMismatch`] for the first that differs, in this order: SHA-256, BLAKE2b, MD5.
    pub fn verify(&self, file: &FileDigests) -> Result<(), DigestMismatch> {
        let check = |field, expected: Option<&[u8]>, found: Option<&[u8]>| match expected {
            Some(expected) if found != Some(expected) => {
                let found = found.map_or("unknown".to_owned(), hex::encode);
                Err(DigestMismatch { field, expected: hex::encode(expected), found })
            }
            _ => Ok(()),
        };
        let sha256 = self.sha256.as_ref().map(<[u8; 32]>::as_slice);
        check("sha256_digest", sha256, Some(file.sha256.as_bytes()))?;
        let blake2_256 = |digest: &Option<[u8; 32]>| digest.map(Vec::from);
        let (expected, found) = (blake2_256(&self.blake2_256), blake2_256(&file.blake2_256));
        check("blake2_256_digest", expected.as_deref(), found.as_deref())?;
        let md5 = |digest: &Option<[u8; 16]>| digest.map(Vec::from);
        let (expected, found) = (md5(&self.md5), md5(&file.md5));
        check("md5_digest", expected.as_deref(), found.as_deref())
    }
}

/// Computes the digests of a file as it arrives.
#[derive(Clone)]
pub struct DigestHasher {
    sha256: record::Hasher,
    md5: Option<Md5>,
    blake2_256: Option<Blake2b256>,
    size_bytes: u64,
}

impl DigestHasher {
    /// A hasher for SHA-256 and for the digests in `claimed`.
    pub fn new(claimed: &ClaimedDigests) -> DigestHasher {
        DigestHasher {
            sha256: record::Hasher::new(),
            md5: claimed.md5.is_some().then(Md5::new),
            blake2_256: claimed.blake2_256.is_some().then(Blake2b256::new),
            size_bytes: 0,
        }
    }

    /// A hasher for all three digests, for a file that arrives before the fields of its form.
    pub fn of_all() -> DigestHasher {
        DigestHasher {
            sha256: record::Hasher::new(),
            md5: Some(Md5::new()),
            blake2_256: Some(Blake2b256::new()),
            size_bytes: 0,
        }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        if let Some(blake2_256) = &mut self.blake2_256 {
            blake2_256.update(bytes);
        }
        self.size_bytes += bytes.len() as u64;
    }

    /// The digests of all bytes so far.
    pub fn finish(self) -> FileDigests {
        FileDigests {
            sha256: self.sha256.finish(),
            md5: self.md5.map(|md5| md5.finalize().into()),
            blake2_256: self.blake2_256.map(|blake2_256| blake2_256.finalize().into()),
            size_bytes: self.size_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `key=value` fields, separated by `&`.
    fn read(fields: &str, has_content: bool) -> Result<UploadForm, UploadFormError> {
        let fields: Vec<(&str, &str)> =
            fields.split('&').filter_map(|field| field.split_once('=')).collect();
        UploadForm::read(fields.iter().copied(), has_content)
    }

    #[track_caller]
    fn check(fields: &str, has_content: bool, expected: &str) {
        let found = read(fields, has_content).map_or_else(
            |error| error.to_string(),
            |form| {
                let version = form.version.as_ref().map_or("latest", Version::as_str);
                format!("{:?} {} {version}", form.action, form.project)
            },
        );
        assert_eq!(found, expected, "{fields}");
    }

    #[test]
    fn a_form_names_an_action_and_a_release() {
        check(":action=file_upload&name=Foo_Bar&version=1.0", true, "FileUpload foo-bar 1.0");
        check(":action=submit&name=foo&version=1.0", false, "Submit foo 1.0");
        check(":action=doc_upload&name=foo&version=1.0", true, "DocUpload foo 1.0");
        check(":action=doc_upload&name=foo", true, "DocUpload foo latest");
        let no_version = "invalid metadata: the field version is missing";
        check(":action=doc_upload&name=foo&version=", true, no_version);
        check(":action=submit&:action=submit&name=foo&name=foo&version=1", false, "Submit foo 1");
    }

    #[test]
    fn a_form_is_refused_in_devpis_order_and_words() {
        check("name=foo", true, ":action field not found");
        check(":action=verify&name=foo", true, "action 'verify' not supported");
        check(":action=file_upload", false, "content file field not found");
        check(":action=doc_upload&name=foo", false, "content file field not found");
        check(":action=file_upload", true, "invalid metadata: the field name is missing");
        check(":action=submit&name=foo", false, "invalid metadata: the field version is missing");
        check(
            ":action=submit&name=foo&version=../../x",
            false,
            "invalid metadata: \"../../x\" is not a version: a leading dot cannot be in one",
        );
        check(
            ":action=submit&name=naïve&version=1",
            false,
            "invalid metadata: unicode project names not allowed: \"naïve\"",
        );
        check(
            ":action=submit&:action=file_upload",
            false,
            "invalid metadata: the field :action is given twice: \"submit\" and \"file_upload\"",
        );
        check(
            ":action=submit&name=foo&name=bar&version=1",
            false,
            "invalid metadata: the field name is given twice: \"foo\" and \"bar\"",
        );
    }

    #[test]
    fn a_digest_is_hexadecimal_digits() {
        let form = |digest: &str| format!(":action=file_upload&name=foo&version=1&{digest}");
        let sha256 = format!("sha256_digest={}", "aB".repeat(32));
        let read_form = read(&form(&sha256), true).expect("a form");
        assert_eq!(read_form.digests.sha256, Some([0xab; 32]));
        check(&form("sha256_digest=&md5_digest="), true, "FileUpload foo 1");
        check(
            &form("md5_digest=abc"),
            true,
            "invalid metadata: md5_digest is \"abc\": 32 hexadecimal digits were expected",
        );
        let digits = "g".repeat(64);
        check(
            &form(&format!("blake2_256_digest={digits}")),
            true,
            &format!(
                "invalid metadata: blake2_256_digest is \"{digits}\": 64 hexadecimal digits were expected"
            ),
        );
        let accents = "é".repeat(16);
        assert!(read(&form(&format!("md5_digest={accents}")), true).is_err());
        check(
            &form("md5_digest=1&md5_digest=2"),
            true,
            r#"invalid metadata: the field md5_digest is given twice: "1" and "2""#,
        );
    }

    #[test]
    fn other_fields_are_kept_as_sent() {
        let form = read(
            ":action=file_upload&name=foo&version=1&filetype=bdist_wheel&pyversion=&requires_python=>=3.8, bad",
            true,
        );
        let form = form.expect("a form");
        assert_eq!(form.filetype.as_deref(), Some("bdist_wheel"));
        assert_eq!(form.pyversion, None);
        assert_eq!(form.metadata.requires_python(), Some(">=3.8, bad"));
    }

    #[test]
    fn documentation_has_a_name_of_its_own() {
        let version = Version::parse("1.0").expect("a version");
        let form = read(":action=doc_upload&name=Foo_Bar", true).expect("a form");
        let filename = form.filename("../x", &version).expect("a filename");
        assert_eq!(filename.as_str(), "foo-bar-1.0.doc.zip");
        let form = read(":action=file_upload&name=foo&version=1.0", true).expect("a form");
        assert!(form.filename("../foo-1.0.zip", &version).is_err());
        assert_eq!(
            form.filename("foo-1.0.zip", &version).expect("a filename").as_str(),
            "foo-1.0.zip"
        );
    }

    /// The digests of `abc`: RFC 1321 A.5, FIPS 180-2 B.1; BLAKE2b of 256 bits as printed by b2sum.
    const MD5: &str = "900150983cd24fb0d6963f7d28e17f72";
    const SHA256: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const BLAKE2: &str = "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319";

    /// Verifies `abc` against the digests in these fields.
    fn verify(fields: &str) -> Result<(), DigestMismatch> {
        let fields = format!(":action=file_upload&name=foo&version=1&{fields}");
        let claimed = read(&fields, true).expect("a form").digests;
        let mut hasher = DigestHasher::new(&claimed);
        hasher.update(b"a");
        hasher.update(b"bc");
        let digests = hasher.finish();
        assert_eq!(digests.size_bytes, 3);
        claimed.verify(&digests)
    }

    #[test]
    fn every_digest_that_was_sent_is_verified() {
        let all = format!("md5_digest={MD5}&sha256_digest={SHA256}&blake2_256_digest={BLAKE2}");
        assert_eq!(verify(&all), Ok(()));
        assert_eq!(verify(""), Ok(()));
        for (field, digest) in
            [("md5_digest", MD5), ("sha256_digest", SHA256), ("blake2_256_digest", BLAKE2)]
        {
            let zeros = "0".repeat(digest.len());
            let error = verify(&format!("{field}={zeros}")).expect_err("a mismatch").to_string();
            assert_eq!(
                error,
                format!("{field} of the form is {zeros}, but that of the file is {digest}")
            );
        }
    }

    #[test]
    fn a_digest_that_was_not_computed_counts_as_different() {
        let claimed = ClaimedDigests { md5: Some([0; 16]), ..ClaimedDigests::default() };
        let file = DigestHasher::new(&ClaimedDigests::default()).finish();
        assert_eq!(claimed.verify(&file).expect_err("a mismatch").found, "unknown");
        let file = DigestHasher::of_all().finish();
        assert_eq!(
            claimed.verify(&file).expect_err("a mismatch").found,
            "d41d8cd98f00b204e9800998ecf8427e"
        );
    }

    proptest! {
        #[test]
        fn no_fields_panic(fields in "(:action=(file_upload|submit)|name=[a-z\u{e9}]{0,3}|version=[0-9./]{0,4}|md5_digest=[0-9a-z\u{e9}]{0,40}|&){0,12}") {
            let _ = read(&fields, true);
        }
    }
}
