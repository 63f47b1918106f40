//! [`Rules`]: what the configuration says about rights and bounds, read once at the start.

use std::time::Duration;

use account::{Acl, GroupMap, UserPolicy};
use article::AttachmentLimits;
use config::Config;
use issuers::Issuer;
use jiff::{SignedDuration, Timestamp};

use crate::log_ins::ElsewhereRules;

/// The settings that decisions depend on.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Whether the Python index behaves as devpi does where the two differ.
    pub devpi_defaults: bool,
    /// Who may make and change users.
    pub users: UserPolicy,
    /// devpi's `--restrict-modify`: if not empty, only these make, change and remove users and indexes.
    pub restrict_modify: Acl,
    /// Who may push releases to other servers.
    pub push_outside: Acl,
    /// Whether the audit log notes files that are served, and not only those that are refused.
    pub notes_served: bool,
    /// Who may read articles.
    pub article_readers: Acl,
    /// Who may write articles.
    pub article_writers: Acl,
    /// Bounds of an article.
    pub article_limits: article::Limits,
    /// Bounds of the files of an article.
    pub attachment_limits: AttachmentLimits,
    /// How long a login, or a session, is valid.
    pub login: Duration,
    /// How many days a token is valid whose maker does not say until when; 0 for a token that never expires.
    pub token_days: u32,
    /// The issuers whose identities indexes may name as publishers.
    pub issuers: Vec<Issuer>,
    /// Users of the directory, if one is asked.
    pub directory: Option<ElsewhereRules>,
    /// Users whom a proxy names, if one is believed.
    pub proxy: Option<ElsewhereRules>,
}

impl Rules {
    /// The rules of this configuration.
    pub fn of(config: &Config) -> Rules {
        let (python, articles) = (&config.python, &config.article);
        let modifiers = &python.restrict_modify;
        Rules {
            devpi_defaults: python.devpi_defaults,
            users: UserPolicy {
                strangers_create_users: config.users.may_register || python.devpi_defaults,
                modifiers: (!modifiers.entries().is_empty()).then(|| modifiers.clone()),
            },
            restrict_modify: modifiers.clone(),
            push_outside: python.acl_push_outside.clone(),
            notes_served: python.audit_served && python.audit_bytes_max > 0,
            article_readers: articles.acl_read.clone(),
            article_writers: articles.acl_write.clone(),
            article_limits: article::Limits {
                content_bytes_max: articles.body_bytes_max,
                ..article::Limits::default()
            },
            attachment_limits: AttachmentLimits {
                file_bytes_max: articles.attachment_bytes_max,
                files_max: articles.attachments_max,
                together_bytes_max: articles.attachments_bytes_max,
            },
            login: config.users.login,
            token_days: config.users.token_days,
            issuers: config.publishing.issuers.clone(),
            directory: (!config.ldap.urls.is_empty()).then(|| ElsewhereRules {
                local_users: config.ldap.local_users.clone(),
                groups: config.ldap.group_map(),
                creates_users: config.ldap.creates_users,
                ..ElsewhereRules::default()
            }),
            proxy: config.proxy_login.header.is_some().then(|| ElsewhereRules {
                groups: GroupMap::new(config.proxy_login.groups.iter().cloned()),
                creates_users: config.proxy_login.creates_users,
                admits_passwords: true,
                admits_root: config.proxy_login.admits_root,
                ..ElsewhereRules::default()
            }),
        }
    }

    /// When a token expires that is made at `now`, if its maker does not say; `None` for never.
    pub(crate) fn token_end(&self, now: Timestamp) -> Option<Timestamp> {
        let hours = i64::from(self.token_days) * 24;
        (hours > 0).then(|| now.checked_add(SignedDuration::from_hours(hours)).ok())?
    }

    /// Whether only those whom `python.restrict_modify` names make, change and remove users and indexes.
    pub fn is_restricted(&self) -> bool {
        !self.restrict_modify.entries().is_empty()
    }
}
