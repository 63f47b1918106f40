//! The doors to each operation: endpoints for programs, forms, actions, commands. Each is tried at least once, by somebody who may.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use operations::Name;
use record::Serial;
use serde_json::{Value, json};
use store::{DatabaseLocation, Records, RecordsOptions};

use super::operations::TABLE;
use super::{Sent, World, is_form};
use crate::accounts::{Place, prepare};
use crate::browser::Browser;
use crate::client::Response;
use crate::described;
use crate::python::{Upload, sdist};
use crate::server::{ROOT, ROOT_PASSWORD, wait_for};

/// A way to ask for an operation.
enum Door {
    /// A request of a program: rows of the table of rights, by operation and variant, which is empty for all.
    Row(&'static str, &'static str),
    /// A form of a page, for a user who is logged in: where it is posted, and how it is filled in.
    Form(&'static str, fn(&mut Desk)),
    /// An action with these arguments, after the article `NAME` was written.
    Action(&'static str, fn() -> Value),
    /// Commands on the data directory, of which the last asks for the operation. `TOKEN` is the id of a token of `alice`.
    Command(&'static [&'static str]),
    /// Tried by this test, as it needs another server or a task: `file: test`.
    Elsewhere(&'static str),
}

use Door::{Action, Command, Elsewhere, Form, Row};

/// The doors to an operation. Nobody adds an operation without a line here.
fn doors(name: Name) -> &'static [Door] {
    match name {
        Name::AnnounceText => &[Row("PUT /article/{article}", "")],
        Name::WriteArticle => &[
            Row("PUT /article/{article}", ""),
            Row("POST /article/{article}/{version}", ""),
            Row("POST /actions", "article.put"),
            Form("/+edit/{article}", |desk| {
                let target = desk.new_article().replace("/article/", "/+edit/");
                desk.fill(&target, "Article", &[("text", "second")]);
            }),
            Action("article.put", || json!({"name": "NAME", "version": 1, "text": "second"})),
        ],
        Name::DeleteArticle => &[
            Row("DELETE /article/{article}", ""),
            Row("DELETE /article/{article}/{version}", ""),
            Form("/+edit/{article}", |desk| {
                let target = desk.new_article().replace("/article/", "/+edit/");
                desk.fill(&target, "Delete", &[]);
            }),
        ],
        Name::RestoreArticle => &[Row("POST /article/{article}/{version}", "restore")],
        Name::RenameArticle => &[
            Row("POST /article/{article}/{version}", "rename"),
            Form("/+rename/{article}", |desk| {
                let target = desk.new_article().replace("/article/", "/+rename/");
                let to = format!("renamed-{}", desk.number);
                desk.fill(&target, "Rename", &[("to", &to)]);
            }),
            Action("article.rename", || json!({"name": "NAME", "version": 1, "to": "to-NAME"})),
        ],
        Name::AnnounceAttachment => &[Row("PUT /+attachments/{article}/{file}", "")],
        Name::PutAttachment => &[
            Row("PUT /+attachments/{article}/{file}", ""),
            Form("/+attachments/{article}/", |desk| {
                let target = desk.new_article().replace("/article/", "/+attachments/");
                desk.add_file(&format!("{target}/"));
            }),
        ],
        Name::RemoveAttachment => &[
            Row("DELETE /+attachments/{article}/{file}", ""),
            Form("/+attachments/{article}/", |desk| {
                let target = desk.new_article().replace("/article/", "/+attachments/");
                let target = format!("{target}/");
                desk.add_file(&target);
                let page = desk.root.get(&target).text();
                desk.writes(|root| root.submit_file((&page, "Remove x.txt"), &[], None));
            }),
        ],
        Name::CreateIndex => &[
            Row("PUT /{user}/{index}", ""),
            Form("/+manage/indexes", |desk| {
                let name = format!("root/made{}", desk.number);
                desk.fill("/+manage", "New index", &[("name", &name), OWN]);
            }),
            Command(&["index add root/made"]),
        ],
        Name::ChangeIndex => &[
            Row("PATCH /{user}/{index}", ""),
            Form("/+manage/indexes/{user}/{index}", |desk| {
                let target = desk.index();
                desk.fill(&target, "Settings", &[("is.title", "Changed")]);
            }),
            Form("/+manage/indexes/{user}/{index}", |desk| {
                let target = desk.index();
                let values = [("project", "p"), ("version", "1.0"), ("reason", "bad")];
                desk.fill(&target, "Quarantine", &values);
            }),
            Command(&["index set root/dev title=changed"]),
        ],
        Name::DeleteIndex => &[
            Row("DELETE /{user}/{index}", ""),
            Form("/+manage/indexes/{user}/{index}", |desk| {
                let target = desk.index();
                let name = desk.stage();
                desk.fill(&target, "Delete", &[("confirm", &name), ("force", "yes")]);
            }),
            Command(&["index add root/gone", "index remove root/gone"]),
        ],
        Name::SweepLeftovers => {
            &[Elsewhere("python/races.rs: what_a_deleted_stage_left_behind_is_swept")]
        }
        Name::ImportRecords => &[Command(&["import-wheels more --index root/dev"])],
        Name::PushRelease => &[
            Row("PUSH /{user}/{index}", ""),
            Row("POST /{user}/{index}", "a push"),
            Row("POST /{user}/{index}", "a push of other contents"),
            Form("/+manage/releases/{user}/{index}/{project}", |desk| {
                let target = desk.release();
                let to = format!("root/to{}", desk.number);
                desk.put(&format!("/{to}"), &json!({}));
                desk.fill(&target, "Push", &[("target", &to), ("content", "all")]);
            }),
            Command(&["index add root/to", "release push root/dev p 1.0 root/to"]),
        ],
        Name::ApproveRelease => {
            &[Elsewhere("python/mirrors/approved.rs: a_release_of_upstream_goes_into_a_stage")]
        }
        Name::YankRelease => &[
            Row("POST /{user}/{index}/{project}/{version}/+yank", ""),
            Row("DELETE /{user}/{index}/{project}/{version}/+yank", ""),
            Form("/+manage/releases/{user}/{index}/{project}", |desk| {
                let target = desk.release();
                desk.fill(&target, "Yank", &[("reason", "broken")]);
            }),
            Form("/+manage/releases/{user}/{index}/{project}", |desk| {
                let target = desk.release();
                desk.fill(&target, "Yank", &[("reason", "broken")]);
                desk.fill(&target, "Take the yank back", &[]);
            }),
            Command(&["release yank root/dev p 1.0"]),
            Command(&["release yank root/dev p 1.0", "release unyank root/dev p 1.0"]),
        ],
        Name::YankFile => &[
            Row("POST /{user}/{index}/+f/{directory}/{subdirectory}/{filename}/+yank", ""),
            Row("DELETE /{user}/{index}/+f/{directory}/{subdirectory}/{filename}/+yank", ""),
            Form("/+manage/releases/{user}/{index}/{project}", |desk| {
                let target = desk.release();
                desk.fill(&target, "Yank p-1.0.zip", &[("reason", "broken")]);
            }),
        ],
        Name::SetProjectStatus => &[
            Row("PUT /{user}/{index}/{project}/+status", ""),
            Row("POST /{user}/{index}/{project}/+status", ""),
            Row("DELETE /{user}/{index}/{project}/+status", ""),
            Form("/+manage/releases/{user}/{index}/{project}", |desk| {
                let target = desk.release().replace("?version=1.0", "");
                desk.fill(&target, "Status", &[("status", "archived")]);
            }),
        ],
        Name::DeleteProject => &[
            Row("DELETE /{user}/{index}/{project}", ""),
            Form("/+manage/releases/{user}/{index}/{project}", |desk| {
                let target = desk.release().replace("?version=1.0", "");
                desk.fill(&target, "Remove the project", &[("confirm", "p")]);
            }),
            Command(&["release remove root/dev p --all-versions --force"]),
        ],
        Name::DeleteRelease => &[
            Row("DELETE /{user}/{index}/{project}/{version}", ""),
            Form("/+manage/releases/{user}/{index}/{project}", |desk| {
                let target = desk.release();
                desk.fill(&target, "Remove", &[("confirm", "1.0")]);
            }),
            Command(&["release remove root/dev p 1.0 --force"]),
        ],
        Name::DeleteFile => &[
            Row("DELETE /{user}/{index}/+f/{directory}/{subdirectory}/{filename}", ""),
            Form("/+manage/releases/{user}/{index}/{project}", |desk| {
                let target = desk.release();
                desk.fill(&target, "Remove p-1.0.zip", &[("confirm", "p-1.0.zip")]);
            }),
        ],
        Name::RemoveOldVersions => &[
            Row("POST /{user}/{index}/+retention", ""),
            Form("/+manage/indexes/{user}/{index}", |desk| {
                desk.release();
                desk.upload("p-2.0.zip");
                let target = format!("/+manage/indexes/{}", desk.stage());
                desk.fill(&target, "Old versions", &[("versions", "1"), ("do", "remove")]);
            }),
            Elsewhere("python/retention.rs: rules_are_applied_by_themselves"),
        ],
        Name::NoteLogIn => &[
            Elsewhere("ldap.rs: a_user_of_the_directory_logs_in_at_every_door"),
            Elsewhere("proxy_login.rs: a_trusted_proxy_says_who_it_is"),
        ],
        Name::OpenSession => &[Form("/+account/login", |desk| {
            desk.writes(|root| Browser::new(root.client).log_in("root", ROOT_PASSWORD));
        })],
        Name::OpenSessionByProvider => {
            &[Elsewhere("single_sign_on.rs: a_user_is_made_and_comes_back_to_the_page")]
        }
        Name::CloseSession => &[Form("/+account/logout", |desk| {
            let mut other = Browser::root(desk.world.server.client);
            desk.writes(|_| other.fill("/+account", "Log out", &[]));
        })],
        Name::LinkIdentity | Name::UnlinkIdentity => {
            &[Elsewhere("single_sign_on/linking.rs: a_user_links_an_account_with_their_password")]
        }
        Name::CreateToken => &[
            Row("POST /+tokens", ""),
            Form("/+account/tokens", |desk| {
                desk.fill("/+account", "New token", &[("scope", "*"), OWN]);
            }),
            Form("/+manage/users/{user}", |desk| {
                let target = desk.user();
                desk.fill(&target, "New token", &[("scope", "python:read"), OWN]);
            }),
            Elsewhere("single_sign_on/device.rs: a_command_line_logs_in_by_a_browser"),
            Command(&["token create alice --scope *"]),
        ],
        Name::RevokeToken => &[
            Row("DELETE /+tokens/{id}", ""),
            Form("/+account/tokens/revoke", |desk| {
                let id = desk.world.make_token("root", account::Scopes::ALL, None).id();
                desk.fill("/+account", &format!("Revoke {id}"), &[]);
            }),
            Form("/+manage/users/{user}", |desk| {
                let target = desk.user();
                let name = target.rsplit('/').next().expect("a name");
                let id = desk.world.make_token(name, account::Scopes::ALL, None).id();
                desk.fill(&target, &format!("Revoke {id}"), &[]);
            }),
            Command(&["token revoke TOKEN"]),
        ],
        Name::RevokeFoundToken => &[Elsewhere("accounts/tokens.rs: who_finds_a_token_revokes_it")],
        Name::NoteTokenUses => {
            &[Elsewhere("accounts/tokens.rs: the_last_use_is_kept_over_a_restart")]
        }
        Name::MintUploadToken => &[Elsewhere("publishing.rs: a_job_uploads_with_its_identity")],
        Name::RegisterRelease => &[Row("POST /{user}/{index}", "a registration")],
        Name::UploadFile => &[
            Row("POST /{user}/{index}", "a new file"),
            Row("POST /{user}/{index}", "other contents for a file"),
            Row("POST /{user}/{index}", "documentation"),
        ],
        Name::AddToxResult => {
            &[Row("POST /{user}/{index}/+f/{directory}/{subdirectory}/{filename}", "")]
        }
        Name::CreateUser => &[
            Row("PUT /{user}", ""),
            Form("/+manage/users", |desk| {
                let name = format!("new{}", desk.number);
                desk.fill("/+manage", "New user", &[("name", &name), ("password", "pw"), OWN]);
            }),
            Command(&["user add carol --no-password"]),
        ],
        Name::ChangeUser => &[
            Row("PATCH /{user}", "profile"),
            Row("PATCH /{user}", "password"),
            Form("/+manage/users/{user}", |desk| {
                let target = desk.user();
                desk.fill(&target, "Profile", &[("title", "Doctor")]);
            }),
            Form("/+manage/users/{user}", |desk| {
                let target = desk.user();
                desk.fill(&target, "Set the password", &[("password", "n3w"), OWN]);
            }),
        ],
        Name::SetPassword => &[
            Form("/+account/password", |desk| {
                desk.world.server.add_user("changer", "staple");
                let mut other = Browser::of(desk.world.server.client, "changer", "staple");
                let values = [("old", "staple"), ("new", "n3w-words"), ("again", "n3w-words")];
                desk.writes(|_| other.fill("/+account", "Change the password", &values));
            }),
            Command(&["user password alice --generate"]),
        ],
        Name::SetGroups => &[
            Form("/+manage/users/{user}", |desk| {
                let target = desk.user();
                desk.fill(&target, "Groups", &[("groups", "team"), OWN]);
            }),
            Command(&["user groups alice --add team"]),
        ],
        Name::SetDisabled => &[
            Form("/+manage/users/{user}", |desk| {
                let target = desk.user();
                desk.fill(&target, "Disable", &[]);
            }),
            Command(&["user disable alice"]),
            Command(&["user disable alice", "user enable alice"]),
        ],
        Name::DeleteUser => &[
            Row("DELETE /{user}", ""),
            Form("/+manage/users/{user}", |desk| {
                let target = desk.user();
                let name = target.rsplit('/').next().expect("a name").to_owned();
                desk.fill(&target, "Delete", &[("confirm", &name)]);
            }),
            Command(&["user remove alice"]),
        ],
    }
}

/// Forms that ask for no operation: they write no records.
const WITHOUT: [&str; 3] = ["/+changed", "/+manage/prefetch/{user}/{index}", "/+manage/webhooks"];

/// Forms of what [`Elsewhere`] tries.
const TRIED_ELSEWHERE: [&str; 3] =
    ["/+account/device", "/+account/oidc/{provider}", "/+account/oidc/{provider}/unlink"];

/// The field with the password of the user who sends a form.
const OWN: (&str, &str) = ("own", ROOT_PASSWORD);

fn all() -> impl Iterator<Item = (Name, &'static Door)> {
    Name::ALL.iter().flat_map(|name| doors(*name).iter().map(|door| (*name, door)))
}

/// Where forms are filled in: the browser of `root`, and a number for what each makes.
struct Desk {
    world: World,
    root: Browser,
    number: usize,
}

impl Desk {
    /// Sends a form, which has to write something.
    #[track_caller]
    fn writes(&mut self, send: impl FnOnce(&mut Browser) -> Response) {
        let before = self.world.serial();
        let answer = send(&mut self.root);
        assert!(answer.status < 400, "{}: {}", answer.status, answer.text());
        assert!(self.world.serial() > before, "{}: nothing is written", answer.status);
    }

