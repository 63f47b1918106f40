//! `/docs`: every surface with what one needs first, and below it its paths, out of the OpenAPI documents.

use std::sync::LazyLock;

use askama::Template;
use serde_json::{Map, Value};

use crate::app::App;
use crate::front::page::Site;
use crate::protocols::openapi::{ADMIN_OPENAPI, OPENAPI, PAGES_OPENAPI};

/// The paths of each section, as HTML: they are the same on every server.
pub(super) static REFERENCE: LazyLock<Reference> = LazyLock::new(Reference::read);

#[derive(Template)]
#[template(path = "docs.html")]
pub(super) struct Documentation {
    pub(super) site: Site,
    pub(super) here: Here,
    pub(super) reference: &'static Reference,
}

/// What this server has switched on.
pub(super) struct Here {
    aur: bool,
    lacks_aur_source: bool,
    python: bool,
    articles: bool,
    actions: bool,
    metrics: bool,
}

impl Here {
    pub(super) fn of(app: &App) -> Here {
        let config = &app.config;
        Here {
            aur: app.aur.is_on(),
            lacks_aur_source: app.aur.lacks_source,
            python: config.python.enabled,
            articles: config.article.enabled,
            actions: config.actions.enabled,
            metrics: config.metrics.enabled,
        }
    }
}

/// The lists of paths, each of the operations with certain tags.
pub(super) struct Reference {
    accounts: String,
    aur: String,
    python: String,
    articles: String,
    changes: String,
    actions: String,
    operations: String,
    pages: String,
    admin: String,
}

impl Reference {
    fn read() -> Reference {
        let read = |text| serde_json::from_str::<Value>(text).expect("our own document is JSON");
        let [document, pages, admin] = [OPENAPI, PAGES_OPENAPI, ADMIN_OPENAPI].map(read);
        let of = |tags: &[&str]| {
            let both = [&document, &pages].map(|document| operations(document, Some(tags)));
            rendered(both.into_iter().flatten().collect())
        };
        Reference {
            accounts: of(&["accounts"]),
            aur: of(&["rpc", "version 6", "dumps"]),
            python: of(&["python"]),
            articles: of(&["articles"]),
            changes: of(&["changes"]),
            actions: of(&["actions"]),
            operations: of(&["operations"]),
            pages: of(&["documentation"]),
            admin: rendered(operations(&admin, None)),
        }
    }
}

#[derive(Template)]
#[template(path = "operations.html")]
struct Operations {
    operations: Vec<Operation>,
}

fn rendered(operations: Vec<Operation>) -> String {
    Operations { operations }.render().expect("a template without conditions renders")
}

/// A path, and its answer.
struct Operation {
    path: String,
    /// Paths that answer the same.
    also: Vec<String>,
    methods: Vec<Method>,
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
