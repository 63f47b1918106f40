//! The table: every operation that may change something, what it needs, and a request that does it.

use account::{Scope, TokenText};
use serde_json::{Value, json};

use super::{Case, Role, Sent, only};
use crate::python::{Upload, path, sdist};

/// One operation, done in one way.
pub(super) struct Row {
    /// Its name in the OpenAPI document.
    pub(super) operation: &'static str,
    /// The variant, if an operation does several things.
    pub(super) what: &'static str,
    /// The scope that a token needs; `None` if everybody may.
    pub(super) scope: Option<Scope>,
    /// The reasons for which a user may.
    pub(super) roles: &'static [Role],
    /// The status of success; if everybody may, that of an anonymous sender.
    pub(super) done: u16,
    /// The status for a known user without the right; 403 if they may do a part of it.
    pub(super) refused: u16,
    /// Whether something is written.
    pub(super) writes: bool,
    /// Makes what it needs, and the request.
    pub(super) make: fn(&Case<'_>) -> Sent,
}

const OWN: &[Role] = &[Role::Owner, Role::Administrator];
const LISTED: &[Role] = &[Role::Listed, Role::Administrator];
const OWN_OR_LISTED: &[Role] = &[Role::Owner, Role::Listed, Role::Administrator];
const CONFIGURED: &[Role] = &[Role::Configured, Role::Administrator];
const ADMINISTRATOR: &[Role] = &[Role::Administrator];

const fn row(
    operation: &'static str,
    what: &'static str,
    scope: Scope,
    roles: &'static [Role],
    done: u16,
    make: fn(&Case<'_>) -> Sent,
) -> Row {
    Row { operation, what, scope: Some(scope), roles, done, refused: 403, writes: true, make }
}

/// A row of an operation that writes nothing.
const fn unwritten(row: Row) -> Row {
    Row { writes: false, ..row }
}

/// An operation that answers everybody, and writes nothing.
const fn public(operation: &'static str, make: fn(&Case<'_>) -> Sent) -> Row {
    let roles = &[Role::Owner];
    Row { operation, what: "", scope: None, roles, done: 0, refused: 0, writes: false, make }
}

use Scope::{ArticleWrite, PythonAdmin, PythonRead, PythonUpload, UserAdmin};

pub(super) const TABLE: &[Row] = &[
    public("POST /+osv/v1/query", |_| osv("/+osv/v1/query", &json!({}))),
    public("POST /+osv/v1/querybatch", |_| osv("/+osv/v1/querybatch", &json!({"queries": []}))),
    public("POST /rpc", |_| form("/rpc")),
    public("POST /rpc/v{version}/{type}", |_| form("/rpc/v5/info")),
    public("POST /rpc/v{version}/{type}/", |_| form("/rpc/v5/info/")),
    public("POST /rpc/v{version}/{type}/{arg}", |_| form("/rpc/v5/info/a")),
    public("POST /rpc/v{version}/{type}/{arg}/", |_| form("/rpc/v5/info/a/")),
    public("POST /api", |_| form("/api")),
    public("POST /rpc/v6/{type}", |_| form("/rpc/v6/info")),
    public("POST /rpc/v6/{type}/{arg}", |_| form("/rpc/v6/info/a")),
    public("POST /rpc/v6/{type}/{by}/{arg}", |_| form("/rpc/v6/search/name/a")),
    public("POST /rpc/v6/{type}/{by}/{mode}/{arg}", |_| form("/rpc/v6/search/name/contains/a")),
    public("POST /+login", |case| {
        Sent::new("POST", "/+login").json(&json!({"user": case.owner, "password": "wrong"}))
    }),
    public("POST /+tokens/device", |_| Sent::new("POST", "/+tokens/device")),
    public("POST /+tokens/device/token", |_| form("/+tokens/device/token")),
    public("POST /_/oidc/mint-token", |_| {
        Sent::new("POST", "/_/oidc/mint-token").json(&json!({"token": "x"}))
    }),
    public("POST /+tokens/found", |_| {
        Sent::new("POST", "/+tokens/found").json(&json!({"token": "x"}))
    }),
    public("POST /{user}/{index}/+simple/{project}/refresh", |case| {
        make_stage(case);
        Sent::new("POST", format!("/{}/+simple/p/refresh", case.stage()))
    }),
    row("POST /actions", "article.put", ArticleWrite, CONFIGURED, 200, |case| {
        let put = json!({"name": article(case), "version": 0, "text": "text"});
        Sent::new("POST", "/actions").json(&json!({"actions": {"article.put": put}}))
    }),
    row("PUT /article/{article}", "", ArticleWrite, CONFIGURED, 201, |case| {
        let text = text("PUT", format!("/article/{}", article(case)), "text");
        text.with("If-None-Match", "*")
    }),
    row("DELETE /article/{article}", "", ArticleWrite, CONFIGURED, 200, |case| {
        make_article(case);
        Sent::new("DELETE", format!("/article/{}", article(case))).with("If-Match", "*")
    }),
    row("POST /article/{article}/{version}", "", ArticleWrite, CONFIGURED, 201, |case| {
        text("POST", format!("/article/{}/0", article(case)), "text")
    }),
    row("POST /article/{article}/{version}", "restore", ArticleWrite, CONFIGURED, 201, |case| {
        make_article(case);
        Sent::new("POST", format!("/article/{}/1?restore=1", article(case)))
    }),
    row("POST /article/{article}/{version}", "rename", ArticleWrite, CONFIGURED, 201, |case| {
        make_article(case);
        Sent::new("POST", format!("/article/{0}/1?rename={0}/new", article(case)))
    }),
    row("DELETE /article/{article}/{version}", "", ArticleWrite, CONFIGURED, 200, |case| {
        make_article(case);
        Sent::new("DELETE", format!("/article/{}/1", article(case)))
    }),
    row("PUT /+attachments/{article}/{file}", "", ArticleWrite, CONFIGURED, 201, |case| {
        make_article(case);
        attachment(case)
    }),
    row("DELETE /+attachments/{article}/{file}", "", ArticleWrite, CONFIGURED, 204, |case| {
        let author = make_article(case);
        case.world.send(&attachment(case), &super::bearer(&author)).expect(201);
        Sent::new("DELETE", attachment(case).target).with("If-Match", "*")
    }),
    row("POST /+tokens", "", UserAdmin, OWN, 201, |case| {
        Sent::new("POST", format!("/+tokens?user={}", case.owner))
            .json(&json!({"scopes": ["user:admin"]}))
    }),
    row("DELETE /+tokens/{id}", "", UserAdmin, OWN, 204, |case| {
        let token = case.world.make_token(&case.owner, only(PythonRead), None);
        Sent::new("DELETE", format!("/+tokens/{}", token.id()))
    }),
    row("PUT /{user}", "", UserAdmin, ADMINISTRATOR, 201, |case| {
        Sent::new("PUT", format!("/new{}", case.number)).json(&json!({"password": "open-sesame"}))
    }),
    row("PATCH /{user}", "profile", UserAdmin, OWN, 200, |case| {
        Sent::new("PATCH", format!("/{}", case.owner)).json(&json!({"title": "Doctor"}))
    }),
    row("PATCH /{user}", "password", UserAdmin, OWN, 200, |case| {
        Sent::new("PATCH", format!("/{}", case.owner)).json(&json!({"password": "open-sesame"}))
    }),
    row("DELETE /{user}", "", UserAdmin, OWN, 200, |case| {
        Sent::new("DELETE", format!("/{}", case.owner))
    }),
    row("PUT /{user}/{index}", "", PythonAdmin, OWN, 200, |case| {
        Sent::new("PUT", format!("/{}", case.stage())).json(&json!({"bases": []}))
    }),
    row("PATCH /{user}/{index}", "", PythonAdmin, OWN, 200, |case| {
        make_stage(case);
        Sent::new("PATCH", format!("/{}", case.stage())).json(&json!(["volatile=False"]))
    }),
    row("DELETE /{user}/{index}", "", PythonAdmin, OWN, 201, |case| {
        make_stage(case);
        Sent::new("DELETE", format!("/{}", case.stage()))
    }),
    row("POST /{user}/{index}", "a new file", PythonUpload, LISTED, 200, |case| {
        make_stage(case);
        Sent::upload(&case.stage(), &Upload::of("p-2.0.zip", &sdist("new")))
    }),
    row("POST /{user}/{index}", "other contents for a file", PythonAdmin, LISTED, 200, |case| {
        make_release(case);
        Sent::upload(&case.stage(), &Upload::of(FILENAME, &sdist("other")))
    }),
    row("POST /{user}/{index}", "a push of other contents", PythonAdmin, LISTED, 200, |case| {
        let pushed = push(case, "POST");
        let other = Sent::upload(&case.stage(), &Upload::of("q-1.0.zip", &sdist("other")));
        case.as_uploader(&other).expect(200);
        pushed
    })
    .refused(401),
    row("POST /{user}/{index}", "a registration", PythonUpload, LISTED, 200, |case| {
        make_stage(case);
        let fields =
            [(":action", "submit"), ("metadata_version", "2.1"), ("name", "p"), ("version", "3")];
        let mut body = form_urlencoded::Serializer::new(String::new());
        let body = body.extend_pairs(fields).finish();
        let sent = form(&format!("/{}/", case.stage()));
        Sent { body: body.into_bytes(), ..sent }
    }),
    row("POST /{user}/{index}", "documentation", PythonUpload, LISTED, 200, |case| {
        make_release(case);
        Sent::upload(&case.stage(), &Upload::docs("p", "1.0", &sdist("docs")))
    }),
    row("POST /{user}/{index}", "a push", PythonUpload, LISTED, 200, |case| push(case, "POST"))
        .refused(401),
    row("PUSH /{user}/{index}", "", PythonUpload, LISTED, 200, |case| push(case, "PUSH"))
        .refused(401),
    Row {
        what: "a search",
        writes: false,
        ..row("POST /{user}/{index}", "", PythonRead, LISTED, 200, |case| {
            make_release(case);
            let only_team = json!([format!("acl_read=:{}", case.group)]);
            let private = Sent::new("PATCH", format!("/{}", case.stage()));
            case.as_owner(&private.json(&only_team));
            let body = "<?xml version='1.0'?><methodCall><methodName>search</methodName><params>\
                        <param><value><struct><member><name>name</name><value><string>p</string>\
                        </value></member></struct></value></param></params></methodCall>";
            let content_type = "text/xml".to_owned();
            let sent = Sent::new("POST", format!("/{}/", case.stage()));
            Sent { content_type, body: body.into(), ..sent }
        })
    },
    row("POST /{user}/{index}/+retention", "", PythonAdmin, OWN, 200, |case| {
        make_release(case);
        let second = Sent::upload(&case.stage(), &Upload::of("p-2.0.zip", &sdist("second")));
        case.as_uploader(&second).expect(200);
        Sent::new("POST", format!("/{}/+retention", case.stage())).json(&json!({"versions": 1}))
    }),
    unwritten(row("POST /{user}/{index}/+prefetch", "", PythonAdmin, OWN, 202, |case| {
        make_mirror(case);
        text("POST", format!("/{}/+prefetch", case.stage()), "p==1.0")
    })),
    unwritten(row("DELETE /{user}/{index}/+prefetch", "", PythonAdmin, OWN, 200, |case| {
        make_mirror(case);
        Sent::new("DELETE", format!("/{}/+prefetch", case.stage()))
    })),
    row(
        "POST /{user}/{index}/+f/{directory}/{subdirectory}/{filename}",
        "",
        PythonUpload,
        LISTED,
        200,
        |case| {
            make_release(case);
            Sent::new("POST", file(case)).json(&json!({"testenvs": {}}))
        },
    ),
    row(
        "DELETE /{user}/{index}/+f/{directory}/{subdirectory}/{filename}",
        "",
        PythonAdmin,
        OWN_OR_LISTED,
        200,
        |case| {
            make_release(case);
            Sent::new("DELETE", file(case))
        },
    ),
    row(
        "POST /{user}/{index}/+f/{directory}/{subdirectory}/{filename}/+yank",
        "",
        PythonAdmin,
        OWN_OR_LISTED,
        200,
        |case| {
            make_release(case);
            Sent::new("POST", format!("{}/+yank", file(case))).json(&json!({"reason": "broken"}))
        },
    ),
    row(
        "DELETE /{user}/{index}/+f/{directory}/{subdirectory}/{filename}/+yank",
        "",
        PythonAdmin,
        OWN_OR_LISTED,
        200,
        |case| {
            make_release(case);
            let yank = Sent::new("POST", format!("{}/+yank", file(case)));
            case.as_owner(&yank.json(&json!({})));
            Sent::new("DELETE", format!("{}/+yank", file(case)))
        },
    ),
    row("DELETE /{user}/{index}/{project}", "", PythonAdmin, OWN_OR_LISTED, 200, |case| {
        make_release(case);
        Sent::new("DELETE", format!("/{}/p", case.stage()))
    }),
    row("PUT /{user}/{index}/{project}/+status", "", PythonAdmin, OWN_OR_LISTED, 200, |case| {
        make_release(case);
        status(case, "PUT")
    }),
    row("POST /{user}/{index}/{project}/+status", "", PythonAdmin, OWN_OR_LISTED, 200, |case| {
        make_release(case);
        status(case, "POST")
    }),
    row("DELETE /{user}/{index}/{project}/+status", "", PythonAdmin, OWN_OR_LISTED, 200, |case| {
        make_release(case);
        case.as_owner(&status(case, "PUT"));
        Sent::new("DELETE", format!("/{}/p/+status", case.stage()))
    }),
    row(
        "DELETE /{user}/{index}/{project}/{version}",
        "",
        PythonAdmin,
        OWN_OR_LISTED,
        200,
        |case| {
            make_release(case);
            Sent::new("DELETE", format!("/{}/p/1.0", case.stage()))
        },
    ),
    row(
        "POST /{user}/{index}/{project}/{version}/+yank",
        "",
        PythonAdmin,
        OWN_OR_LISTED,
        200,
        |case| {
            make_release(case);
            yank(case).json(&json!({"reason": "broken"}))
        },
    ),
    row(
        "DELETE /{user}/{index}/{project}/{version}/+yank",
        "",
        PythonAdmin,
        OWN_OR_LISTED,
        200,
        |case| {
            make_release(case);
            case.as_owner(&yank(case).json(&json!({})));
            Sent { method: "DELETE", ..yank(case) }
        },
    ),
];

impl Row {
    const fn refused(self, refused: u16) -> Row {
        Row { refused, ..self }
    }

