//! [`WebhookShape`]: the form in which a receiver takes changes; and [`Filter`]: the changes that it gets.

use pypi::{ProjectName, StageName};
use record::{ChangeKind, excerpt};
use serde_json::{Value, json};

use super::purges::Cache;
use super::{Entry, Subject};

/// What a webhook is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WebhookShape {
    /// The changes as JSON, signed.
    #[default]
    Changes,
    /// A message for people.
    Chat(Chat),
    /// What to drop.
    Cache(Cache),
}

/// Where people read messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chat {
    /// Slack, and others that take its `text`, such as Matrix and Mattermost.
    Slack,
    /// Discord.
    Discord,
}

/// Lines of one message at most, and its characters: Discord takes 2,000.
const LINES_MAX: usize = 20;
const CHARACTERS_MAX: usize = 1_900;

impl WebhookShape {
    /// All of them, with their names in the file.
    pub(crate) const ALL: [(&str, WebhookShape); 7] = [
        ("changes", WebhookShape::Changes),
        ("slack", WebhookShape::Chat(Chat::Slack)),
        ("discord", WebhookShape::Chat(Chat::Discord)),
        ("varnish", WebhookShape::Cache(Cache::Varnish)),
        ("fastly", WebhookShape::Cache(Cache::Fastly)),
        ("cloudflare", WebhookShape::Cache(Cache::Cloudflare)),
        ("keys", WebhookShape::Cache(Cache::Keys)),
    ];
}

impl Chat {
    /// A message for people that says `text`, which mentions nobody, whatever is in it.
    pub(crate) fn message(self, text: &str) -> Vec<u8> {
        let cut = excerpt(text, CHARACTERS_MAX);
        let body = match self {
            Chat::Discord => json!({"content": cut, "allowed_mentions": {"parse": []}}),
            Chat::Slack => {
                let text = cut.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                json!({"text": text})
            }
        };
        body.to_string().into_bytes()
    }
}

/// Lines about these changes, which are lines of the feed.
pub(crate) fn told(changes: &[&[u8]]) -> String {
    let more = changes.len().saturating_sub(LINES_MAX);
    let mut lines: Vec<String> = changes.iter().take(LINES_MAX).map(|it| line(it)).collect();
    if more > 0 {
        lines.push(format!("and {more} more changes"));
    }
    lines.join("\n")
}

fn line(change: &[u8]) -> String {
    let change: Value = serde_json::from_slice(change).unwrap_or_default();
    let text = |name: &str| change[name].as_str().unwrap_or_default();
    let mut line = format!("{} {} ", text("type"), text("kind"));
    for before in ["project", "name"] {
        if !text(before).is_empty() {
            line.push_str(text(before));
            line.push(' ');
        }
    }
    for (word, name) in [("in", "index"), ("by", "by")] {
        if !text(name).is_empty() {
            line.push_str(&format!("{word} {} ", text(name)));
        }
    }
    line.trim_end().to_owned()
}

/// Which changes a webhook is told of: those that every list admits; an empty list admits all.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) indexes: Vec<StageName>,
    pub(crate) projects: Vec<ProjectName>,
    /// Beginnings of names of articles.
    pub(crate) prefixes: Vec<String>,
    /// Names of packages.
    pub(crate) names: Vec<String>,
    /// Types of things, such as `release`.
    pub(crate) types: Vec<String>,
    /// Kinds of changes, such as `added`.
    pub(crate) kinds: Vec<ChangeKind>,
}

impl Filter {
    /// Whether the webhook is told of this change, which is of this kind for its reader.
    pub(crate) fn admits(&self, entry: &Entry, kind: ChangeKind) -> bool {
        let is_in =
            |list: &[String], text: &str| list.is_empty() || list.iter().any(|it| it == text);
        let (stage, project, article) = match &entry.subject {
            Subject::Stage(stage, project) => (Some(stage), project.as_ref(), None),
            Subject::Article(name) => (None, None, Some(name.as_str())),
            Subject::Open => (None, None, None),
        };
        let is_below =
            |prefix: &String| article.is_some_and(|name| name.starts_with(prefix.as_str()));
        (self.indexes.is_empty() || stage.is_some_and(|stage| self.indexes.contains(stage)))
            && (self.projects.is_empty() || project.is_some_and(|it| self.projects.contains(it)))
            && (self.prefixes.is_empty() || self.prefixes.iter().any(is_below))
            && is_in(&self.names, &entry.name)
            && is_in(&self.types, entry.item)
            && (self.kinds.is_empty() || self.kinds.contains(&kind))
    }
}

