//! Who may do what with a stage, as far as their credentials allow it. Administrators are on every list and may do
//! everything. The stage's own user may change, empty and remove it. To read and to upload, this user needs to be on
//! the list like everybody else; the lists of a new stage include its user.

use account::{Principal, Scope};

use crate::{Stage, StageName};

impl Stage {
    /// Whether `principal` may see the stage's own pages and files: those that `acl_read` names, and administrators.
    /// The stage's user, who may change that list, may read only if it names them. To see what the stage shows of its
    /// bases, one must be allowed to read each of them: see [`crate::ResolutionOrder::readers`].
    pub fn may_read(&self, principal: &Principal) -> bool {
        self.config().acl_read.admits(principal, Scope::PythonRead)
    }

    /// Whether `principal` may upload files to the stage and push to it: those that `acl_upload` names, and
    /// administrators. A new stage's list names its own user.
    pub fn may_upload(&self, principal: &Principal) -> bool {
        let settings = self.config().upload();
        settings.is_some_and(|settings| settings.acl_upload.admits(principal, Scope::PythonUpload))
    }

    /// Whether `principal` may replace the contents of a file, if the stage is volatile: those that `acl_upload`
    /// names, with credentials that also allow removals.
    pub fn may_replace(&self, principal: &Principal) -> bool {
        let settings = self.config().upload();
        settings.is_some_and(|settings| settings.acl_upload.admits(principal, Scope::PythonAdmin))
    }

    /// Whether `principal` may add test results to the stage.
    pub fn may_upload_tox_results(&self, principal: &Principal) -> bool {
        let settings = self.config().upload();
        settings.is_some_and(|settings| {
            settings.tox_result_uploaders().admits(principal, Scope::PythonUpload)
        })
    }

    /// Whether `principal` may change the stage's configuration and remove the stage.
    pub fn may_modify(&self, principal: &Principal) -> bool {
        may_own(self.name(), principal)
    }

    /// Whether `principal` may remove and yank files and releases of the stage: those that may change the stage, and
    /// those that may upload to it with credentials that also allow removals.
    pub fn may_remove(&self, principal: &Principal) -> bool {
        let settings = self.config().upload();
        self.may_modify(principal)
            || settings
                .is_some_and(|settings| settings.acl_upload.admits(principal, Scope::PythonAdmin))
    }
}

/// Whether `principal` may make, change and remove a stage with this name.
pub fn may_own(stage: &StageName, principal: &Principal) -> bool {
    principal.acts_for(&stage.user_name(), Scope::PythonAdmin)
}
