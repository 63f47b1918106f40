//! What is printed from the table of keys.
use super::resolve::Loaded;
/// (being written)
pub fn docs() -> String {
    String::new()
}
/// (being written)
pub fn template() -> String {
    String::new()
}
/// (being written)
pub fn show(_: &Loaded) -> String {
    String::new()
}
