//! Every operation, as each kind of sender: who may is as the table says, and nobody whose credentials have ended. A new
//! operation has no case here, so this does not compile until it gets one.

use std::collections::BTreeSet;
use std::sync::Arc;

use account::{
    AuthMethod, CiIdentity, Identity, IssuerKind, Portion, Principal, ProfileEdit, ProvedIdentity,
    Scope, Scopes, TokenText, UserName,
};
use article::{Condition, Content, Revision};
use config::Config;
use issuers::{VerifiedIdentity, VerifiedLogIn};
use jiff::Timestamp;
use ldap::DirectoryUser;
use net::ClientAddress;
use operations::articles::{
    AnnounceText, Base, DeleteArticle, RenameArticle, RestoreArticle, WriteArticle,
};
use operations::attachments::{AnnounceAttachment, FileOfArticle, PutAttachment, RemoveAttachment};
use operations::imports::ImportRecords;
use operations::indexes::{ChangeIndex, CreateIndex, DeleteIndex, SweepLeftovers};
use operations::log_ins::{ExternalUser, NoteLogIn};
use operations::providers::{LinkIdentity, OpenSessionByProvider, UnlinkIdentity};
use operations::publishing::MintUploadToken;
use operations::pushes::{ApproveRelease, Order, PushRelease};
use operations::releases::{
    DeleteFile, DeleteProject, DeleteRelease, FilePlace, RemoveOldVersions, SetProjectStatus,
    YankFile, YankRelease,
};
use operations::rights::{check_administrator, check_auditor, check_pusher_outside};
use operations::sessions::{CloseSession, OpenSession};
use operations::tokens::{CreateToken, NoteTokenUses, RevokeFoundToken, RevokeToken};
use operations::uploads::{AddToxResult, RegisterRelease, UploadFile};
use operations::users::{ChangeUser, CreateUser, DeleteUser, SetDisabled, SetGroups, SetPassword};
use operations::{Basis, Name, Operation, Refusal, Rules, Sender};
use pypi::change::push::PushContent;
use pypi::change::remove::RemovalExtent;
use pypi::change::retention::RetentionRule;
use pypi::upstream::UpstreamPage;
use pypi::{ConfigEdit, FileRole, Filename, ProjectName, StageName, Version};
use record::{Digest, Record, Serial};
use serde_json::{Value, json};
use state::accounts::Expiry;
use state::stored::Stored;
use store::State as _;

const FILENAME: &str = "p-1.0.tar.gz";

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    /// Without credentials.
    Anonymous,
    /// A user without any right.
    Stranger,
    /// In the group that the lists of the index and of articles name.
    Listed,
    /// Who owns the index, and is the user that operations are about.
    Owner,
    Administrator,
    /// A job of a CI system that the index names.
    Publisher,
}

use Who::{Administrator, Anonymous, Listed, Owner, Publisher, Stranger};

impl Who {
    const ALL: [Who; 6] = [Anonymous, Stranger, Listed, Owner, Administrator, Publisher];

    fn name(self) -> Option<UserName> {
        let name = match self {
            Anonymous | Publisher => return None,
            Stranger => "stranger",
            Listed => "listed",
            Owner => "owner",
            Administrator => "chief",
        };
        Some(name.parse().expect("a name"))
    }
}

/// A state, and the rules.
struct World {
    stored: Arc<Stored>,
    rules: Arc<Rules>,
}

fn owner() -> UserName {
    Owner.name().expect("a name")
}

fn stage(text: &str) -> StageName {
    text.parse().expect("a name")
}

fn project() -> ProjectName {
    ProjectName::normalize("p").expect("a name")
}

fn edit(json: Value) -> ConfigEdit {
    ConfigEdit::parse(&json).expect("an edit")
}

