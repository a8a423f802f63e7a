//! Suites: the algorithms of an SA, and their keys.
//!
//! ```text
//!  nonce  [ salt, 4 bytes of the key material | IV, 8 bytes of the packet ]      RFC 4106 section 4, RFC 7634 section 2
//!  AAD    [ SPI | sequence number ]  or  [ SPI | high 32 bits | low 32 bits ]    RFC 4106 section 5
//! ```
//!
//! The schedule of a key is computed once, when the SA is made. The choice of the library is recorded in
//! `docs/decisions/0068-cryptography-of-ipsec.md`.
//!
//! Invariants: bytes of keys are never printed, and are overwritten when they are dropped.
//! Thread-safety: a key may be used by several threads.

use std::fmt;

use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

/// The length of the integrity check value: all suites have 16 bytes (RFC 8221 section 5).
pub const ICV: usize = 16;

/// The length of the IV in a packet.
pub const IV: usize = 8;

/// The length of the salt at the end of the key material.
const SALT: usize = 4;

/// The algorithms of an SA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suite {
    /// AES-GCM with a key of 128 bits.
    AesGcm128,
    /// AES-GCM with a key of 256 bits.
    AesGcm256,
    /// ChaCha20-Poly1305 (RFC 7634).
    ChaCha20Poly1305,
}

/// Why key material is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadKey {
    /// The algorithm is not implemented.
    #[error(
        "the algorithm is not implemented; use rfc4106(gcm(aes)) or rfc7539esp(chacha20,poly1305)"
    )]
    Algorithm,
    /// AES-GCM with a key of 192 bits is not implemented.
    #[error("AES-GCM with a key of 192 bits is not implemented; use a key of 128 or 256 bits")]
    Aes192,
    /// The length does not fit the algorithm.
    #[error(
        "key material of {0} bytes does not fit the algorithm; rfc4106(gcm(aes)) takes 20 or 36 bytes and \
         rfc7539esp(chacha20,poly1305) takes 36, of which the last 4 are the salt"
    )]
    Length(usize),
}

impl Suite {
    /// The suite that the kernel calls `name`, with key material of `len` bytes.
    ///
    /// # Errors
    /// When there is none.
    pub fn of(name: &str, len: usize) -> Result<Self, BadKey> {
        match (name, len) {
            ("rfc4106(gcm(aes))", 20) => Ok(Self::AesGcm128),
            ("rfc4106(gcm(aes))", 28) => Err(BadKey::Aes192),
            ("rfc4106(gcm(aes))", 36) => Ok(Self::AesGcm256),
            ("rfc7539esp(chacha20,poly1305)", 36) => Ok(Self::ChaCha20Poly1305),
            ("rfc4106(gcm(aes))" | "rfc7539esp(chacha20,poly1305)", _) => Err(BadKey::Length(len)),
            _ => Err(BadKey::Algorithm),
        }
    }

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AesGcm128 => "aes-gcm-128",
            Self::AesGcm256 => "aes-gcm-256",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    const fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Self::AesGcm128 => &aead::AES_128_GCM,
            Self::AesGcm256 => &aead::AES_256_GCM,
            Self::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }
}

/// Key material as it is configured: the key and, behind it, the salt.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyMaterial(Zeroizing<Vec<u8>>);

impl KeyMaterial {
    /// Takes the bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Their number.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyMaterial({} bytes, hidden)", self.0.len())
    }
}

/// A key that is ready for use.
pub struct Key {
    key: LessSafeKey,
    salt: [u8; SALT],
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(hidden)")
    }
}

impl Key {
    /// Computes the schedule of a key.
    ///
    /// # Errors
    /// When the length does not fit the suite.
    pub fn new(suite: Suite, material: &KeyMaterial) -> Result<Self, BadKey> {
        let bad = BadKey::Length(material.len());
        let (key, salt) = material.0.split_last_chunk::<SALT>().ok_or(bad)?;
        let key = UnboundKey::new(suite.algorithm(), key).map_err(|_| bad)?;
        Ok(Self { key: LessSafeKey::new(key), salt: *salt })
    }

    fn nonce(&self, iv: [u8; IV]) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..SALT].copy_from_slice(&self.salt);
        nonce[SALT..].copy_from_slice(&iv);
        Nonce::assume_unique_for_key(nonce)
    }

    /// Encrypts `data` in place. Returns its integrity check value. The caller uses no IV twice.
    #[must_use]
    #[inline]
    pub fn seal(&self, iv: [u8; IV], aad: &[u8], data: &mut [u8]) -> Option<[u8; ICV]> {
        let tag = self.key.seal_in_place_separate_tag(self.nonce(iv), Aad::from(aad), data).ok()?;
        tag.as_ref().first_chunk().copied()
    }

    /// Decrypts in place `data`, which ends with its integrity check value. Returns whether that is right; otherwise
    /// the contents of `data` are not specified.
    #[must_use]
    #[inline]
    pub fn open(&self, iv: [u8; IV], aad: &[u8], data: &mut [u8]) -> bool {
        self.key.open_in_place(self.nonce(iv), Aad::from(aad), data).is_ok()
    }
}
