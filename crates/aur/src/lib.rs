//! aur.
