//! Numbers in bytes: a cursor that answers short or overlong data with an error, and the writing
//! side of the same encodings.

use super::{Flaw, Malformed};

/// A place in the bytes of a file. `bytes` may end before the file does; `at` counts from the
/// file's beginning all the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        match self.bytes.get(self.at) {
            Some(&byte) => {
                self.at += 1;
                Ok(byte)
            }
            None => Err(Flaw::CutShort.at(self.at)),
        }
    }

    /// The next `length` bytes.
    pub(crate) fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let left = &self.bytes[self.at.min(self.bytes.len())..];
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        match left.get(..length) {
            Some(taken) => {
                self.at += length;
                Ok(taken)
            }
            None => Err(Flaw::CutShort.at(self.bytes.len())),
        }
    }

    #[inline]
    pub(crate) fn varint(&mut self, what: &'static str) -> Result<u64, Malformed> {
        let first = self.byte()?;
        match first < 0x80 {
            true => Ok(u64::from(first)),
            false => self.long_varint(first, what),
        }
    }

    fn long_varint(&mut self, first: u8, what: &'static str) -> Result<u64, Malformed> {
        let start = self.at - 1;
        let mut value = u64::from(first & 0x7F);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            // Of the tenth byte one bit is left.
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Flaw::OutOfRange(what).at(start))
    }

    /// A varint that is at most `most`.
    pub(crate) fn up_to(&mut self, most: u64, what: &'static str) -> Result<u64, Malformed> {
        let start = self.at;
        match self.varint(what)? {
            value if value <= most => Ok(value),
            _ => Err(Flaw::OutOfRange(what).at(start)),
        }
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// 0, -1, 1, -2... as 0, 1, 2, 3...
#[inline]
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[inline]
pub(crate) fn unzigzag(code: u64) -> i64 {
    (code >> 1) as i64 ^ -((code & 1) as i64)
}

/// FNV-1a with 64 bits: short to specify, and finds any single damaged byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fnv(pub(crate) u64);

impl Fnv {
    pub(crate) fn new() -> Self {
        Fnv(0xCBF2_9CE4_8422_2325)
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<u64, Malformed> {
        Cursor { bytes, at: 0 }.varint("number")
    }

    #[test]
    fn numbers_come_back_and_overlong_ones_are_refused() {
        for value in [0, 1, 127, 128, 300, 1 << 35, u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(read(&bytes), Ok(value));
            assert_eq!(
                read(&bytes[..bytes.len() - 1]),
                Err(Flaw::CutShort.at(bytes.len() - 1))
            );
        }
        let too_large = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02];
        assert_eq!(read(&too_large), Err(Flaw::OutOfRange("number").at(0)));
        assert_eq!(read(&[0x80; 100]), Err(Flaw::OutOfRange("number").at(0)));
    }

    #[test]
    fn differences_of_both_signs_come_back() {
        for value in [0, -1, 1, -2, 1 << 52, -(1 << 52), i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!([0, -1, 1, -2, 2].map(zigzag), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        let mut hash = Fnv::new();
        hash.add(b"foobar");
        assert_eq!(hash.0, 0x8594_4171_F739_67E8);
    }
}
