//! `/+manage/groups`: every group with its members, for administrators. A group is there as long as it has a member.
//!
//! `q` is a part of a group's name, `after` the last group of the page before.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::*;

/// Members of a group that are listed.
const MEMBERS_MAX: usize = 100;

#[derive(Template)]
#[template(path = "manage_groups.html")]
struct GroupsPage {
    site: Site,
    query: String,
    groups: Vec<Group>,
    /// The query of the next page.
    next: Option<String>,
}

struct Group {
    name: String,
    /// Names and paths.
    members: Vec<(String, String)>,
    more: usize,
}

/// `GET /+manage/groups`
pub(crate) async fn show_groups(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let (_, principal) = forms::logged_in(app, head).await?;
    check_administrator(&principal, Scope::UserAdmin, "who is in which group")?;
    let [query, after] = ["q", "after"].map(|name| typed_parameter(head, name, 200));
    let stored = app.stored()?;
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for user in stored.accounts.users() {
        for group in user.groups.iter().filter(|group| group.as_str().contains(&query)) {
            groups.entry(group.as_str()).or_default().push(user.name.as_str());
        }
    }
    let mut rest = groups.range::<str, _>((Bound::Excluded(after.as_str()), Bound::Unbounded));
    let lines = rest.by_ref().take(LINES_MAX).map(|(name, members)| Group {
        name: (*name).to_owned(),
        more: members.len().saturating_sub(MEMBERS_MAX),
        members: members
            .iter()
            .take(MEMBERS_MAX)
            .map(|member| ((*member).to_owned(), in_path(member)))
            .collect(),
    });
    let lines: Vec<Group> = lines.collect();
    let last = lines.last().filter(|_| rest.next().is_some());
    let next = last.map(|last| {
        let mut next = form_urlencoded::Serializer::new(String::new());
        if !query.is_empty() {
            next.append_pair("q", &query);
        }
        next.append_pair("after", &last.name).finish()
    });
    let page = GroupsPage { site: Site::of(app, head), query, groups: lines, next };
    Ok(page::send_once(&page, head, StatusCode::OK).await)
}