impl World {
    fn new() -> World {
        let mut config = Config::default();
        config.article.acl_write = ":listed".parse().expect("a list");
        config.python.acl_push_outside = ":listed".parse().expect("a list");
        let stored = Arc::new(Stored::of_server(&config));
        config.publishing.issuers = vec!["github https://ci.example".parse().expect("an issuer")];
        config.ldap.urls = vec!["ldap://directory.example".parse().expect("a URL")];
        config.ldap.groups = vec!["*=ldap-*".parse().expect("a line")];
        let mut world = World { stored, rules: Arc::new(Rules::of(&config)) };
        for who in Who::ALL {
            let Some(name) = who.name() else { continue };
            let groups = match who {
                Listed => BTreeSet::from(["listed".parse().expect("a name")]),
                Administrator => BTreeSet::from(["admin".parse().expect("a name")]),
                _ => BTreeSet::new(),
            };
            world.carry_out(&CreateUser { groups, ..CreateUser::named(name) });
        }
        let lists = json!({
            "acl_upload": [":listed"], "acl_toxresult_upload": [":listed"],
            "trusted_publishers": [PUBLISHER],
        });
        for (name, edited) in [
            ("owner/dev", lists.clone()),
            ("owner/prod", lists),
            ("owner/up", json!({"type": "mirror", "mirror_url": "https://up.example/simple/"})),
        ] {
            world.carry_out(&CreateIndex { stage: stage(name), edit: edit(edited) });
        }
        world.carry_out(&mint(1)).expect("a token");
        world.carry_out(&token(owner(), Scopes::ALL, FOUND)).expect("a token");
        world.carry_out(&upload());
        world.carry_out(&DeleteRelease {
            stage: stage("owner/prod"),
            project: project(),
            version: "1.0".to_owned(),
            force: true,
        });
        world.carry_out(&write(Revision::NONE));
        world.carry_out(&PutAttachment {
            file: file_of(),
            digest: Digest::of(b"notes"),
            size_bytes: 5,
        });
        world
    }

    /// Carries an operation out as the machine; one that is refused changes nothing.
    fn carry_out<O: Operation>(&mut self, wish: &O) -> Option<O::Outcome> {
        let decided = wish.decide(&self.basis(Sender::Command)).ok()?;
        let serial = Serial(self.stored.serial.0 + 1);
        let writes = decided.batch.into_iter().flat_map(|batch| batch.writes);
        let records: Vec<Record> = writes
            .map(|it| Record { key: it.key, serial, body: it.body, blobs: it.blobs })
            .collect();
        let (next, troubles) = Stored::clone(&self.stored).apply(&records, serial);
        assert!(troubles.is_empty(), "{troubles:?}");
        self.stored = Arc::new(next);
        Some(decided.outcome)
    }

    fn basis(&self, sender: Sender) -> Basis {
        Basis::new(self.stored.clone(), self.rules.clone(), sender, Timestamp::now(), None)
    }

    /// The sender, proved in this state.
    fn sender(&self, who: Who) -> Sender {
        self.proved(who, AuthMethod::Machine, Scopes::ALL)
    }

    /// The same, by a token with these scopes.
    fn with_scopes(&mut self, who: Who, scopes: Scopes) -> Sender {
        let user = who.name().expect("a user");
        let secret = [self.stored.serial.0 as u8; 32];
        let made = self.carry_out(&token(user, scopes, secret));
        let (_, token) = made.expect("a token");
        self.proved(who, AuthMethod::Token(token.id), scopes)
    }

    fn proved(&self, who: Who, means: AuthMethod, scopes: Scopes) -> Sender {
        let proved = match who.name() {
            None if who == Publisher => {
                let token = self.stored.accounts.upload_tokens().next().expect("a token");
                Principal::Publisher(token.clone())
            }
            None => Principal::Anonymous,
            Some(name) => {
                let user = self.stored.accounts.user(&name).expect("a user").clone();
                Principal::User(Identity { user, means, scopes, limits: None })
            }
        };
        Sender::Client { proved, address: ClientAddress::Unix, path: String::new() }
    }
}

/// The secret of a token of the owner.
const FOUND: [u8; 32] = [255; 32];

/// A job that both indexes admit for the project.
const PUBLISHER: &str =
    "p https://ci.example repository_id=7 repository_owner_id=3 workflow=release.yml";

fn mint(number: u8) -> MintUploadToken {
    let claims = [
        ("repository", "org/repo"),
        ("repository_id", "7"),
        ("repository_owner_id", "3"),
        ("job_workflow_ref", "org/repo/.github/workflows/release.yml@refs/heads/main"),
        ("event_name", "push"),
    ];
    let claims = claims.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let issuer = "https://ci.example".to_owned();
    let identity = CiIdentity { issuer, kind: IssuerKind::Github, claims: claims.into() };
    let (proof, ends_at) = (Digest::of(&[number]), Timestamp::now());
    let verified = VerifiedIdentity::without_checking(identity, proof, ends_at);
    MintUploadToken { verified, secret: [number; 32] }
}

