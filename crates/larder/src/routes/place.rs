//! [`Place`]: a path of the table with its endpoints; [`Route`]: the place of a request's path, and the names in that path.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use http::Method;

use super::path::{decoded, decoded_lossily, segments};
use super::{Endpoint, Tree};

/// A path of the table, with its endpoints.
#[derive(Debug)]
pub struct Place {
    /// The tree that it is in.
    pub tree: Tree,
    /// The path as the table writes it.
    pub path: &'static str,
    endpoints: Vec<(&'static str, Endpoint)>,
    allow: String,
    pub(super) parts: Vec<Part>,
}

/// A part of a path, between slashes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Word(&'static str),
    /// One name; the value is the placeholder in the table.
    Name(&'static str),
    /// A name that slashes may be in.
    Path(&'static str),
    /// At least this many names.
    Rest(usize),
}

impl PartialEq for Place {
    fn eq(&self, other: &Place) -> bool {
        self.tree == other.tree && self.path == other.path
    }
}

/// The name of an article, in which slashes have a meaning.
const ARTICLE: &str = "{article}";

static PLACES: LazyLock<Vec<Place>> = LazyLock::new(|| {
    let mut places: Vec<Place> = Vec::new();
    for endpoint in Endpoint::ALL {
        for (methods, paths) in endpoint.methods() {
            for path in *paths {
                let tree = endpoint.tree();
                let known = places.iter().position(|it| it.tree == tree && it.path == *path);
                let at = known.unwrap_or_else(|| {
                    places.push(Place::new(tree, path));
                    places.len() - 1
                });
                places[at].endpoints.extend(methods.iter().map(|method| (*method, *endpoint)));
            }
        }
    }
    for place in &mut places {
        place.allow = place.methods().join(", ");
    }
    places
});

/// The places of a tree whose paths begin with the same word, in the order of the table; under the empty word those that begin with
/// a name.
static BY_WORD: LazyLock<HashMap<(Tree, &'static str), Vec<&'static Place>>> =
    LazyLock::new(|| {
        let mut by_word: HashMap<_, Vec<_>> = HashMap::new();
        for place in PLACES.iter() {
            let word = if let Some(Part::Word(word)) = place.parts.first() { *word } else { "" };
            by_word.entry((place.tree, word)).or_default().push(place);
        }
        by_word
    });

impl Place {
    fn new(tree: Tree, path: &'static str) -> Place {
        let parts = path.strip_prefix('/').unwrap_or(path).split('/');
        // In the Python index a slash at the end makes no difference.
        let parts = parts.filter(|part| tree != Tree::Python || !part.is_empty());
        let parts = parts.map(|part| match part {
            "{*}" => Part::Rest(1),
            "{**}" => Part::Rest(0),
            ARTICLE => Part::Path(part),
            part if part.starts_with('{') => Part::Name(part),
            part => Part::Word(part),
        });
        Place { tree, path, endpoints: Vec::new(), allow: String::new(), parts: parts.collect() }
    }

    /// The places of all trees.
    pub fn all() -> &'static [Place] {
        &PLACES
    }

    /// The place of the `tree` whose path in the table is `path`, placeholders included.
    pub fn named(tree: Tree, path: &str) -> Option<&'static Place> {
        PLACES.iter().find(|place| place.tree == tree && place.path == path)
    }

    /// The endpoint for a method; `HEAD` has that of `GET`.
    pub fn endpoint(&self, method: &Method) -> Option<Endpoint> {
        let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
        let of = |wanted: &str| self.endpoints.iter().find(|(method, _)| *method == wanted);
        of(method).or_else(|| of("ANY")).map(|(_, endpoint)| *endpoint)
    }

    /// The first endpoint of this place in the table.
    pub fn first(&self) -> Endpoint {
        self.endpoints[0].1
    }

    /// Its methods, as `Allow` lists them.
    pub fn allow(&self) -> &str {
        &self.allow
    }

    /// Whether it takes every method.
    pub fn takes_every_method(&self) -> bool {
        self.endpoints.iter().any(|(method, _)| *method == "ANY")
    }

    /// Its methods, each once.
    pub fn methods(&self) -> Vec<&'static str> {
        let mut methods = Vec::new();
        for (method, _) in &self.endpoints {
            let named: &[&str] = if *method == "GET" { &["GET", "HEAD"] } else { &[method] };
            methods.extend(named.iter().filter(|it| **it != "ANY"));
        }
        // `OPTIONS` comes last: it only asks for the other methods.
        methods.sort_by_key(|method| *method == "OPTIONS");
        let mut seen = Vec::new();
        methods.retain(|method| {
            !seen.contains(method) && {
                seen.push(*method);
                true
            }
        });
        methods
    }

