//! Which endpoints write records, so that a server that follows another one cannot answer them.

use super::Endpoint;

impl Endpoint {
    /// Whether the endpoint writes records, or is a form for that. What is kept beside the records (locks that are fetched ahead,
    /// pauses of webhooks, settings) belongs to each server.
    pub(crate) const fn is_of_primary(self) -> bool {
        match self {
            Endpoint::CreateToken
            | Endpoint::RevokeToken
            | Endpoint::RevokeFoundTokens
            | Endpoint::BeginDeviceLogIn
            | Endpoint::AskDeviceLogIn
            | Endpoint::ManageTokens
            | Endpoint::LogInAtProvider
            | Endpoint::LinkProviderByForm
            | Endpoint::ReturnFromProvider
            | Endpoint::UnlinkProviderByForm
            | Endpoint::ShowDevice
            | Endpoint::ApproveDevice
            | Endpoint::MintUploadToken
            | Endpoint::ShowAccount
            | Endpoint::ShowLogIn
            | Endpoint::LogInByForm
            | Endpoint::LogOut
            | Endpoint::ChangePasswordByForm
            | Endpoint::CreateTokenByForm
            | Endpoint::RevokeTokenByForm
            | Endpoint::ShowManagement
            | Endpoint::CreateUserByForm
            | Endpoint::ManageUser
            | Endpoint::ChangeUserByForm
            | Endpoint::CreateIndexByForm
            | Endpoint::ManageIndex
            | Endpoint::ChangeIndexByForm
            | Endpoint::ManageGroups
            | Endpoint::ListReleases
            | Endpoint::ManageRelease
            | Endpoint::ChangeReleaseByForm
            | Endpoint::ReplaceArticle
            | Endpoint::ReviseArticle
            | Endpoint::DeleteArticle
            | Endpoint::ChooseArticle
            | Endpoint::ShowEditForm
            | Endpoint::EditArticle
            | Endpoint::ShowRenameForm
            | Endpoint::RenameArticle
            | Endpoint::ChangeAttachmentsByForm
            | Endpoint::PutAttachment
            | Endpoint::DeleteAttachment
            | Endpoint::CreateUser
            | Endpoint::ModifyUser
            | Endpoint::DeleteUser
            | Endpoint::CreateIndex
            | Endpoint::ModifyIndex
            | Endpoint::DeleteIndex
            | Endpoint::UploadFile
            | Endpoint::PushRelease
            | Endpoint::ApplyRetention
            | Endpoint::YankFile
            | Endpoint::AddToxResult
            | Endpoint::DeleteFile
            | Endpoint::DeleteProject
            | Endpoint::ChangeProjectStatus
            | Endpoint::DeleteRelease
            | Endpoint::YankRelease => true,
            // Each call says for itself whether it writes, and is refused if it does.
            Endpoint::RunActions => false,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::Tree;

    /// What a method suggests is wrong for few endpoints, and these were looked at.
    #[test]
    fn what_changes_something_is_of_the_primary() {
        let reads_or_is_local = [
            Endpoint::LogIn,
            Endpoint::RunActions,
            Endpoint::QueryOsv,
            Endpoint::QueryOsvBatch,
            Endpoint::AnswerQuestion,
            Endpoint::CheckAccess,
            Endpoint::SearchByXmlRpc,
            Endpoint::RefreshPage,
            Endpoint::StartPrefetch,
            Endpoint::StopPrefetch,
            Endpoint::PrefetchByForm,
            Endpoint::ChangeWebhookByForm,
            Endpoint::MarkAsRead,
            Endpoint::MissArticleName,
            Endpoint::MissAttachmentName,
        ];
        let changes = |endpoint: Endpoint| {
            let methods = endpoint.methods().iter().flat_map(|(methods, _)| methods.iter());
            methods.into_iter().any(|method| !matches!(*method, "GET" | "OPTIONS"))
        };
        for endpoint in Endpoint::ALL.iter().filter(|endpoint| endpoint.tree() != Tree::Admin) {
            if changes(*endpoint) {
                let is_known = reads_or_is_local.contains(endpoint);
                assert_ne!(endpoint.is_of_primary(), is_known, "{endpoint:?}");
            }
        }
    }
}
