//! Words of messages.

/// `count` and its noun, in the plural where there is not one.
pub fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
