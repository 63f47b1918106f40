//! Who may do what with a stage, as far as their credentials go. Administrators are on every list and may do
//! everything. The stage's user may change, empty and remove it, but reads and uploads, as everybody else, if the
//! list says so; that of a new stage does.

use account::{Principal, Scope};

use crate::{Stage, StageName};

impl Stage {
    /// Whether `principal` may see its own pages and files: whom `acl_read` names, and administrators; the
    /// stage's user, who may change that list, only if it names them. What it shows of its bases needs the same
    /// of each of them: see [`crate::ResolutionOrder::readers`].
    pub fn may_read(&self, principal: &Principal) -> bool {
        self.config().acl_read.admits(principal, Scope::PythonRead)
    }

    /// Whether `principal` may upload, and push, into it: whom `acl_upload` names, and administrators.
    /// A stage's own user is on that list unless somebody took them off.
    pub fn may_upload(&self, principal: &Principal) -> bool {
        let settings = self.config().upload();
        settings.is_some_and(|settings| settings.acl_upload.admits(principal, Scope::PythonUpload))
    }

    /// Whether `principal` may put other contents in the place of a file, where the stage is volatile: whom
    /// `acl_upload` names, with credentials that may be used for removing, too.
    pub fn may_replace(&self, principal: &Principal) -> bool {
        let settings = self.config().upload();
        settings.is_some_and(|settings| settings.acl_upload.admits(principal, Scope::PythonAdmin))
    }

    /// Whether `principal` may add test results.
    pub fn may_upload_tox_results(&self, principal: &Principal) -> bool {
        let settings = self.config().upload();
        settings.is_some_and(|settings| {
            settings.tox_result_uploaders().admits(principal, Scope::PythonUpload)
        })
    }

    /// Whether `principal` may change its configuration, and remove it.
    pub fn may_modify(&self, principal: &Principal) -> bool {
        may_own(self.name(), principal)
    }

    /// Whether `principal` may remove and yank what is in it: who may change it, and who may upload,
    /// with credentials that may be used for removing.
    pub fn may_remove(&self, principal: &Principal) -> bool {
        let settings = self.config().upload();
        self.may_modify(principal)
            || settings
                .is_some_and(|settings| settings.acl_upload.admits(principal, Scope::PythonAdmin))
    }
}

/// Whether `principal` may make, change and remove stages of that name.
pub fn may_own(stage: &StageName, principal: &Principal) -> bool {
    principal.acts_for(&stage.user_name(), Scope::PythonAdmin)
}