    /// Its name in a failed test.
    pub(super) fn called(&self) -> String {
        format!("{} {}", self.operation, self.what)
    }
}

impl Case<'_> {
    /// Sends a request as a user on the lists of the index.
    #[track_caller]
    fn as_uploader(&self, sent: &Sent) -> crate::client::Response {
        let name = format!("maker{}", self.number);
        if self.world.stored().accounts.user(&name.parse().expect("a name")).is_none() {
            self.world.make_user(&name, &[&self.group]);
        }
        let token = self.world.make_token(&name, account::Scopes::ALL, None);
        self.world.send(sent, &super::bearer(&token))
    }
}

fn form(target: &str) -> Sent {
    let content_type = "application/x-www-form-urlencoded".to_owned();
    Sent { content_type, body: b"arg=a".to_vec(), ..Sent::new("POST", target) }
}

fn osv(target: &str, body: &Value) -> Sent {
    Sent::new("POST", target).json(body)
}

fn text(method: &'static str, target: String, body: &str) -> Sent {
    let content_type = "text/plain".to_owned();
    Sent { content_type, body: body.as_bytes().to_vec(), ..Sent::new(method, target) }
}

fn article(case: &Case<'_>) -> String {
    format!("case-{}", case.number)
}

/// Makes an article as a user of the staff; returns that user's token.
fn make_article(case: &Case<'_>) -> TokenText {
    let name = format!("author{}", case.number);
    case.world.make_user(&name, &[super::STAFF]);
    let token = case.world.make_token(&name, account::Scopes::ALL, None);
    let sent = text("POST", format!("/article/{}/0", article(case)), "first");
    case.world.send(&sent, &super::bearer(&token)).expect(201);
    token
}

