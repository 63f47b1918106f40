//! `/+manage/groups`: every group with its members, for administrators. A group is there as long as it has a member.

use std::collections::BTreeMap;

use super::*;

/// Members of a group that are listed.
const MEMBERS_MAX: usize = 100;

#[derive(Template)]
#[template(path = "manage_groups.html")]
struct GroupsPage {
    site: Site,
    groups: Vec<Group>,
    is_more: bool,
}

struct Group {
    name: String,
    /// Names and paths.
    members: Vec<(String, String)>,
    more: usize,
}

/// `GET /+manage/groups`
pub(in crate::http) async fn show_groups(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let (_, principal) = forms::logged_in(app, head).await?;
    if !principal.is_administrator(Scope::UserAdmin, Object::Server) {
        return Err(HttpError::forbidden("only administrators see who is in which group"));
    }
    let stored = auth::stored(app)?;
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for user in stored.accounts.users() {
        for group in &user.groups {
            groups.entry(group.as_str()).or_default().push(user.name.as_str());
        }
    }
    let is_more = groups.len() > LINES_MAX;
    let lines = groups.into_iter().take(LINES_MAX).map(|(name, members)| Group {
        name: name.to_owned(),
        more: members.len().saturating_sub(MEMBERS_MAX),
        members: members
            .into_iter()
            .take(MEMBERS_MAX)
            .map(|member| (member.to_owned(), in_path(member)))
            .collect(),
    });
    let page = GroupsPage { site: Site::of(app, head), groups: lines.collect(), is_more };
    Ok(people::send_once(&page, head, StatusCode::OK).await)
}
