//! `/+account`: logging in with a browser, here or at an identity provider, and a user's own tokens, password and sessions.
//!
//! form -> [`forms`](super::forms), who sent it -> the call that a program would make -> a page, or a redirect to one. Each
//! answer is for the browser that asked alone, so none may be cached.

mod at_provider;
mod device;
mod log_in;
mod own;

pub(crate) use at_provider::{link, log_in_at_provider, return_from_provider, unlink};
pub(crate) use device::{approve_device, show_device};
pub(crate) use log_in::{log_in, log_out, show_log_in};
pub(crate) use own::{
    SCOPES, change_password, create_token, ending, revoke_token, show_account, token_wish,
};

/// Size of a form of these pages.
const FORM_BYTES_MAX: usize = 32 << 10;
