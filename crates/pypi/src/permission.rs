//! Who may do what with a stage, as far as their credentials allow it. Administrators are on every list and may do everything.
//! The stage's own user may change, empty and remove it. To read and to upload, this user needs to be on the list like
//! everybody else; the lists of a new stage include its user. A right is checked for a [`Portion`] of the stage, since a token
//! may be limited to some of its projects.

use account::{Object, Portion, Principal, Scope};

use crate::{ResolutionOrder, Snapshot, Stage, StageName};

impl Stage {
    /// The object of a right to this part of the stage.
    pub fn object<'name>(&'name self, portion: Portion<'name>) -> Object<'name> {
        Object::Index(self.name().as_str(), portion)
    }

    /// Whether `principal` may see the stage's own pages and files: those that `acl_read` names, and administrators.
    /// The stage's user, who may change that list, may read only if it names them. To see what the stage shows of its
    /// bases, one must be allowed to read each of them: see [`crate::ResolutionOrder::readers`].
    pub fn may_read(&self, principal: &Principal, portion: Portion<'_>) -> bool {
        self.may_be_read_as(principal, self.object(portion))
    }

    /// Whether `principal` may read what another stage, which `object` names, shows of this one.
    pub(crate) fn may_be_read_as(&self, principal: &Principal, object: Object<'_>) -> bool {
        self.config().acl_read.admits(principal, Scope::PythonRead, object)
    }

    /// Whether `principal` may read a file of the stage: those that may read the stage; and with a limited token those
    /// that may read the page of another stage that has this one among its bases, as that page links to the file.
    pub fn may_read_file(
        &self,
        snapshot: &Snapshot,
        principal: &Principal,
        portion: Portion<'_>,
    ) -> bool {
        if self.may_read(principal, portion) {
            return true;
        }
        let is_outside =
            |limits: &&std::sync::Arc<account::Limits>| !limits.admit(self.object(portion));
        let Some(limits) = principal.limits().filter(is_outside) else { return false };
        let within = snapshot.stages().filter(|stage| limits.admit(stage.object(portion)));
        let orders =
            within.filter_map(|stage| ResolutionOrder::of(snapshot, stage.name().as_str()));
        let is_this = |stage: &Stage| stage.name() == self.name();
        let shows = |order: &ResolutionOrder<'_>| match portion {
            Portion::Project(name) => order
                .project(name)
                .is_some_and(|view| view.parts().iter().any(|part| is_this(part.stage))),
            Portion::Whole | Portion::Unnamed => order.stages().iter().any(|stage| is_this(stage)),
        };
        orders.into_iter().any(|order| order.admits(principal, portion) && shows(&order))
    }

    /// Whether `principal` may upload files to the stage: those that may push to it, and jobs whose identity a trusted
    /// publisher of this project has.
    pub fn may_upload(&self, principal: &Principal, portion: Portion<'_>) -> bool {
        self.may_push(principal, portion) || self.is_publisher(principal, portion)
    }

    /// Whether `principal` may push to the stage: those that `acl_upload` names, and administrators. A new stage's list names
    /// its own user.
    pub fn may_push(&self, principal: &Principal, portion: Portion<'_>) -> bool {
        self.is_uploader(principal, Scope::PythonUpload, portion)
    }

    /// Whether `principal` may replace the contents of a file, if the stage is volatile: those that `acl_upload`
    /// names, with credentials that also allow removals.
    pub fn may_replace(&self, principal: &Principal, portion: Portion<'_>) -> bool {
        self.is_uploader(principal, Scope::PythonAdmin, portion)
    }

    /// Whether `principal` may add test results to the stage.
    pub fn may_upload_tox_results(&self, principal: &Principal, portion: Portion<'_>) -> bool {
        let object = self.object(portion);
        self.config().upload().is_some_and(|settings| {
            settings.tox_result_uploaders().admits(principal, Scope::PythonUpload, object)
        })
    }

    /// Whether `principal` may change the stage's configuration and remove the stage.
    pub fn may_modify(&self, principal: &Principal) -> bool {
        may_own(self.name(), principal)
    }

    /// Whether `principal` may remove and yank files and releases of the stage: those that may change the stage, and
    /// those that may upload to it with credentials that also allow removals.
    pub fn may_remove(&self, principal: &Principal, portion: Portion<'_>) -> bool {
        principal.acts_for(&self.name().user_name(), Scope::PythonAdmin, self.object(portion))
            || self.is_uploader(principal, Scope::PythonAdmin, portion)
    }

    fn is_publisher(&self, principal: &Principal, portion: Portion<'_>) -> bool {
        let Some(token) = principal.publisher() else { return false };
        let publishers = self.config().upload().map_or(&[][..], |it| &it.trusted_publishers);
        publishers.iter().any(|it| it.covers(portion) && it.admit(&token.identity).is_ok())
    }

    fn is_uploader(&self, principal: &Principal, scope: Scope, portion: Portion<'_>) -> bool {
        let settings = self.config().upload();
        settings.is_some_and(|it| it.acl_upload.admits(principal, scope, self.object(portion)))
    }
}

/// Whether `principal` may make, change and remove a stage with this name.
pub fn may_own(stage: &StageName, principal: &Principal) -> bool {
    let object = Object::Index(stage.as_str(), Portion::Whole);
    principal.acts_for(&stage.user_name(), Scope::PythonAdmin, object)
}

#[cfg(test)]
mod tests;
