//! One word that holds the positions of several streams.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Epoch, MessageId, Sequence, Timestamp};
use crate::stream::StreamName;

/// A position in each of several streams, as one short text that goes through a URL and a header.
///
/// `f`, then base64url (no padding) of: the version, 1; then for each stream the first 8 bytes of the SHA-256 of its
/// name and four varints (LEB128): epoch, sequence, id + 1, time + 1, where 0 stands for what is not known. The time is
/// in microseconds since 1970. It never looks like an integer. Streams are known by those 8 bytes, not by name.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Token(BTreeMap<[u8; 8], Cursor>);

const VERSION: u8 = 1;

impl Token {
    /// The longest text that is read, in bytes; it holds a thousand streams.
    pub const MAX_TEXT: usize = 64 * 1024;

    /// A token without a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the position in `stream`.
    pub fn set(&mut self, stream: &StreamName, cursor: Cursor) {
        self.0.insert(stream.short_hash(), cursor);
    }

    /// The position in `stream`, where the token has one.
    pub fn get(&self, stream: &StreamName) -> Option<Cursor> {
        self.0.get(&stream.short_hash()).copied()
    }

    /// Forgets `stream`.
    pub fn remove(&mut self, stream: &StreamName) {
        self.0.remove(&stream.short_hash());
    }

    /// How many streams it holds.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(1 + self.0.len() * 28);
        bytes.push(VERSION);
        for (hash, cursor) in &self.0 {
            bytes.extend_from_slice(hash);
            put(&mut bytes, cursor.epoch.map_or(0, |e| e.0));
            put(&mut bytes, cursor.sequence.0);
            put(&mut bytes, cursor.id.map_or(0, |i| i.0.wrapping_add(1)));
            put(&mut bytes, cursor.created_at.map_or(0, |t| t.0.wrapping_add(1)));
        }
        write!(f, "f{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({self})")
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let malformed = |what: &str| Error::new(ErrorKind::InvalidCursor, "token", what.to_owned());
        if text.len() > Self::MAX_TEXT {
            return Err(malformed("longer than 64 KiB"));
        }
        let encoded = text.strip_prefix('f').ok_or_else(|| malformed("does not begin with 'f'"))?;
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|e| malformed("not base64url").with_source(e))?;
        let (&version, mut rest) = bytes.split_first().ok_or_else(|| malformed("empty"))?;
        if version != VERSION {
            return Err(malformed(&format!("version {version}, only {VERSION} is known")));
        }
        let mut streams = BTreeMap::new();
        while !rest.is_empty() {
            let cut = || malformed("cut short");
            let (hash, tail) = rest.split_first_chunk::<8>().ok_or_else(cut)?;
            rest = tail;
            let mut number = || take(&mut rest).ok_or_else(cut);
            let (epoch, sequence, id, at) = (number()?, number()?, number()?, number()?);
            let cursor = Cursor {
                epoch: (epoch != 0).then_some(Epoch(epoch)),
                sequence: Sequence(sequence),
                id: (id != 0).then(|| MessageId(id.wrapping_sub(1))),
                created_at: (at != 0).then(|| Timestamp(at.wrapping_sub(1))),
            };
            cursor.check("token")?;
            if streams.insert(*hash, cursor).is_some() {
                return Err(malformed("a stream twice"));
            }
        }
        Ok(Self(streams))
    }
}

impl TryFrom<String> for Token {
    type Error = Error;
    fn try_from(s: String) -> Result<Self> {
        s.parse()
    }
}

impl From<Token> for String {
    fn from(t: Token) -> String {
        t.to_string()
    }
}

/// Writes a number as LEB128.
fn put(out: &mut Vec<u8>, number: i64) {
    let mut rest = number.cast_unsigned();
    loop {
        let low = (rest & 0x7f) as u8;
        rest >>= 7;
        if rest == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

/// Reads a number as LEB128; `None` where it is cut short or does not fit 64 bits.
fn take(bytes: &mut &[u8]) -> Option<i64> {
    let mut number = 0_u64;
    for place in 0..10 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let low = u64::from(byte & 0x7f);
        if place == 9 && low > 1 {
            return None;
        }
        number |= low << (7 * place);
        if byte & 0x80 == 0 {
            return Some(number.cast_signed());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(s: &str) -> StreamName {
        StreamName::new(s).unwrap()
    }

    #[test]
    fn the_form_is_fixed() {
        let mut token = Token::new();
        token.set(
            &name("dashboard"),
            Cursor {
                epoch: Some(Epoch(1)),
                sequence: Sequence(300),
                id: Some(MessageId(6)),
                created_at: Some(Timestamp(0)),
            },
        );
        // 01 | SHA-256("dashboard")[..8] | 01 | ac 02 | 07 | 01
        let bytes = URL_SAFE_NO_PAD.decode(&token.to_string()[1..]).unwrap();
        assert_eq!(hex::encode(&bytes[..1]), "01");
        assert_eq!(hex::encode(&bytes[9..]), "01ac020701");
        assert!(token.to_string().starts_with('f'));
    }

    #[test]
    fn sixty_four_streams_stay_under_four_kilobytes() {
        let mut token = Token::new();
        for n in 0..64 {
            let cursor = Cursor {
                epoch: Some(Epoch(1 << 40)),
                sequence: Sequence(1 << 40),
                id: Some(MessageId(1 << 45)),
                created_at: Some(Timestamp(1_764_547_200_123_456)),
            };
            token.set(&name(&format!("stream-{n}")), cursor);
        }
        assert!(token.to_string().len() < 4096, "{}", token.to_string().len());
    }

    #[test]
    fn what_is_no_token_is_a_typed_error() {
        for bad in ["", "7", "f", "fAg", "f!!!", "fAQID", "gAQ"] {
            assert_eq!(bad.parse::<Token>().unwrap_err().kind(), ErrorKind::InvalidCursor, "{bad:?}");
        }
        assert!("fAQ".parse::<Token>().unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn text_goes_both_ways(cursors in proptest::collection::vec(
            (proptest::option::of(1..i64::MAX), 0..i64::MAX, proptest::option::of(1..i64::MAX), proptest::option::of(0..i64::MAX)), 0..20)) {
            let mut token = Token::new();
            for (n, (epoch, sequence, id, at)) in cursors.into_iter().enumerate() {
                token.set(&name(&n.to_string()), Cursor {
                    epoch: epoch.map(Epoch), sequence: Sequence(sequence), id: id.map(MessageId), created_at: at.map(Timestamp) });
            }
            prop_assert_eq!(token.to_string().parse::<Token>().unwrap(), token);
        }

        #[test]
        fn garbage_never_panics(text in "\\PC{0,200}") {
            let _ = text.parse::<Token>();
            let _ = text.parse::<Cursor>();
            let _ = format!("f{}", URL_SAFE_NO_PAD.encode(&text)).parse::<Token>();
        }
    }
}
