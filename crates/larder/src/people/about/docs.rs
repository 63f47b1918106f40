//! `/docs`: every surface with what one needs first, and below it its paths, out of the OpenAPI documents; `/docs?q=` finds paths.

use std::sync::LazyLock;

use askama::Template;
use serde_json::{Map, Value};

use crate::app::App;
use crate::front::page::Site;
use crate::front::parameters::typed_parameter;
use crate::front::request::Parts;
use crate::protocols::openapi::{ADMIN_OPENAPI, OPENAPI, PAGES_OPENAPI};

/// The paths of each section: they are the same on every server.
pub(super) static REFERENCE: LazyLock<Reference> = LazyLock::new(Reference::read);

#[derive(Template)]
#[template(path = "docs.html")]
pub(super) struct Documentation {
    site: Site,
    here: EnabledSurfaces,
    reference: &'static Reference,
    /// The words that paths are searched for, and what is found, by section.
    query: String,
    found: Vec<(&'static str, String)>,
}

impl Documentation {
    pub(super) fn of(app: &App, head: &Parts) -> Documentation {
        let query = typed_parameter(head, "q", WORDS_CHARS_MAX);
        Documentation {
            site: Site::of(app, head),
            here: EnabledSurfaces::of(app),
            reference: &REFERENCE,
            found: REFERENCE.find(&query),
            query,
        }
    }
}

/// What this server has switched on.
struct EnabledSurfaces {
    aur: bool,
    lacks_aur_source: bool,
    python: bool,
    articles: bool,
    actions: bool,
    metrics: bool,
}

impl EnabledSurfaces {
    fn of(app: &App) -> EnabledSurfaces {
        let config = &app.config;
        EnabledSurfaces {
            aur: app.aur.is_on(),
            lacks_aur_source: app.aur.lacks_source,
            python: config.python.enabled,
            articles: config.article.enabled,
            actions: config.actions.enabled,
            metrics: config.metrics.enabled,
        }
    }
}

/// The sections of the page with a list of paths: the title of each, and the tags of its operations.
const SECTIONS: [(&str, &[&str]); 8] = [
    ("Users and tokens", &["accounts"]),
    ("AUR packages", &["rpc", "version 6", "dumps"]),
    ("Python index", &["python"]),
    ("Articles", &["articles"]),
    ("What changed", &["changes"]),
    ("Actions", &["actions"]),
    ("Health and metrics", &["operations"]),
    ("Pages for people", &["documentation"]),
];

/// The title of the section of the other listener's paths.
const ADMIN: &str = "Administration";

/// Characters of a search.
const WORDS_CHARS_MAX: usize = 200;

/// The lists of paths, by the titles of their sections.
pub(super) struct Reference(Vec<(&'static str, Vec<Operation>)>);

impl Reference {
    fn read() -> Reference {
        let read = |text| serde_json::from_str::<Value>(text).expect("our own document is JSON");
        let [document, pages, admin] = [OPENAPI, PAGES_OPENAPI, ADMIN_OPENAPI].map(read);
        let section = |(title, tags): (&'static str, &[&str])| {
            let both = [&document, &pages].map(|document| operations(document, Some(tags)));
            (title, both.into_iter().flatten().collect())
        };
        let mut sections: Vec<_> = SECTIONS.into_iter().map(section).collect();
        sections.push((ADMIN, operations(&admin, None)));
        Reference(sections)
    }

    /// The list of the section with this title, folded, as HTML.
    fn list(&self, title: &str) -> String {
        let section = self.0.iter().find(|(it, _)| *it == title);
        let operations = section.map(|(_, operations)| operations.iter().collect());
        Operations { operations: operations.unwrap_or_default(), is_folded: true }.html()
    }

    /// The paths that have all of these words in them or in what is said of them, by section.
    fn find(&self, query: &str) -> Vec<(&'static str, String)> {
        let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
        let found = self.0.iter().filter_map(|(title, operations)| {
            let operations = operations.iter().filter(|it| it.has_all(&words)).collect();
            let found = Operations { operations, is_folded: false };
            (!words.is_empty() && !found.operations.is_empty()).then(|| (*title, found.html()))
        });
        found.collect()
    }
}

#[derive(Template)]
#[template(path = "operations.html")]
struct Operations<'a> {
    operations: Vec<&'a Operation>,
    is_folded: bool,
}

impl Operations<'_> {
    fn html(&self) -> String {
        self.render().expect("a template of texts renders")
    }
}

/// A path, and its answer.
struct Operation {
    path: String,
    /// Paths that answer the same.
    also: Vec<String>,
    methods: Vec<Method>,
}

impl Operation {
    fn has_all(&self, words: &[String]) -> bool {
        let said = |method: &Method| {
            let summary = method.summary.iter().map(|piece| &*piece.text);
            format!(
                "{} {} {}",
                method.name,
                summary.collect::<String>(),
                method.parameters.join(" ")
            )
        };
        let methods: Vec<String> = self.methods.iter().map(said).collect();
        let text = format!("{} {} {}", self.path, self.also.join(" "), methods.join(" "));
        let text = text.to_lowercase();
        words.iter().all(|word| text.contains(word.as_str()))
    }
}

struct Method {
    name: String,
    summary: Vec<Piece>,
    /// The parameters of the query.
    parameters: Vec<String>,
}

/// Part of a sentence.
struct Piece {
    is_code: bool,
    text: String,
}

/// The paths of a document whose operations have one of these tags, or all of them.
fn operations(document: &Value, tags: Option<&[&str]>) -> Vec<Operation> {
    let none = Map::new();
    let paths = document["paths"].as_object().unwrap_or(&none);
    let is_wanted = |operation: &Value| match (tags, operation["tags"].as_array()) {
        (Some(tags), Some(own)) => own.iter().any(|tag| tags.iter().any(|wanted| tag == wanted)),
        (Some(_), None) => false,
        (None, _) => true,
    };
    let operation = |(path, item): (&String, &Value)| {
        // `HEAD` and `OPTIONS` are the same everywhere: the page says so once.
        let methods: Vec<Method> = ["get", "put", "post", "patch", "delete"]
            .iter()
            .filter_map(|name| Some((name, item.get(name)?)))
            .filter(|(_, operation)| is_wanted(operation))
            .map(|(name, operation)| Method {
                name: name.to_uppercase(),
                summary: pieces(operation["summary"].as_str().unwrap_or_default()),
                parameters: parameters(document, operation),
            })
            .collect();
        let also = item["x-also"].as_array().into_iter().flatten();
        let also = also.filter_map(|path| path.as_str().map(str::to_owned)).collect();
        (!methods.is_empty()).then(|| Operation { path: path.clone(), also, methods })
    };
    paths.iter().filter_map(operation).collect()
}

/// A sentence in which code stands in backquotes.
fn pieces(text: &str) -> Vec<Piece> {
    let pieces = text.split('`').enumerate();
    let pieces = pieces.map(|(at, text)| Piece { is_code: at % 2 == 1, text: text.to_owned() });
    pieces.filter(|piece| !piece.text.is_empty()).collect()
}

/// The names of an operation's parameters in the query.
fn parameters(document: &Value, operation: &Value) -> Vec<String> {
    let listed = operation["parameters"].as_array();
    let parameters = listed.into_iter().flatten().map(|parameter| {
        let reference =
            parameter["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        reference.and_then(|pointer| document.pointer(pointer)).unwrap_or(parameter)
    });
    let in_query = parameters.filter(|parameter| parameter["in"] == "query");
    in_query.filter_map(|parameter| Some(parameter["name"].as_str()?.to_owned())).collect()
}
