//! Random secrets: bytes of the system, and passwords made of them.

/// Characters of a random password: 101 bits.
const PASSWORD_CHARACTERS: usize = 17;

/// The characters of a random password: none has a special meaning in a shell, a URL, a configuration file or an option.
const PASSWORD_ALPHABET: &[u8; 62] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Random bytes of the system.
///
/// # Errors
/// If the system has none.
pub fn random<const COUNT: usize>() -> Result<[u8; COUNT], getrandom::Error> {
    let mut bytes = [0; COUNT];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// A random password: 17 letters and digits.
///
/// # Errors
/// If the system has no random numbers.
pub fn random_password() -> Result<account::Password, getrandom::Error> {
    let mut text = String::with_capacity(PASSWORD_CHARACTERS);
    while text.len() < PASSWORD_CHARACTERS {
        let bytes = random::<32>()?;
        let characters = bytes.iter().filter_map(|&byte| password_character(byte));
        text.extend(characters.take(PASSWORD_CHARACTERS - text.len()));
    }
    Ok(account::Password::new(&text).expect("17 characters are neither none nor too many"))
}

/// The character of a random byte. None for a byte that would make some characters likelier than others.
fn password_character(byte: u8) -> Option<char> {
    let count = PASSWORD_ALPHABET.len();
    let byte = usize::from(byte);
    (byte < 256 / count * count).then(|| char::from(PASSWORD_ALPHABET[byte % count]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_that_nobody_chose_differ() {
        let (one, other) = (random_password().expect("random"), random_password().expect("random"));
        assert_eq!(one.reveal().len(), 17);
        assert_ne!(one.reveal(), other.reveal());
    }

    /// For all random bytes: only these characters, each equally likely.
    #[test]
    fn passwords_that_nobody_chose_need_no_quoting() {
        let mut drawn = std::collections::BTreeMap::new();
        for character in (0..=u8::MAX).filter_map(password_character) {
            assert!(character.is_ascii_alphanumeric(), "{character}");
            *drawn.entry(character).or_insert(0) += 1;
        }
        assert_eq!(drawn.len(), 62);
        assert!(drawn.values().all(|count| *count == 4), "{drawn:?}");
        assert!(62_f64.log2() * PASSWORD_CHARACTERS as f64 >= 96.0);
    }
}
