//! Passwords of local users.

use argon2::{
    Argon2,
    password_hash::{PasswordHasher, PasswordVerifier, phc::PasswordHash},
};
use aws_lc_rs::rand;

/// Longer ones only cost time.
const LONGEST: usize = 256;
/// Characters a password has at least, unless a setting says otherwise.
pub const SHORTEST: usize = 12;

/// Why a password cannot be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("a password has at least {0} characters")]
    Short(usize),
    #[error("a password has at most {LONGEST} bytes")]
    Long,
    #[error("a password must not be the name of its user")]
    Username,
    #[error("the password is the one before")]
    Same,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the password cannot be hashed")]
pub struct HashError;

/// Whether somebody may have this password.
pub fn check(password: &str, username: &str, shortest: usize) -> Result<(), Unfit> {
    if password.chars().count() < shortest.max(1) {
        return Err(Unfit::Short(shortest.max(1)));
    }
    if password.len() > LONGEST {
        return Err(Unfit::Long);
    }
    if password.eq_ignore_ascii_case(username) {
        return Err(Unfit::Username);
    }
    Ok(())
}

/// What is stored of a password: Argon2id as a PHC string. Takes tens of milliseconds and of megabytes.
pub fn hash(password: &str) -> Result<String, HashError> {
    let mut salt = [0; 16];
    rand::fill(&mut salt).map_err(|_| HashError)?;
    let hash: PasswordHash =
        Argon2::default().hash_password_with_salt(password.as_bytes(), &salt).map_err(|_| HashError)?;
    Ok(hash.to_string())
}

/// Takes as long as [`hash`], whether it is right or not.
pub fn verify(password: &str, stored: &str) -> bool {
    if password.len() > LONGEST {
        return false;
    }
    let Ok(parsed) = PasswordHash::new(stored) else { return false };
    // Stored parameters are used, so they must not be able to ask for all memory.
    let costly = parsed.params.get_decimal("m").is_none_or(|memory| memory > 1 << 18)
        || parsed.params.get_decimal("t").is_none_or(|times| times > 64)
        || parsed.params.get_decimal("p").is_none_or(|lanes| lanes > 16);
    !costly && Argon2::default().verify_password(password.as_bytes(), &parsed).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_itself_is_right() {
        let stored = hash("correct horse").unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(verify("correct horse", &stored));
        assert!(!verify("correct horsf", &stored) && !verify("", &stored));
        assert!(!verify("correct horse", "") && !verify("correct horse", "$argon2id$v=19$m=1"));
        assert!(!verify(&"x".repeat(LONGEST + 1), &stored));
    }

    #[test]
    fn a_stored_hash_cannot_ask_for_all_memory() {
        let stored = hash("correct horse").unwrap();
        let greedy = stored.replace("m=19456", "m=4294967295");
        assert!(!verify("correct horse", &greedy));
    }

    #[test]
    fn bad_passwords_are_refused() {
        assert_eq!(check("short", "ann", 12), Err(Unfit::Short(12)));
        assert_eq!(check("", "ann", 0), Err(Unfit::Short(1)));
        assert_eq!(check("Annannannann", "annannannann", 12), Err(Unfit::Username));
        assert_eq!(check(&"x".repeat(257), "ann", 12), Err(Unfit::Long));
        assert_eq!(check("a long password", "ann", 12), Ok(()));
    }
}
