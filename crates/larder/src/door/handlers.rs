//! The handler of each endpoint of the main tree. A line of the table without an arm here does not compile.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::Method;

use crate::app::App;
use crate::front::error::HttpError;
use crate::front::request::Parts;
use crate::front::{assets, page};
use crate::people::{self, about, account, changed, find, home, manage, package, packages, status};
use crate::protocols::{
    actions, articles, aur, changes, device, dumps, faur, follow, health, openapi, osv, publishing,
    tokens,
};
use crate::routes::trees::Main;
use crate::routes::{Endpoint, InTree, Route};

/// Calls the handler of an endpoint. Each handler's future is boxed, so that requests to one handler do not take the memory of the
/// largest.
pub(super) async fn call(
    app: &Arc<App>,
    endpoint: Endpoint,
    route: &Route,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let InTree::Main(handler) = endpoint.in_tree() else {
        return Err(HttpError::nothing_at(head.uri.path()));
    };
    let is_for_people = page::wants_page(&head.headers);
    Ok(match handler {
        Main::ShowHome => Box::pin(home::show_home(app, head)).await?,
        Main::ShowUse => Box::pin(home::show_use(app, head)).await?,
        Main::ShowChanged => Box::pin(changed::show_changed(app, head)).await?,
        Main::MarkAsRead => Box::pin(changed::mark_as_read(app, head, body)).await?,
        Main::ShowSearch => Box::pin(find::show_search(app, head)).await?,
        Main::Suggest => Box::pin(find::suggest(app, head)).await?,
        Main::ShowStatus => Box::pin(status::show_status(app, head)).await,
        Main::ShowAsset => Box::pin(assets::show_asset(app, head)).await?,
        Main::ShowDocs => Box::pin(about::show_docs(app, head)).await,
        Main::ShowAurDocs | Main::ShowOldAurDocs => Box::pin(about::show_aur_docs(app, head)).await,
        Main::ShowOpenapi | Main::ShowOldOpenapi => {
            Box::pin(openapi::show_openapi(app, head)).await
        }
        Main::ShowPagesOpenapi => Box::pin(openapi::show_pages_openapi(app, head)).await,
        Main::BrowsePackages if faur::is_asked(head) => {
            Box::pin(faur::list_packages(app, head)).await
        }
        Main::BrowsePackages => Box::pin(packages::browse_packages(app, head)).await?,
        Main::ShowPackage => Box::pin(package::show_package(app, head, route)).await?,
        Main::ShowPackageBase => Box::pin(package::show_package_base(app, head, route)).await?,
        Main::ShowMaintainer => Box::pin(package::show_maintainer(app, head, route)).await?,
        Main::FeedPackages => Box::pin(packages::feed_packages(app, head)).await?,
        Main::ShowStatistics => Box::pin(about::show_statistics(app, head)).await,
        Main::ShowRobots => Box::pin(about::show_robots(head)).await,
        Main::ShowIcon => Box::pin(about::show_icon(head)).await,
        Main::CheckAlive => health::check_alive(),
        Main::CheckReady => health::check_ready(app, head).await,
        Main::ShowVersion => health::show_version(),
        Main::ShowMetrics => health::show_metrics(app).await,
        Main::FindNothing => return Err(HttpError::nothing_at(head.uri.path())),
        Main::ListTokens => Box::pin(tokens::list_tokens(app, head)).await?,
        Main::CreateToken => Box::pin(tokens::create_token(app, head, body)).await?,
        Main::RevokeFoundTokens => Box::pin(tokens::revoke_found_tokens(app, head, body)).await?,
        Main::RevokeToken => Box::pin(tokens::revoke_token(app, head, route)).await?,
        Main::BeginDeviceLogIn => device::begin(app, head)?,
        Main::AskDeviceLogIn => Box::pin(device::ask(app, head, body)).await?,
        Main::ShowDevice => Box::pin(account::show_device(app, head)).await?,
        Main::ApproveDevice => Box::pin(account::approve_device(app, head, body)).await?,
        Main::ShowPublishingAudience => publishing::show_audience(app, head),
        Main::MintUploadToken => Box::pin(publishing::mint_upload_token(app, head, body)).await,
        Main::DiscoverPublishing => publishing::discover(app, head)?,
        Main::ShowAccount => Box::pin(account::show_account(app, head)).await?,
        Main::ShowLogIn => Box::pin(account::show_log_in(app, head)).await?,
        Main::LogInByForm => Box::pin(account::log_in(app, head, body)).await?,
        Main::LogOut => Box::pin(account::log_out(app, head, body)).await?,
        Main::LogInAtProvider => Box::pin(account::log_in_at_provider(app, head, route)).await?,
        Main::ReturnFromProvider => {
            Box::pin(account::return_from_provider(app, head, route)).await?
        }
        Main::LinkProviderByForm => Box::pin(account::link(app, head, route, body)).await?,
        Main::UnlinkProviderByForm => Box::pin(account::unlink(app, head, route, body)).await?,
        Main::ChangePasswordByForm => Box::pin(account::change_password(app, head, body)).await?,
        Main::CreateTokenByForm => Box::pin(account::create_token(app, head, body)).await?,
        Main::RevokeTokenByForm => Box::pin(account::revoke_token(app, head, body)).await?,
        Main::ShowManagement => Box::pin(manage::show_management(app, head)).await?,
        Main::CreateUserByForm => Box::pin(manage::create_user(app, head, body)).await?,
        Main::ManageUser => Box::pin(manage::show_user(app, head, route)).await?,
        Main::ChangeUserByForm => Box::pin(manage::change_user(app, head, route, body)).await?,
        Main::CreateIndexByForm => Box::pin(manage::create_index(app, head, body)).await?,
        Main::ManageIndex => Box::pin(manage::show_index(app, head, route)).await?,
        Main::ChangeIndexByForm => Box::pin(manage::change_index(app, head, route, body)).await?,
        Main::ManageGroups => Box::pin(manage::show_groups(app, head)).await?,
        Main::ManageTokens => Box::pin(manage::show_tokens(app, head)).await?,
        Main::ListReleases => Box::pin(manage::list_releases(app, head, route)).await?,
        Main::ManageRelease => Box::pin(manage::show_release(app, head, route)).await?,
        Main::ChangeReleaseByForm => {
            Box::pin(manage::change_release(app, head, route, body)).await?
        }
        Main::ManageAudit => Box::pin(manage::show_audit(app, head)).await?,
        Main::ManageWebhooks => Box::pin(manage::show_webhooks(app, head)).await?,
        Main::ChangeWebhookByForm => Box::pin(manage::change_webhook(app, head, body)).await?,
        Main::ManagePrefetch => Box::pin(manage::show_prefetch(app, head, route)).await?,
        Main::PrefetchByForm => Box::pin(manage::change_prefetch(app, head, route, body)).await?,
        Main::ListActions => Box::pin(actions::endpoint::list_actions(app, head)).await,
        Main::RunActions if head.method == Method::POST => {
            Box::pin(actions::endpoint::run_actions(app, head, body)).await?
        }
        Main::RunActions => Box::pin(actions::endpoint::run_actions_of_query(app, head)).await?,
        Main::ListArticles if is_for_people => {
            Box::pin(people::articles::list_articles(app, head)).await?
        }
        Main::ListArticles => Box::pin(articles::list_articles(app, head)).await?,
        Main::MissArticleName => return Err(articles::lacks_name(head.uri.path())),
        Main::ReadArticle | Main::ReadHistory | Main::CompareVersions if is_for_people => {
            Box::pin(people::articles::read_article(app, head)).await?
        }
        Main::ReadArticle | Main::ReadHistory | Main::CompareVersions => {
            Box::pin(articles::read_article(app, head)).await?
        }
        Main::ReplaceArticle | Main::ReviseArticle => {
            Box::pin(articles::put_article(app, head, body)).await?
        }
        Main::DeleteArticle => Box::pin(articles::delete_article(app, head)).await?,
        Main::ChooseArticle => people::articles::choose_article(app, head)?,
        Main::ShowEditForm => Box::pin(people::articles::show_edit(app, head, route)).await?,
        Main::EditArticle => Box::pin(people::articles::edit(app, head, route, body)).await?,
        Main::ShowRenameForm => Box::pin(people::articles::show_rename(app, head, route)).await?,
        Main::RenameArticle => Box::pin(people::articles::rename(app, head, route, body)).await?,
        Main::ListAttachments if is_for_people => {
            Box::pin(people::articles::list_attachments(app, head, route)).await?
        }
        Main::ListAttachments => Box::pin(articles::list_attachments(app, head, route)).await?,
        Main::ChangeAttachmentsByForm => {
            Box::pin(people::articles::change_attachments(app, head, route, body)).await?
        }
        Main::ReadAttachment => Box::pin(articles::read_attachment(app, head, route)).await?,
        Main::PutAttachment => Box::pin(articles::put_attachment(app, head, route, body)).await?,
        Main::DeleteAttachment => Box::pin(articles::delete_attachment(app, head, route)).await?,
        Main::MissAttachmentName => return Err(articles::lacks_attachment(head.uri.path())),
        Main::ListChanges => Box::pin(changes::list_changes(app, head)).await?,
        Main::ShowChangesAsAtom => Box::pin(changes::show_changes_as_atom(app, head)).await?,
        Main::ListRecords => Box::pin(follow::list_records(app, head)).await?,
        Main::ReadBlob => Box::pin(follow::read_blob(app, head, route)).await?,
        Main::ReadMirrored => Box::pin(follow::read_mirrored(app, head, route)).await?,
        Main::QueryOsv => Box::pin(osv::query(app, head, body)).await,
        Main::QueryOsvBatch => Box::pin(osv::query_batch(app, head, body)).await,
        Main::ShowOsvRecord => Box::pin(osv::show_record(app, route)).await,
        Main::AnswerQuestion if aur::is_without_question(head) => {
            Box::pin(about::show_aur_docs(app, head)).await
        }
        Main::AnswerQuestion => Box::pin(aur::answer_question(app, head, body)).await?,
        Main::DownloadDump => Box::pin(dumps::download_dump(app, head)).await?,
        Main::DownloadDelta => Box::pin(dumps::download_delta(app, head)).await?,
        Main::ShowDumpDigest => Box::pin(dumps::show_dump_digest(app, head)).await?,
        Main::ShowPackageHistory => {
            Box::pin(changes::show_package_history(app, head, route)).await?
        }
        Main::ListPackageHistories => Box::pin(changes::list_package_histories(app, head)).await?,
    })
}