    #[track_caller]
    fn fill(&mut self, target: &str, label: &str, values: &[(&str, &str)]) {
        self.writes(|root| root.fill(target, label, values));
    }

    #[track_caller]
    fn put(&self, target: &str, body: &Value) {
        let sent = Sent::new("PUT", target).json(body);
        assert!(self.world.send(&sent, ROOT.1).status < 300, "{target}");
    }

    fn new_article(&self) -> String {
        let target = format!("/article/door-{}", self.number);
        self.world.server.root().write(&format!("door-{}/0", self.number), "first").expect(201);
        target
    }

    fn add_file(&mut self, target: &str) {
        let page = self.root.get(target).text();
        self.writes(|root| root.submit_file((&page, "Add a file"), &[], Some(("x.txt", b"x"))));
    }

    fn stage(&self) -> String {
        format!("root/dev{}", self.number)
    }

    /// A new index; returns its page.
    fn index(&self) -> String {
        self.put(&format!("/{}", self.stage()), &json!({"bases": []}));
        format!("/+manage/indexes/{}", self.stage())
    }

    fn upload(&self, filename: &str) {
        let upload = Upload::of(filename, &sdist(filename));
        self.world.server.root().upload(&self.stage(), &upload).expect(200);
    }

    /// A new release `p` 1.0; returns its page.
    fn release(&self) -> String {
        self.index();
        self.upload("p-1.0.zip");
        format!("/+manage/releases/{}/p?version=1.0", self.stage())
    }

