//! [`Metadata`]: a release's description of itself: core metadata 1.0 to 2.5.
//!
//! `METADATA` or `PKG-INFO` bytes -> [`Metadata::read`]; an upload form -> [`Metadata::from_form`]; stored JSON ->
//! [`Metadata::from_json`]; all three -> [`Metadata::to_json`], with devpi's names. Values stay as they were sent,
//! without the marks of folded headers; nothing here validates a licence, a classifier or a requirement.

mod field;
mod headers;

use serde_json::{Map, Value as Json};

use crate::{ProjectName, ProjectNameError, Version, VersionError, requirement};
use field::Field;

/// A release's description of itself. Fields have devpi's names: `requires_dist`, `provides_extras`. A field is
/// either a text or a list of texts, and always the same of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Ascending by field, each once.
    values: Vec<(Field, Value)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    One(String),
    Many(Vec<String>),
}

/// Why metadata is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// It is longer than [`Metadata::BYTES_MAX`].
    #[error("metadata of {0} bytes is too long: at most {max} were expected", max = Metadata::BYTES_MAX)]
    TooLong(u64),
    /// A required field is missing.
    #[error("the field {0} is missing")]
    Missing(&'static str),
    /// A field that may occur once occurs twice, with different values.
    #[error("the field {field} is given twice: {first:?} and {second:?}")]
    Twice {
        /// Its key.
        field: &'static str,
        /// The first value.
        first: String,
        /// The second value.
        second: String,
    },
    /// The name is not a valid project name.
    #[error(transparent)]
    Name(#[from] ProjectNameError),
    /// The version is not valid.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// Two sources that should agree differ.
    #[error("{source_name} says {field} {found:?}, but the form says {expected:?}")]
    Disagrees {
        /// `METADATA` or `PKG-INFO`.
        source_name: &'static str,
        /// The field's key.
        field: &'static str,
        /// The value in the form.
        expected: String,
        /// The value in the file.
        found: String,
    },
    /// Installers cannot read the file.
    #[error("METADATA {0}")]
    Unreadable(&'static str),
    /// Installers cannot read a field of a wheel.
    #[error("METADATA has the {field} {value:?}, which installers cannot read: {what}")]
    Unfit {
        /// Its name in the file.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        what: String,
    },
    /// The JSON has another type.
    #[error("the field {field} is {found}: {expected} was expected")]
    Shape {
        /// The field's key.
        field: &'static str,
        /// The JSON that was found, shortened.
        found: String,
        /// `a text` or `a list of texts`.
        expected: &'static str,
    },
}

impl Metadata {
    /// Most bytes in a `METADATA` or `PKG-INFO` file.
    pub const BYTES_MAX: u64 = 1 << 20;

    /// Parses a `METADATA` or `PKG-INFO` file, and checks name and version.
    ///
    /// # Errors
    /// [`MetadataError`] if it is too long, or name or version are missing, ambiguous or invalid.
    pub fn read(bytes: &[u8]) -> Result<Metadata, MetadataError> {
        if bytes.len() as u64 > Metadata::BYTES_MAX {
            return Err(MetadataError::TooLong(bytes.len() as u64));
        }
        let mut metadata = Metadata::default();
        for (field, value) in headers::read(bytes) {
            if field.is_list() {
                metadata.push(field, value);
                continue;
            }
            metadata.check_once(field, &value)?;
            // The first one counts, as for Python's parser.
            if metadata.value(field).is_none() {
                metadata.set(field, Value::One(value));
            }
        }
        metadata.project()?;
        metadata.version()?;
        Ok(metadata)
    }

    /// Parses the `METADATA` of a wheel, and checks what pip and uv need to read.
    ///
    /// # Errors
    /// [`MetadataError`]: those of [`Metadata::read`], and if it is not UTF-8, begins with a byte-order mark, or has a version,
    /// a requirement or a `Requires-Python` that pip or uv cannot read.
    pub(crate) fn read_installable(bytes: &[u8]) -> Result<Metadata, MetadataError> {
        if bytes.starts_with(b"\xef\xbb\xbf") {
            return Err(MetadataError::Unreadable(
                "begins with a byte-order mark, which installers take for a part of a name",
            ));
        }
        if std::str::from_utf8(bytes).is_err() {
            return Err(MetadataError::Unreadable("is not UTF-8"));
        }
        let metadata = Metadata::read(bytes)?;
        let unfit = |field, value: &str, what: String| MetadataError::Unfit {
            field,
            value: value.to_owned(),
            what,
        };
        if metadata.version()?.is_legacy() {
            let what = "a version by PEP 440 was expected".to_owned();
            return Err(unfit("Version", metadata.text("version"), what));
        }
        for required in metadata.list("requires_dist") {
            requirement::check(required).map_err(|what| unfit("Requires-Dist", required, what))?;
        }
        let python = metadata.requires_python().unwrap_or_default();
        requirement::check_python(python).map_err(|what| unfit("Requires-Python", python, what))?;
        Ok(metadata)
    }

    /// The metadata in a form: its fields in order, each with one value. Fields that are not metadata are ignored.
    /// `UNKNOWN`, which distutils sent for an empty value, counts as empty; empty items of a list are dropped.
    ///
    /// # Errors
    /// [`MetadataError::Twice`] if the form names two releases.
    pub(crate) fn from_form<'a>(
        fields: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Metadata, MetadataError> {
        let mut metadata = Metadata::default();
        for (key, text) in fields {
            let Some(field) = Field::of_key(key) else { continue };
            if field.is_list() {
                if metadata.value(field).is_none() {
                    metadata.set(field, Value::Many(Vec::new()));
                }
                if !text.is_empty() {
                    metadata.push(field, headers::unfolded_if_folded(field, text).into_owned());
                }
                continue;
            }
            let value = if text == "UNKNOWN" { "" } else { text };
            let value = headers::unfolded_if_folded(field, value).into_owned();
            metadata.check_once(field, &value)?;
            // The last one counts, as on devpi.
            metadata.set(field, Value::One(value));
        }
        Ok(metadata)
    }

    /// Parses the JSON that [`Metadata::to_json`] or devpi wrote. Keys that are not metadata (`+links`) are ignored,
    /// and so is `null`.
    ///
    /// # Errors
    /// [`MetadataError::Shape`] if a value has another type.
    pub fn from_json(json: &Map<String, Json>) -> Result<Metadata, MetadataError> {
        let mut metadata = Metadata::default();
        for (key, json) in json {
            let Some(field) = Field::of_key(key) else { continue };
            let shape = || {
                let found = record::excerpt(&json.to_string(), 80).into();
                let expected = if field.is_list() { "a list of texts" } else { "a text" };
                MetadataError::Shape { field: field.key(), found, expected }
            };
            let value = match json {
                Json::Null => continue,
                Json::String(text) if !field.is_list() => {
                    Value::One(headers::unfolded_if_folded(field, text).into_owned())
                }
                // Very old databases have one text where a list is expected today.
                Json::String(text) => Value::Many(text.lines().map(str::to_owned).collect()),
                Json::Array(items) if field.is_list() => {
                    let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
                    Value::Many(texts.collect::<Option<_>>().ok_or_else(shape)?)
                }
                _ => return Err(shape()),
            };
            metadata.set(field, value);
        }
        Ok(metadata)
    }

    /// The JSON that devpi shows for a version: the fields that have a value, `name` first.
    pub fn to_json(&self) -> Map<String, Json> {
        let json = |value: &Value| match value {
            Value::One(text) => Json::from(text.as_str()),
            Value::Many(texts) => Json::from(texts.as_slice()),
        };
        self.values.iter().map(|(field, value)| (field.key().to_owned(), json(value))).collect()
    }

    /// Adds every field of devpi's that is missing, as empty: devpi shows a registration like this.
    pub fn with_empty_fields(mut self) -> Metadata {
        for field in Field::all().filter(|field| field.is_devpis()) {
            if self.value(field).is_none() {
                let empty = if field.is_list() {
                    Value::Many(Vec::new())
                } else {
                    Value::One(String::new())
                };
                self.set(field, empty);
            }
        }
        self
    }

    /// Replaces the fields that `newer` has and leaves the others, as for a further file of a registered release.
    pub fn merge(&mut self, newer: Metadata) {
        for (field, value) in newer.values {
            self.set(field, value);
        }
    }

    /// The project, checked and normalized; the name as it was written is the text `name`.
    ///
    /// # Errors
    /// [`MetadataError::Missing`] or [`MetadataError::Name`].
    pub fn project(&self) -> Result<ProjectName, MetadataError> {
        match self.text("name") {
            "" => Err(MetadataError::Missing("name")),
            name => Ok(ProjectName::parse(name)?),
        }
    }

    /// The version, checked.
    ///
    /// # Errors
    /// [`MetadataError::Missing`] or [`MetadataError::Version`].
    pub fn version(&self) -> Result<Version, MetadataError> {
        match self.text("version") {
            "" => Err(MetadataError::Missing("version")),
            version => Ok(Version::parse(version)?),
        }
    }

    /// The versions of Python that the release supports, as written; `None` if it does not say.
    pub fn requires_python(&self) -> Option<&str> {
        Some(self.text("requires_python")).filter(|text| !text.is_empty())
    }

    /// The text of a field; empty if the field is missing or a list.
    pub fn text(&self, key: &str) -> &str {
        match Field::of_key(key).and_then(|field| self.value(field)) {
            Some(Value::One(text)) => text,
            _ => "",
        }
    }

    /// The items of a field; empty if the field is missing or a text.
    pub fn list(&self, key: &str) -> &[String] {
        match Field::of_key(key).and_then(|field| self.value(field)) {
            Some(Value::Many(texts)) => texts,
            _ => &[],
        }
    }

    /// Checks that a file belongs to the release that this form names: the same project and the same version (`1.0`
    /// and `1.0.0` count as the same here, as builders normalize). Other fields may differ; installers read the
    /// file's.
    ///
    /// # Errors
    /// [`MetadataError::Disagrees`], or the error of an invalid name or version.
    pub fn check_file(
        &self,
        source_name: &'static str,
        file: &Metadata,
    ) -> Result<(), MetadataError> {
        let disagrees = |field: &'static str| MetadataError::Disagrees {
            source_name,
            field,
            expected: self.text(field).to_owned(),
            found: file.text(field).to_owned(),
        };
        if self.project()? != file.project()? {
            return Err(disagrees("name"));
        }
        if !self.version()?.is_same_release(&file.version()?) {
            return Err(disagrees("version"));
        }
        Ok(())
    }

    /// Refuses a second, different value: readers that take the other name or version would see another release.
    fn check_once(&self, field: Field, second: &str) -> Result<(), MetadataError> {
        match self.value(field) {
            Some(Value::One(first))
                if first != second && [Field::NAME, Field::VERSION].contains(&field) =>
            {
                let (first, second) = (first.clone(), second.to_owned());
                Err(MetadataError::Twice { field: field.key(), first, second })
            }
            _ => Ok(()),
        }
    }

    fn value(&self, field: Field) -> Option<&Value> {
        let at = self.values.binary_search_by_key(&field, |(field, _)| *field).ok()?;
        self.values.get(at).map(|(_, value)| value)
    }

    fn set(&mut self, field: Field, value: Value) {
        match self.values.binary_search_by_key(&field, |(field, _)| *field) {
            Ok(at) => self.values[at].1 = value,
            Err(at) => self.values.insert(at, (field, value)),
        }
    }

    fn push(&mut self, field: Field, text: String) {
        match self.values.binary_search_by_key(&field, |(field, _)| *field) {
            Ok(at) => {
                if let Value::Many(texts) = &mut self.values[at].1 {
                    texts.push(text);
                }
            }
            Err(at) => self.values.insert(at, (field, Value::Many(vec![text]))),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Expects these fields of `file`, one `key: value` a line, lists item by item.
    #[track_caller]
    fn check_read(file: &str, expected: &str) {
        let found = match Metadata::read(file.as_bytes()) {
            Ok(metadata) => lines(&metadata),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected);
    }

    fn lines(metadata: &Metadata) -> String {
        let mut lines = Vec::new();
        for (field, value) in &metadata.values {
            match value {
                Value::One(text) => lines.push(format!("{}: {text:?}", field.key())),
                Value::Many(texts) => {
                    lines.extend(texts.iter().map(|text| format!("{}: {text:?}", field.key())));
                }
            }
        }
        lines.join("\n")
    }

    #[test]
    fn a_file_of_today_is_read() {
        check_read(
            "Metadata-Version: 2.4\nName: Foo.Bar\nVersion: 1.0\nSummary: A f\u{f6}\u{f6}\n\
             Classifier: A :: B\nClassifier: C\nRequires-Dist: a>=1; extra == 'x'\nRequires-Dist: b\n\
             Requires-Python: >=3.8\nProvides-Extra: x\nProject-URL: Home, https://upstream.example/\n\
             License-Expression: MIT\nLicense-File: LICENSE\nDynamic: version\nImport-Name: foo\n\
             Unheard-Of: yes\nDescription-Content-Type: text/markdown\n\n# Foo\n\nText: more\n",
            "name: \"Foo.Bar\"\nversion: \"1.0\"\nmetadata_version: \"2.4\"\nsummary: \"A f\u{f6}\u{f6}\"\n\
             license_expression: \"MIT\"\nlicense_file: \"LICENSE\"\n\
             description: \"# Foo\\n\\nText: more\\n\"\ndescription_content_type: \"text/markdown\"\n\
             classifiers: \"A :: B\"\nclassifiers: \"C\"\nproject_urls: \"Home, https://upstream.example/\"\n\
             requires_dist: \"a>=1; extra == 'x'\"\nrequires_dist: \"b\"\nrequires_python: \">=3.8\"\n\
             provides_extras: \"x\"\ndynamic: \"version\"\nimport_names: \"foo\"",
        );
    }

    #[test]
    fn folded_lines_windows_lines_and_old_descriptions_are_read() {
        check_read(
            "Metadata-Version: 1.0\r\nname: foo\r\nVERSION: 1\r\nRequires-Dist: a\r\n  >=1\r\n\
             Description: One.\r\n        Two.\r\n        \r\n          Four.\r\n       |Five.\r\nLicense: x\r\n",
            "name: \"foo\"\nversion: \"1\"\nmetadata_version: \"1.0\"\nlicense: \"x\"\n\
             description: \"One.\\nTwo.\\n\\n  Four.\\nFive.\"\nrequires_dist: \"a >=1\"",
        );
    }

    #[test]
    fn a_line_that_is_not_a_header_begins_the_description() {
        check_read(
            "Name: foo\nVersion: 1\nNo header\nName: bar\n",
            "name: \"foo\"\nversion: \"1\"\ndescription: \"No header\\nName: bar\\n\"",
        );
    }

    #[test]
    fn a_file_without_one_name_and_one_version_is_refused() {
        check_read("Version: 1\n", "the field name is missing");
        check_read("Name: foo\n", "the field version is missing");
        check_read("", "the field name is missing");
        check_read(
            "Name: foo\nName: bar\nVersion: 1\n",
            r#"the field name is given twice: "foo" and "bar""#,
        );
        check_read(
            "Name: foo\nVersion: 1\nVersion: 2\n",
            r#"the field version is given twice: "1" and "2""#,
        );
        check_read(
            "Name: foo\nName: foo\nVersion: 1\nSummary: a\nSummary: b\n",
            "name: \"foo\"\nversion: \"1\"\nsummary: \"a\"",
        );
        check_read(
            "Name: foo\nVersion: ../1\n",
            r#""../1" is not a version: a leading dot cannot be in one"#,
        );
        let long = format!("Name: foo\nVersion: 1\n\n{}", "x".repeat(1 << 20));
        check_read(&long, "metadata of 1048598 bytes is too long: at most 1048576 were expected");
    }

    /// Expects `text` of the description, however a header with it comes: in a file, in a form, or as devpi stored it.
    #[track_caller]
    fn check_description(folded: &str, text: &str) {
        let file = format!("Name: foo\nVersion: 1\nDescription: {folded}\nLicense: x\n");
        let file = Metadata::read(file.as_bytes()).expect("valid");
        let form = [("name", "foo"), ("version", "1"), ("description", folded)];
        let form = Metadata::from_form(form).expect("valid");
        let json = Map::from_iter([("description".to_owned(), Json::from(folded))]);
        let json = Metadata::from_json(&json).expect("valid");
        for found in [file, form, json] {
            assert_eq!(found.text("description"), text, "{folded:?}");
        }
    }

    #[test]
    fn a_folded_description_is_the_same_from_everywhere() {
        check_description(
            "Title\n        =====\n        \n        A *b*.\n        \n          c",
            "Title\n=====\n\nA *b*.\n\n  c",
        );
        check_description("a\n       |b\n       |\n       |  c", "a\nb\n\n  c");
        check_description("a\n        |b\n        |\n        |  c", "a\nb\n\n  c");
        check_description(
            "a\n        \n        | b | c |\n        |---|---|",
            "a\n\n| b | c |\n|---|---|",
        );
        check_description("one line", "one line");
    }

    #[test]
    fn what_is_not_folded_keeps_its_blanks() {
        for text in ["Code::\n\n        x\n", "        a\n        b", "a\nb\n        c"] {
            let form = [("name", "foo"), ("version", "1"), ("description", text)];
            assert_eq!(Metadata::from_form(form).expect("valid").text("description"), text);
        }
        let form = [("name", "foo"), ("license", "a\n        b"), ("requires_dist", "a\n >=1")];
        let form = Metadata::from_form(form).expect("valid");
        assert_eq!((form.text("license"), &form.list("requires_dist")[0][..]), ("a\nb", "a >=1"));
    }

    #[track_caller]
    fn check_form(fields: &[(&str, &str)], expected: &str) {
        let found = Metadata::from_form(fields.iter().copied());
        assert_eq!(
            found.map_or_else(|error| error.to_string(), |metadata| lines(&metadata)),
            expected
        );
    }

    #[test]
    fn a_form_may_use_every_clients_field_names() {
        check_form(
            &[
                (":action", "file_upload"),
                ("name", "foo"),
                ("version", "1.0"),
                ("author", "UNKNOWN"),
                ("summary", "a"),
                ("summary", "b"),
                ("provides_extra", "x"),
                ("provides_extras", "y"),
                ("classifiers", ""),
                ("platform", "UNKNOWN"),
                ("import_names", "foo"),
                ("sha256_digest", "00"),
            ],
            "name: \"foo\"\nversion: \"1.0\"\nsummary: \"b\"\nauthor: \"\"\nplatform: \"UNKNOWN\"\n\
             provides_extras: \"x\"\nprovides_extras: \"y\"\nimport_names: \"foo\"",
        );
        check_form(
            &[("name", "a"), ("name", "b")],
            r#"the field name is given twice: "a" and "b""#,
        );
    }

    fn form(fields: &[(&str, &str)]) -> Metadata {
        Metadata::from_form(fields.iter().copied()).expect("a form")
    }

    #[test]
    fn a_registration_shows_every_field_and_a_further_file_replaces_its_own() {
        let mut metadata =
            form(&[("name", "foo"), ("version", "1"), ("summary", "old"), ("author", "me")]);
        metadata = metadata.with_empty_fields();
        metadata.merge(form(&[
            ("name", "foo"),
            ("version", "1"),
            ("summary", "new"),
            ("classifiers", "A"),
        ]));
        assert_eq!(metadata.text("summary"), "new");
        assert_eq!(metadata.text("author"), "me");
        assert_eq!(metadata.list("classifiers"), ["A"]);
        let json = metadata.to_json();
        assert_eq!(json["requires_python"], "");
        assert_eq!(json["requires_dist"], Json::Array(Vec::new()));
        assert!(!json.contains_key("import_names"));
        assert_eq!(json.len(), 31);
        assert_eq!(Metadata::from_json(&json), Ok(metadata));
    }

    #[track_caller]
    fn check_json(json: &str, expected: &str) {
        let json: Map<String, Json> = serde_json::from_str(json).expect("an object");
        let found = Metadata::from_json(&json);
        assert_eq!(
            found.map_or_else(|error| error.to_string(), |metadata| lines(&metadata)),
            expected
        );
    }

    #[test]
    fn devpis_json_is_read_and_other_shapes_are_refused() {
        check_json(
            r#"{"name": "foo", "version": "1", "author": null, "+links": [], "classifiers": ["A"], "platform": "a\nb"}"#,
            "name: \"foo\"\nversion: \"1\"\nplatform: \"a\"\nplatform: \"b\"\nclassifiers: \"A\"",
        );
        check_json(r#"{"summary": 1}"#, "the field summary is 1: a text was expected");
        check_json(
            r#"{"classifiers": [1]}"#,
            "the field classifiers is [1]: a list of texts was expected",
        );
    }

    #[test]
    fn a_file_of_another_release_than_its_form_is_refused() {
        let form = form(&[("name", "Foo_Bar"), ("version", "1.0")]);
        let check = |file: &str| {
            let file = Metadata::read(file.as_bytes()).expect("metadata");
            form.check_file("METADATA", &file)
                .map_or_else(|error| error.to_string(), |()| "ok".to_owned())
        };
        assert_eq!(check("Name: foo-bar\nVersion: 1.0.0\n"), "ok");
        assert_eq!(
            check("Name: evil\nVersion: 1.0\n"),
            r#"METADATA says name "evil", but the form says "Foo_Bar""#
        );
        assert_eq!(
            check("Name: foo-bar\nVersion: 1.1\n"),
            r#"METADATA says version "1.1", but the form says "1.0""#
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Metadata::read(&bytes);
        }

        #[test]
        fn no_headers_panic(text in "((Name|Version|Description|License|x)?:?[ \t]{0,2}[a-z\u{e9}:]{0,4}\r?\n){0,12}") {
            let _ = Metadata::read(text.as_bytes());
            let _ = Metadata::read(format!("Name: a\nVersion: 1\n{text}").as_bytes());
        }
    }
}