    /// Whether these names are a path of this place. A name begins with `+` only after a word that does.
    fn matches(&self, names: &[Cow<'_, str>]) -> bool {
        let mut is_below_word = false;
        for (at, part) in self.parts.iter().enumerate() {
            match (part, names.get(at)) {
                (Part::Rest(at_least), _) => return names.len() >= at + at_least,
                (Part::Path(_), _) => return self.matches_around(names, at),
                (Part::Word(word), Some(name)) if *word == name => {
                    is_below_word |= word.starts_with('+');
                }
                (Part::Name(_), Some(name))
                    if !name.is_empty() && (is_below_word || !name.starts_with('+')) => {}
                _ => return false,
            }
        }
        self.parts.len() == names.len()
    }

    /// Whether the names from the one `at` on are a name with slashes, and what follows it in this place.
    fn matches_around(&self, names: &[Cow<'_, str>], at: usize) -> bool {
        let after = &self.parts[at + 1..];
        let Some(end) = names.len().checked_sub(after.len()).filter(|end| *end > at) else {
            return false;
        };
        let is_empty = end == at + 1 && names[at].is_empty();
        let is_after = |(part, name): (&Part, &Cow<'_, str>)| match part {
            Part::Word(word) => word == name,
            _ => !name.is_empty(),
        };
        !is_empty && after.iter().zip(&names[end..]).all(is_after)
    }
}

/// The place of a request's path, and the names in that path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Route {
    pub(crate) place: &'static Place,
    path: String,
}

/// What is between the slashes of a path whose first slash was cut off. In the Python index a slash at the end makes no difference.
fn names(tree: Tree, below: &str) -> impl Iterator<Item = &str> {
    let without_slash = below.strip_suffix('/').filter(|_| tree == Tree::Python);
    let below = without_slash.unwrap_or(below);
    let is_top = tree == Tree::Python && below.is_empty();
    segments(below).take(if is_top { 0 } else { usize::MAX })
}

/// A name as it is compared with the table; `None` if no path of the tree has it. The Python index has the names of its projects and
/// files, decoded; in the other trees the handler decodes what it reads.
fn compared(tree: Tree, name: &str) -> Option<Cow<'_, str>> {
    if tree != Tree::Python {
        return Some(name.into());
    }
    let name = decoded(name).ok()?;
    let is_name = !name.is_empty()
        && name != "."
        && name != ".."
        && !name.contains(['/', '\\'])
        && !name.chars().any(char::is_control);
    is_name.then_some(name)
}

impl Route {
    /// The route of a path: its words are all it has, or else the first place in the table that it matches. If that does not have the
    /// `method`, a later place that has it and names every part goes before it.
    pub(crate) fn find(tree: Tree, path: &str, method: Option<&Method>) -> Option<Route> {
        let names = names(tree, path.strip_prefix('/')?).map(|name| compared(tree, name));
        let names: Vec<_> = names.collect::<Option<_>>()?;
        let by_word: &HashMap<(Tree, &str), _> = &*BY_WORD;
        let word = names.first().map_or("", |name| &**name);
        let places = by_word.get(&(tree, word)).or_else(|| by_word.get(&(tree, "")))?;
        let places = places.iter().copied();
        let is_exact = |place: &&Place| place.path == path && !path.contains('{');
        let mut found = places.clone().filter(|place| place.matches(&names));
        let first = places.clone().find(is_exact).or_else(|| found.next())?;
        let has = |place: &Place| method.is_none_or(|method| place.endpoint(method).is_some());
        let is_narrow = |place: &Place| !matches!(place.parts.last(), Some(Part::Rest(_)));
        let place = match has(first) {
            true => first,
            false => found.find(|place| has(place) && is_narrow(place)).unwrap_or(first),
        };
        Some(Route { place, path: path.to_owned() })
    }

    /// The path as it was sent.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The name that stands for `placeholder`, as it was sent; empty if the path has none.
    pub(crate) fn raw(&self, placeholder: &str) -> &str {
        self.range(placeholder).map_or("", |range| &self.path[range])
    }

    /// The path with another name for `placeholder`.
    pub(crate) fn with(mut self, placeholder: &str, name: &str) -> String {
        if let Some(range) = self.range(placeholder) {
            self.path.replace_range(range, name);
        }
        self.path
    }