    /// The page of a new user.
    fn user(&self) -> String {
        let name = format!("user{}", self.number);
        self.world.make_user(&name, &[]);
        format!("/+manage/users/{name}")
    }
}

#[test]
fn every_form_asks_for_its_operation() {
    let world = World::start();
    let paths = described::operations(&world.server.client);
    let described = paths.iter().filter(|(path, item)| is_form(path) && item.get("post").is_some());
    let described: BTreeSet<&str> = described.map(|(path, _)| path.as_str()).collect();
    let root = Browser::root(world.server.client);
    let mut desk = Desk { world, root, number: 0 };
    let mut tried: BTreeSet<&str> = [&WITHOUT[..], &TRIED_ELSEWHERE].concat().into_iter().collect();
    for (name, door) in all() {
        let Form(path, fill) = door else { continue };
        desk.number += 1;
        // A test that fails says which door it tried.
        println!("{name:?} by {path}");
        fill(&mut desk);
        tried.insert(path);
    }
    assert_eq!(tried, described);
}

#[test]
fn every_action_asks_for_its_operation() {
    let world = World::start();
    for (number, (name, action, arguments)) in all()
        .filter_map(|(name, door)| match door {
            Action(action, arguments) => Some((name, action, arguments())),
            _ => None,
        })
        .enumerate()
    {
        let article = format!("acted-{number}");
        world.server.root().write(&format!("{article}/0"), "first").expect(201);
        let before = world.serial();
        let body = json!({"actions": {*action: arguments}}).to_string().replace("NAME", &article);
        let sent = Sent { body: body.into_bytes(), ..Sent::new("POST", "/actions") };
        world.send(&sent, ROOT.1).expect(200);
        assert!(world.serial() > before, "{name:?} by {action}: nothing is written");
    }
}

/// A store with `alice`, and with `p` 1.0 in `root/dev`; `p` 2.0 is a file beside it.
fn with_release(directory: &Path) -> Place<'_> {
    let place = prepare(directory);
    place.add("alice", "pw");
    for (folder, filename) in [("first", "p-1.0.zip"), ("more", "p-2.0.zip")] {
        fs::create_dir(directory.join(folder)).expect("a directory");
        fs::write(directory.join(folder).join(filename), sdist(filename)).expect("a file");
    }
    place.run("import-wheels first --index root/dev --create");
    place
}