fn proved() -> VerifiedLogIn {
    let identity = ProvedIdentity {
        issuer: "https://id.example".to_owned(),
        subject: "7".to_owned(),
        name: Ok("new".parse().expect("a name")),
        email: None,
        groups: BTreeSet::new(),
        not_groups: BTreeSet::new(),
    };
    VerifiedLogIn::without_checking("company", identity, true)
}

fn token(user: UserName, scopes: Scopes, secret: [u8; 32]) -> CreateToken {
    let expires = Some(Expiry::Never);
    CreateToken { user, comment: String::new(), scopes, limits: None, expires, secret }
}

fn upload() -> UploadFile {
    UploadFile {
        stage: stage("owner/dev"),
        project: project(),
        version: Version::parse("1.0").expect("a version"),
        filename: Filename::parse(FILENAME).expect("a name"),
        role: FileRole::Release,
        digest: Digest::of(b"sdist"),
        size_bytes: 5,
        requires_python: None,
        core_metadata: None,
        provenance: None,
        is_attested: false,
        metadata: Some(Digest::of(b"{}")),
    }
}

fn place(world: &World) -> FilePlace {
    let found = world.stored.index.stage("owner/dev").and_then(|stage| stage.project("p"));
    let file = found.and_then(|project| project.file(FILENAME)).expect("a file").clone();
    FilePlace { directory: file.directory(), filename: FILENAME.to_owned() }
}

fn write(base: Revision) -> WriteArticle {
    WriteArticle {
        name: "notes".parse().expect("a name"),
        base: Base::of(base),
        content: Content::of(format!("after {base}").as_bytes(), None).expect("a content"),
        comment: String::new(),
    }
}

fn file_of() -> FileOfArticle {
    FileOfArticle {
        article: "notes".parse().expect("a name"),
        name: "notes.txt".parse().expect("a name"),
        condition: Condition::Anything,
    }
}

fn order(source: &str) -> Order {
    Order {
        source: stage(source),
        target: stage("owner/prod"),
        name: "p".to_owned(),
        version: "1.0".to_owned(),
        content: PushContent::Everything,
    }
}

fn page() -> Arc<UpstreamPage> {
    Arc::new(UpstreamPage::default())
}

/// Whether the sender of this basis may.
type Case = Box<dyn Fn(&Basis) -> Result<(), Refusal>>;

fn case<O: Operation + 'static>(name: Name, wish: O) -> Case {
    assert_eq!(O::NAME, name);
    Box::new(move |basis| wish.decide(basis).map(drop))
}