    fn range(&self, placeholder: &str) -> Option<Range<usize>> {
        let parts = &self.place.parts;
        let is_it =
            |part: &Part| matches!(part, Part::Name(it) | Part::Path(it) if *it == placeholder);
        let at = parts.iter().position(is_it)?;
        let names: Vec<&str> = names(self.place.tree, &self.path[1..]).collect();
        // How many bytes are before a part. What follows a name with slashes is counted from the end.
        let before = |at: usize| {
            let is_path = |part: &Part| matches!(part, Part::Path(_));
            let is_after = parts[..at].iter().any(is_path);
            let count = if is_after { names.len() + at - parts.len() } else { at };
            names[..count].iter().map(|name| name.len() + 1).sum::<usize>()
        };
        Some(1 + before(at)..before(at + 1))
    }

    /// The name that stands for `placeholder`, percent-decoded; what is not UTF-8 is replaced.
    pub(crate) fn name(&self, placeholder: &str) -> Cow<'_, str> {
        decoded_lossily(self.raw(placeholder))
    }

    /// The names after the first of these words, percent-decoded; without words of the table at the end.
    pub(crate) fn names_below(&self, words: &[&str]) -> Vec<String> {
        let parts = &self.place.parts;
        let is_it = |part: &Part| matches!(part, Part::Word(word) if words.contains(word));
        let Some(at) = parts.iter().position(is_it) else { return Vec::new() };
        let is_word = |part: &&Part| matches!(part, Part::Word(_));
        let after = parts[at + 1..].iter().rev().take_while(is_word).count();
        let names: Vec<&str> = names(self.place.tree, &self.path[1..]).collect();
        let below = &names[at + 1..names.len() - after];
        below.iter().map(|name| decoded_lossily(name).into_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No place is hidden by a wider one before it.
    #[test]
    fn every_method_of_a_place_is_found_by_a_path_of_it() {
        for place in Place::all() {
            let path =
                place.path.replace("{*}", "a/b").replace("{**}", "a").replace(['{', '}'], "");
            for method in place.methods() {
                let method = Method::from_bytes(method.as_bytes()).expect("a method");
                let for_method = Some(&method).filter(|_| place.tree == Tree::Python);
                let found = Route::find(place.tree, &path, for_method).expect(place.path).place;
                let endpoint = place.endpoint(&method);
                // The name of an article ends where the crate `article` says.
                if !place.path.starts_with("/article/{article}/") {
                    assert_eq!(found.endpoint(&method), endpoint, "{method} {}", place.path);
                }
            }
        }
    }

    #[test]
    fn a_path_with_another_name() {
        for (path, expected) in [
            ("/u/i/P.Q/1.0/", "/u/i/p-q/1.0/"),
            ("/u/i/pypi/P%2eQ/json", "/u/i/pypi/p-q/json"),
            ("/u/i", "/u/i"),
        ] {
            let route = Route::find(Tree::Python, path, None).expect(path);
            assert_eq!(route.with("{project}", "p-q"), expected);
        }
    }

    #[test]
    fn the_names_in_a_path() {
        let check = |path: &str, pattern: &str, names: &[(&str, &str)]| {
            let route = Route::find(Tree::Main, path, None).expect(path);
            assert_eq!(route.place.path, pattern, "{path}");
            for (placeholder, name) in names {
                assert_eq!(route.raw(placeholder), *name, "{placeholder} of {path}");
            }
        };
        check("/", "/", &[]);
        check("/docs/", "/docs/", &[]);
        check("/packages/c++", "/packages/{package}", &[("{package}", "c++")]);
        check("/rpc/v5/info/vim", "/rpc/v5/{type}/{arg}", &[("{type}", "info"), ("{arg}", "vim")]);
        check("/rpc/x", "/rpc/{**}", &[]);
        check("/rpc/stats", "/rpc/stats", &[]);
        check("/article/a/b/3", "/article/{article}", &[("{article}", "a/b/3")]);
        check("/article//a", "/article/{article}", &[("{article}", "/a")]);
        check("/+edit/a/b", "/+edit/{article}", &[("{article}", "a/b")]);
        let list = "/+attachments/{article}/";
        check("/+attachments/a/b/", list, &[("{article}", "a/b")]);
        let file = "/+attachments/{article}/{file}";
        check("/+attachments/a/b/c.png", file, &[("{article}", "a/b"), ("{file}", "c.png")]);
        check("/+attachments/a", "/+attachments/{**}", &[]);
        let release = "/+manage/releases/{user}/{index}/{project}";
        let names = [("{user}", "u"), ("{index}", "i"), ("{project}", "p%20q")];
        check("/+manage/releases/u/i/p%20q", release, &names);
        for path in
            ["", "x", "/x", "/packages/{package}/x", "/+tokens/", "/+tokens/x/y", "/rpc.php/x"]
        {
            assert!(Route::find(Tree::Main, path, None).is_none(), "{path}");
        }
    }
}