/// The last commit of a store that no server has open.
fn serial(directory: &Path) -> Serial {
    wait_for(async {
        let location = DatabaseLocation::Sqlite(directory.join("data/records.db"));
        let records = Records::open_read_only(&location, RecordsOptions::default()).await;
        records.expect("records").serial().await.expect("a serial")
    })
}

#[test]
fn every_command_asks_for_its_operation() {
    for (name, door) in all() {
        let Command(lines) = door else { continue };
        let directory = tempfile::tempdir().expect("a directory");
        let place = with_release(directory.path());
        place.run("token create alice --scope *");
        let id = place.json("token list alice --json")[0]["id"].as_str().expect("an id").to_owned();
        let (last, first) = lines.split_last().expect("a command");
        first.iter().for_each(|line| _ = place.run(line));
        let before = serial(directory.path());
        place.run(&last.replace("TOKEN", &id));
        assert!(serial(directory.path()) > before, "{name:?} by {last}: nothing is written");
    }
}

/// The rows are tried with each scope and each role beside this; the other tests have the names that the table says.
#[test]
fn every_row_is_a_door() {
    let mut named = BTreeSet::new();
    for (name, door) in all() {
        match door {
            Row(operation, what) => {
                let row = TABLE.iter().find(|row| row.operation == *operation && row.what == *what);
                let row = row.unwrap_or_else(|| panic!("{name:?}: no row {operation} {what}"));
                named.insert(row.called());
            }
            Elsewhere(test) => {
                let (file, test) = test.split_once(": ").expect("a file and a test");
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(file);
                let text = fs::read_to_string(path).expect("a file of tests");
                assert!(
                    text.contains(&format!("\nfn {test}()")),
                    "{name:?}: no test {test} in {file}"
                );
            }
            _ => {}
        }
    }
    let writing = TABLE.iter().filter(|row| row.writes).map(|row| row.called());
    assert_eq!(named, writing.collect::<BTreeSet<_>>());
}