#[cfg(test)]
mod tests {
    use record::Serial;

    use super::super::{Draft, FeedSurface};
    use super::*;

    fn entry(surface: FeedSurface, item: &'static str, name: &str, subject: Subject) -> Entry {
        let draft = Draft::new(Serial(1), ChangeKind::Added, item, name, subject);
        Entry::encode(surface, &draft, "1")
    }

    /// Each list admits what it names and nothing else; the kind is that of the reader.
    #[test]
    fn every_list_of_a_filter_counts() {
        let stage = |name: &str| name.parse::<StageName>().expect("a name");
        let project = |name: &str| ProjectName::parse(name).expect("a name");
        let of = |index: &str, named: &str| Subject::Stage(stage(index), Some(project(named)));
        let python = |index: &str, named: &str| {
            entry(FeedSurface::Python, "release", "1.0", of(index, named))
        };
        let index = |name: &str| {
            entry(FeedSurface::Python, "index", name, Subject::Stage(stage(name), None))
        };
        let article = |name: &str| {
            let subject = Subject::Article(article::ArticleName::parse(name).expect("a name"));
            entry(FeedSurface::Articles, "article", name, subject)
        };
        let package = |name: &str| entry(FeedSurface::Aur, "package", name, Subject::Open);
        let check = |filter: Filter, admitted: &[Entry], refused: &[Entry]| {
            let admits = |entry: &Entry| filter.admits(entry, ChangeKind::Added);
            assert!(admitted.iter().all(admits), "{filter:?} admits {admitted:?}");
            assert!(!refused.iter().any(admits), "{filter:?} refuses {refused:?}");
            assert!(admitted.iter().all(|it| Filter::default().admits(it, ChangeKind::Removed)));
        };
        check(
            Filter { indexes: vec![stage("team/dev")], ..Filter::default() },
            &[python("team/dev", "p"), index("team/dev")],
            &[python("team/dev2", "p"), index("team/prod"), package("team/dev")],
        );
        check(
            Filter { projects: vec![project("p"), project("q")], ..Filter::default() },
            &[python("team/dev", "p"), python("team/prod", "q")],
            &[python("team/dev", "pp"), index("team/p"), article("p"), package("p")],
        );
        check(
            Filter { prefixes: vec!["guide/".to_owned()], ..Filter::default() },
            &[article("guide/one"), article("guide/a/b")],
            &[article("guide"), article("guides/one"), python("team/dev", "guide")],
        );
        check(
            Filter { names: vec!["vim".to_owned()], ..Filter::default() },
            &[package("vim")],
            &[package("gvim"), package("vim-git")],
        );
        check(
            Filter { types: vec!["release".to_owned()], ..Filter::default() },
            &[python("team/dev", "p")],
            &[index("team/release"), article("release")],
        );
        let both = || Filter {
            indexes: vec![stage("team/dev")],
            projects: vec![project("p")],
            kinds: vec![ChangeKind::Added],
            ..Filter::default()
        };
        check(
            both(),
            &[python("team/dev", "p")],
            &[python("team/dev", "q"), python("team/prod", "p"), index("team/dev")],
        );
        assert!(!both().admits(&python("team/dev", "p"), ChangeKind::Removed));
    }

    #[test]
    fn messages_say_what_happened_and_mention_nobody() {
        let change = json!({
            "type": "release", "kind": "added", "index": "team/dev", "project": "p", "name": "1.0", "by": "<!channel>",
        });
        let change = change.to_string();
        let text = told(&[change.as_bytes()]);
        assert_eq!(text, "release added p 1.0 in team/dev by <!channel>");
        let read = |body: Vec<u8>| serde_json::from_slice::<Value>(&body).expect("JSON");
        let slack = read(Chat::Slack.message(&text));
        assert_eq!(slack, json!({"text": "release added p 1.0 in team/dev by &lt;!channel&gt;"}));
        let discord = read(Chat::Discord.message("@everyone"));
        assert_eq!(discord, json!({"content": "@everyone", "allowed_mentions": {"parse": []}}));
        let many = vec![change.as_bytes(); 25];
        assert!(told(&many).ends_with("\nand 5 more changes"));
    }
}
