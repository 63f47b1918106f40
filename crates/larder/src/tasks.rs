//! What runs in the background.

pub mod aur_refresh;