/// An example of the operation, the scope that a token needs, and who may.
fn example(name: Name, world: &World) -> (Case, Option<Scope>, &'static [Who]) {
    const OWN: &[Who] = &[Owner, Administrator];
    const LISTED: &[Who] = &[Listed, Administrator];
    const UPLOADERS: &[Who] = &[Listed, Administrator, Publisher];
    const OWN_OR_LISTED: &[Who] = &[Listed, Owner, Administrator];
    const ADMINISTRATOR: &[Who] = &[Administrator];
    use Scope::{ArticleWrite, PythonAdmin, PythonUpload, UserAdmin};
    let (dev, file) = (stage("owner/dev"), place(world));
    let version = "1.0".to_owned();
    macro_rules! of {
        ($scope:expr, $who:expr, $wish:expr) => {
            (case(name, $wish), Some($scope), $who)
        };
    }
    match name {
        Name::CreateUser => {
            let name = "new".parse().expect("a name");
            of!(UserAdmin, ADMINISTRATOR, CreateUser::named(name))
        }
        Name::ChangeUser => {
            let (name, profile) = (owner(), ProfileEdit::default());
            let wish = ChangeUser { name, profile, password: None, is_password_only: false };
            of!(UserAdmin, OWN, wish)
        }
        Name::SetPassword => of!(UserAdmin, OWN, SetPassword { name: owner(), password: None }),
        Name::SetGroups => {
            let wish = SetGroups { name: owner(), groups: BTreeSet::new() };
            of!(UserAdmin, ADMINISTRATOR, wish)
        }
        Name::SetDisabled => {
            let wish = SetDisabled { name: owner(), is_disabled: true };
            of!(UserAdmin, ADMINISTRATOR, wish)
        }
        Name::DeleteUser => of!(UserAdmin, OWN, DeleteUser { name: owner(), force: true }),
        Name::CreateToken => {
            let scopes = "user:admin".parse().expect("a scope");
            of!(UserAdmin, OWN, token(owner(), scopes, [7; 32]))
        }
        Name::RevokeToken => {
            let id = world.stored.accounts.tokens_of(&owner())[0].id;
            of!(UserAdmin, OWN, RevokeToken { id })
        }
        // Who has a token needs no credentials to end it.
        Name::RevokeFoundToken => {
            let text = TokenText::from_secret(FOUND);
            (case(name, RevokeFoundToken { text }), None, &Who::ALL)
        }
        Name::NoteTokenUses => {
            let id = world.stored.accounts.tokens_of(&owner())[0].id;
            let uses = vec![(id, Timestamp::now())];
            (case(name, NoteTokenUses { uses }), None, &[])
        }
        // The identity is the proof: no credentials are needed.
        Name::MintUploadToken => (case(name, mint(2)), None, &Who::ALL),
        // The directory's word is the proof.
        Name::NoteLogIn => {
            let proof = DirectoryUser::without_checking(owner(), None);
            let user = ExternalUser::by_directory(&proof);
            (case(name, NoteLogIn { user }), None, &Who::ALL)
        }
        // A password proved who opens it; no right is needed to end one that is shown.
        Name::OpenSession => {
            let wish = OpenSession { name: owner(), secret: [1; 32], replaced: None };
            (case(name, wish), None, &[Owner])
        }
        // The identity is the proof: no credentials are needed.
        Name::OpenSessionByProvider => {
            let wish =
                OpenSessionByProvider { verified: proved(), secret: [1; 32], replaced: None };
            (case(name, wish), None, &Who::ALL)
        }
        Name::LinkIdentity => {
            let wish = LinkIdentity { name: owner(), verified: proved() };
            of!(UserAdmin, &[Owner], wish)
        }
        Name::UnlinkIdentity => {
            let identity = proved().identity().digest();
            of!(UserAdmin, OWN, UnlinkIdentity { name: owner(), identity })
        }
        Name::CloseSession => {
            (case(name, CloseSession { name: owner(), session: None }), None, &Who::ALL)
        }
        Name::CreateIndex => {
            let wish = CreateIndex { stage: stage("owner/new"), edit: ConfigEdit::nothing() };
            of!(PythonAdmin, OWN, wish)
        }
        Name::ChangeIndex => {
            let edit = edit(json!({"title": "Development"}));
            let wish = ChangeIndex { stage: dev, edit, is_noop_an_error: false, seen: None };
            of!(PythonAdmin, OWN, wish)
        }
        Name::DeleteIndex => of!(PythonAdmin, OWN, DeleteIndex { stage: dev, force: true }),
        Name::SweepLeftovers => (case(name, SweepLeftovers), None, &[]),
        Name::ImportRecords => (case(name, ImportRecords(None)), None, &[]),
        Name::YankRelease => {
            let wish = YankRelease { stage: dev, project: project(), version, reason: None };
            of!(PythonAdmin, OWN_OR_LISTED, wish)
        }
        Name::YankFile => {
            of!(PythonAdmin, OWN_OR_LISTED, YankFile { stage: dev, file, reason: None })
        }
        Name::SetProjectStatus => {
            let wish = SetProjectStatus { stage: dev, project: project(), status: None };
            of!(PythonAdmin, OWN_OR_LISTED, wish)
        }
        Name::DeleteProject => {
            let (project, extent) = (project(), RemovalExtent::Contents);
            let wish = DeleteProject { stage: dev, project, extent, force: false };
            of!(PythonAdmin, OWN_OR_LISTED, wish)
        }
        Name::DeleteRelease => {
            let wish = DeleteRelease { stage: dev, project: project(), version, force: false };
            of!(PythonAdmin, OWN_OR_LISTED, wish)
        }
        Name::DeleteFile => {
            of!(PythonAdmin, OWN_OR_LISTED, DeleteFile { stage: dev, file, force: false })
        }
        Name::RemoveOldVersions => {
            let rule = Some(RetentionRule { versions: Some(1), days: None });
            of!(PythonAdmin, OWN, RemoveOldVersions { stage: dev, rule, is_dry: false })
        }
        Name::RegisterRelease => {
            let version = Version::parse("2.0").expect("a version");
            let metadata = Digest::of(b"{}");
            let wish = RegisterRelease { stage: dev, project: project(), version, metadata };
            of!(PythonUpload, UPLOADERS, wish)
        }
        Name::UploadFile => {
            let filename = Filename::parse("p-2.0.tar.gz").expect("a name");
            let version = Version::parse("2.0").expect("a version");
            of!(PythonUpload, UPLOADERS, UploadFile { filename, version, ..upload() })
        }
        Name::AddToxResult => {
            let (digest, size_bytes) = (Digest::of(b"{}"), 2);
            of!(PythonUpload, LISTED, AddToxResult { stage: dev, file, digest, size_bytes })
        }
        Name::PushRelease => of!(PythonUpload, LISTED, PushRelease(order("owner/dev"))),
        Name::ApproveRelease => {
            let wish = ApproveRelease {
                order: order("owner/up"),
                project: project(),
                metadata: Digest::of(b"{}"),
                page: page(),
                files: Vec::new(),
            };
            of!(PythonUpload, LISTED, wish)
        }
        Name::AnnounceText => {
            let WriteArticle { name: article, base, comment, .. } = write(Revision(1));
            of!(ArticleWrite, LISTED, AnnounceText { name: article, base, comment })
        }
        Name::WriteArticle => of!(ArticleWrite, LISTED, write(Revision(1))),
        Name::DeleteArticle => {
            let WriteArticle { name: article, base, comment, .. } = write(Revision(1));
            of!(ArticleWrite, LISTED, DeleteArticle { name: article, base, comment })
        }
        Name::RestoreArticle => {
            let WriteArticle { name: article, base, comment, .. } = write(Revision(1));
            let wish = RestoreArticle { name: article, base, from: Revision(1), comment };
            of!(ArticleWrite, LISTED, wish)
        }
        Name::RenameArticle => {
            let WriteArticle { name: article, base, comment, .. } = write(Revision(1));
            let to = "other".parse().expect("a name");
            of!(ArticleWrite, LISTED, RenameArticle { name: article, base, to, comment })
        }
        Name::AnnounceAttachment => {
            let wish = AnnounceAttachment { file: file_of(), size_bytes: Some(1) };
            of!(ArticleWrite, LISTED, wish)
        }
        Name::PutAttachment => {
            let wish = PutAttachment { file: file_of(), digest: Digest::of(b"x"), size_bytes: 1 };
            of!(ArticleWrite, LISTED, wish)
        }
        Name::RemoveAttachment => of!(ArticleWrite, LISTED, RemoveAttachment(file_of())),
    }
}