fn attachment(case: &Case<'_>) -> Sent {
    let target = format!("/+attachments/{}/notes.txt", article(case));
    text("PUT", target, "text").with("If-None-Match", "*")
}

/// The index, whose lists name the group.
fn make_stage(case: &Case<'_>) {
    let list = [format!(":{}", case.group)];
    let config = json!({
        "volatile": true, "bases": [], "acl_upload": list, "acl_toxresult_upload": list,
    });
    case.as_owner(&Sent::new("PUT", format!("/{}", case.stage())).json(&config));
}

/// A mirror of an upstream that is not asked: it is on this machine.
fn make_mirror(case: &Case<'_>) {
    let config = json!({"type": "mirror", "mirror_url": "http://127.0.0.1:1/simple"});
    case.as_owner(&Sent::new("PUT", format!("/{}", case.stage())).json(&config));
}

const FILENAME: &str = "p-1.0.zip";

fn make_release(case: &Case<'_>) {
    make_stage(case);
    case.as_uploader(&Sent::upload(&case.stage(), &Upload::of(FILENAME, &sdist("x")))).expect(200);
}

fn file(case: &Case<'_>) -> String {
    path(&case.stage(), FILENAME, &sdist("x"))
}

fn status(case: &Case<'_>, method: &'static str) -> Sent {
    Sent::new(method, format!("/{}/p/+status", case.stage())).json(&json!({"status": "archived"}))
}

fn yank(case: &Case<'_>) -> Sent {
    Sent::new("POST", format!("/{}/p/1.0/+yank", case.stage()))
}

/// Pushes from an index that everybody may read into that of the case.
fn push(case: &Case<'_>, method: &'static str) -> Sent {
    make_release(case);
    let source = format!("source{}", case.number);
    case.world.make_user(&source, &[]);
    let token = super::bearer(&case.world.make_token(&source, account::Scopes::ALL, None));
    let made = Sent::new("PUT", format!("/{source}/dev")).json(&json!({"bases": []}));
    case.world.send(&made, &token).expect(200);
    let uploaded = Sent::upload(&format!("{source}/dev"), &Upload::of("q-1.0.zip", &sdist("q")));
    case.world.send(&uploaded, &token).expect(200);
    let order: Value = json!({"name": "q", "version": "1.0", "targetindex": case.stage()});
    Sent::new(method, format!("/{source}/dev")).json(&order)
}
