//! Reading goaurrpc's configuration.
/// (being written)
pub fn import_goaurrpc(_: &str) -> Result<String, String> {
    Ok(String::new())
}