/// Who may ask for what is no operation, as it writes no records.
#[test]
fn who_may_do_what_writes_nothing() {
    let world = World::new();
    let dev = world.stored.index.stage("owner/dev").expect("an index").clone();
    for who in Who::ALL {
        let basis = world.basis(world.sender(who));
        assert_eq!(may(check_auditor(&basis, None)), who == Administrator, "{who:?}");
        let may_change = [Owner, Administrator].contains(&who);
        assert_eq!(may(check_auditor(&basis, Some(&dev))), may_change, "{who:?}");
        let may_push = [Listed, Administrator].contains(&who);
        assert_eq!(may(check_pusher_outside(&basis, &dev, Portion::Whole)), may_push, "{who:?}");
        let sees_all = check_administrator(basis.principal(), Scope::UserAdmin, "everything");
        assert_eq!(may(sees_all), who == Administrator, "{who:?}");
    }
}

/// Whether a sender was refused for lack of a right, and not by a rule.
fn may(outcome: Result<(), Refusal>) -> bool {
    match outcome {
        Ok(()) => true,
        Err(Refusal::Ended(_) | Refusal::Denied(_)) => false,
        // What is another user's business is said not to be there.
        Err(Refusal::Rule(operations::Rule::NoToken(_) | operations::Rule::OnlyTheServer)) => false,
        Err(_) => true,
    }
}

