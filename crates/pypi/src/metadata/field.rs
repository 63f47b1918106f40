//! The fields of metadata, with their names in forms and JSON, and in files.

use std::fmt;

/// A field of [`FIELDS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Field(u8);

impl fmt::Debug for Field {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.key())
    }
}

/// One row of [`FIELDS`].
struct FieldRow {
    /// The name in devpi's JSON, and in the upload form unless [`ALIASES`] has another.
    key: &'static str,
    /// The name in a `METADATA` or `PKG-INFO` file; `None` if no standard defines one.
    header: Option<&'static str>,
    /// Whether the field may be repeated.
    is_list: bool,
    /// Whether devpi has the field. A registration without this field shows it as empty.
    is_devpis: bool,
}

const fn one(key: &'static str, header: &'static str) -> FieldRow {
    FieldRow { key, header: Some(header), is_list: false, is_devpis: true }
}

const fn many(key: &'static str, header: &'static str) -> FieldRow {
    FieldRow { key, header: Some(header), is_list: true, is_devpis: true }
}

/// Every field, in the order in which JSON shows them.
const FIELDS: [FieldRow; 33] = [
    one("name", "Name"),
    one("version", "Version"),
    one("metadata_version", "Metadata-Version"),
    one("summary", "Summary"),
    one("home_page", "Home-page"),
    one("author", "Author"),
    one("author_email", "Author-email"),
    one("maintainer", "Maintainer"),
    one("maintainer_email", "Maintainer-email"),
    one("license", "License"),
    one("license_expression", "License-Expression"),
    many("license_file", "License-File"),
    one("description", "Description"),
    one("description_content_type", "Description-Content-Type"),
    one("keywords", "Keywords"),
    many("platform", "Platform"),
    many("supported_platform", "Supported-Platform"),
    many("classifiers", "Classifier"),
    one("download_url", "Download-URL"),
    many("project_urls", "Project-URL"),
    FieldRow { key: "comment", header: None, is_list: false, is_devpis: true },
    many("requires", "Requires"),
    many("provides", "Provides"),
    many("obsoletes", "Obsoletes"),
    many("requires_dist", "Requires-Dist"),
    many("provides_dist", "Provides-Dist"),
    many("obsoletes_dist", "Obsoletes-Dist"),
    many("requires_external", "Requires-External"),
    one("requires_python", "Requires-Python"),
    many("provides_extras", "Provides-Extra"),
    many("dynamic", "Dynamic"),
    FieldRow { key: "import_names", header: Some("Import-Name"), is_list: true, is_devpis: false },
    FieldRow {
        key: "import_namespaces",
        header: Some("Import-Namespace"),
        is_list: true,
        is_devpis: false,
    },
];

/// Other names that clients use for a field: twine, uv and poetry send `provides_extra` for devpi's
/// `provides_extras`.
const ALIASES: [(&str, &str); 6] = [
    ("provides_extra", "provides_extras"),
    ("license_files", "license_file"),
    ("import_name", "import_names"),
    ("import_namespace", "import_namespaces"),
    ("classifier", "classifiers"),
    ("project_url", "project_urls"),
];

impl Field {
    pub(super) const NAME: Field = Field(0);
    pub(super) const VERSION: Field = Field(1);

    /// Every field.
    pub(super) fn all() -> impl Iterator<Item = Field> {
        (0..FIELDS.len() as u8).map(Field)
    }

    /// The field with the name `key` in forms or JSON.
    pub(super) fn of_key(key: &str) -> Option<Field> {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == key);
        let key = alias.map_or(key, |(_, key)| key);
        Field::all().find(|field| field.row().key == key)
    }

    /// The field with the name `header` in files, in any case.
    pub(super) fn of_header(header: &[u8]) -> Option<Field> {
        Field::all().find(|field| {
            field.header().is_some_and(|known| known.as_bytes().eq_ignore_ascii_case(header))
        })
    }

    fn row(self) -> &'static FieldRow {
        // Only `all` and the constants make fields, so the index is valid.
        &FIELDS[usize::from(self.0)]
    }

    /// The name in forms and JSON.
    pub(super) fn key(self) -> &'static str {
        self.row().key
    }

    /// The name in files; `None` if no standard defines one.
    pub(super) fn header(self) -> Option<&'static str> {
        self.row().header
    }

    pub(super) fn is_list(self) -> bool {
        self.row().is_list
    }

    pub(super) fn is_devpis(self) -> bool {
        self.row().is_devpis
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_constant_is_the_field_of_its_name() {
        assert_eq!(Field::NAME.key(), "name");
        assert_eq!(Field::VERSION.key(), "version");
    }

    #[test]
    fn every_alias_leads_to_a_field_and_no_key_is_twice() {
        for (alias, key) in ALIASES {
            assert_eq!(Field::of_key(alias).expect(alias).key(), key);
        }
        let mut keys: Vec<_> = Field::all().map(Field::key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), FIELDS.len());
    }
}