fn with_token() -> World {
    let mut world = World::new();
    world.carry_out(&token(owner(), "python:read".parse().expect("a scope"), [9; 32]));
    world
}

#[test]
fn who_may_do_what() {
    let world = with_token();
    for name in Name::ALL {
        let (decide, _, allowed) = example(*name, &world);
        for who in Who::ALL {
            let basis = world.basis(world.sender(who));
            let outcome = decide(&basis);
            let shown = format!("{name:?} as {who:?}: {outcome:?}");
            assert_eq!(may(outcome), allowed.contains(&who), "{shown}");
        }
        assert!(
            *name == Name::ApproveRelease
                || decide(&world.basis(Sender::Command)).is_ok()
                || allowed == [Owner],
            "{name:?}"
        );
    }
}

#[test]
fn a_token_needs_the_scope() {
    let mut world = with_token();
    for name in Name::ALL {
        let (decide, scope, allowed) = example(*name, &world);
        let Some(scope) = scope else { continue };
        // The token of a job has no scopes.
        for who in allowed.iter().filter(|who| who.name().is_some()) {
            let reading = [Scope::PythonRead, Scope::ArticleRead];
            let enough = world.with_scopes(*who, reading.into_iter().chain([scope]).collect());
            let outcome = decide(&world.basis(enough));
            let shown = format!("{name:?} as {who:?} with {scope:?}: {outcome:?}");
            assert!(may(outcome), "{shown}");
            let others = reading.into_iter().chain([Scope::ServerAdmin]).collect();
            let other = world.with_scopes(*who, others);
            let outcome = decide(&world.basis(other));
            let shown = format!("{name:?} as {who:?} without {scope:?}: {outcome:?}");
            assert!(!may(outcome), "{shown}");
        }
    }
}

/// The credentials held when the request came. On the state that is decided on, their user is disabled.
#[test]
fn ended_credentials_may_no_more_than_none() {
    for name in Name::ALL {
        let mut world = with_token();
        let (decide, _, allowed) = example(*name, &world);
        // The token of a job has no user who could be disabled.
        let senders = allowed.iter().filter(|who| **who != Publisher);
        let senders: Vec<_> = senders.map(|who| (*who, world.sender(*who))).collect();
        for who in Who::ALL {
            if let Some(name) = who.name() {
                world.carry_out(&SetDisabled { name, is_disabled: true });
            }
        }
        for (who, sender) in senders {
            let outcome = decide(&world.basis(sender));
            assert_eq!(may(outcome), allowed.contains(&Anonymous), "{name:?} as {who:?}");
        }
    }
}

#[test]
fn an_identity_without_publisher_gets_nothing() {
    let world = World::new();
    let MintUploadToken { verified, secret } = mint(3);
    let mut identity = verified.identity().clone();
    identity.claims.insert("repository_id".to_owned(), "8".to_owned());
    let verified =
        VerifiedIdentity::without_checking(identity, verified.proof(), verified.ends_at());
    let basis = world.basis(world.sender(Anonymous));
    let refusal = MintUploadToken { verified, secret }.decide(&basis).expect_err("nobody names it");
    let text = refusal.to_string();
    assert_eq!(
        text,
        "no index names this identity as a trusted publisher: https://ci.example repository=org/repo repository_id=8 repository_owner_id=3 job_workflow_ref=org/repo/.github/workflows/release.yml@refs/heads/main event_name=push"
    );
    let Refusal::Rule(operations::Rule::NoPublisher(refusal)) = refusal else { panic!("{text}") };
    let (index, _, mismatch) = *refusal.nearest.expect("a publisher that is like it");
    assert!(index.as_str().starts_with("owner/"), "{index}");
    assert_eq!(mismatch.to_string(), "`repository_id` is `8`, and `7` was expected");
    let replayed = mint(1).decide(&basis).expect_err("it was used already");
    assert_eq!(
        replayed.to_string(),
        "this identity was used already: ask the CI system for a new one"
    );
}
