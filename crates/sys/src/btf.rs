//! Where the running kernel has the members of its structures: its own description of its types (BTF).
//!
//! Read once, by [`crate::page_refs`]. The format is that of the kernel's documentation (`Documentation/bpf/btf.rst`):
//! a header, types one after the other, and their names. It is parsed as bytes of unknown origin: what does not hold
//! together is an error.

use std::io;

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_FUNC_PROTO: u32 = 13;
/// Structures without a name lie in each other no deeper than this.
const DEPTH_MAX: u32 = 8;

/// The types of a kernel.
pub struct Btf {
    bytes: Vec<u8>,
    names: usize,
    /// Where each type begins; type 0 has no place.
    types: Vec<usize>,
}

/// A type as it is described.
struct Type {
    name: usize,
    kind: u32,
    members: usize,
    has_bit_sizes: bool,
    /// Its size, or the type that it refers to.
    value: u32,
    /// What follows its first twelve bytes.
    body: usize,
}

fn malformed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the kernel's types are not in the known format",
    )
}

fn missing(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!("this kernel has no {what}"),
    )
}

impl Btf {
    /// Those of the running kernel.
    ///
    /// # Errors
    /// A kernel that does not describe itself, or may not be asked; an unknown format.
    pub fn of_kernel() -> io::Result<Btf> {
        Btf::parse(std::fs::read("/sys/kernel/btf/vmlinux")?)
    }

    fn parse(bytes: Vec<u8>) -> io::Result<Btf> {
        let magic = bytes.get(..2).ok_or_else(malformed)?;
        if magic != MAGIC.to_ne_bytes() {
            return Err(malformed());
        }
        let mut btf = Btf {
            bytes,
            names: 0,
            types: vec![0],
        };
        let header = btf.word(4)? as usize;
        let (first, len) = (btf.word(8)? as usize, btf.word(12)? as usize);
        btf.names = header
            .checked_add(btf.word(16)? as usize)
            .ok_or_else(malformed)?;
        if header < HEADER || btf.names > btf.bytes.len() {
            return Err(malformed());
        }
        let mut at = header.checked_add(first).ok_or_else(malformed)?;
        let end = at.checked_add(len).ok_or_else(malformed)?;
        while at < end {
            btf.types.push(at);
            at = btf.read(at)?.end();
        }
        Ok(btf)
    }

    fn word(&self, at: usize) -> io::Result<u32> {
        let bytes = at.checked_add(4).and_then(|end| self.bytes.get(at..end));
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_ne_bytes).ok_or_else(malformed)
    }

    fn read(&self, at: usize) -> io::Result<Type> {
        let info = self.word(at + 4)?;
        Ok(Type {
            name: self.word(at)? as usize,
            kind: info >> 24 & 0x1f,
            members: (info & 0xffff) as usize,
            has_bit_sizes: info >> 31 == 1,
            value: self.word(at + 8)?,
            body: at + 12,
        })
    }

    fn is_named(&self, name: usize, as_this: &str) -> bool {
        let bytes = self
            .names
            .checked_add(name)
            .and_then(|at| self.bytes.get(at..));
        bytes.is_some_and(|bytes| {
            bytes.get(as_this.len()) == Some(&0) && bytes.starts_with(as_this.as_bytes())
        })
    }

    fn structure(&self, name: &str) -> io::Result<Type> {
        for &at in &self.types[1..] {
            let found = self.read(at)?;
            if found.kind == KIND_STRUCT && found.members > 0 && self.is_named(found.name, name) {
                return Ok(found);
            }
        }
        Err(missing(name))
    }

    /// Bytes from the beginning of a structure to its member of that name, which may be in a structure or union without a name.
    ///
    /// # Errors
    /// There is none.
    pub fn offset(&self, structure: &str, member: &str) -> io::Result<u32> {
        let found = self.member(&self.structure(structure)?, member, DEPTH_MAX)?;
        found.ok_or_else(|| missing(&format!("{structure}.{member}")))
    }

    /// Bytes of a structure.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn size(&self, structure: &str) -> io::Result<u32> {
        Ok(self.structure(structure)?.value)
    }

    /// What a name stands for in an enumeration.
    ///
    /// # Errors
    /// There is none.
    pub fn constant(&self, enumeration: &str, name: &str) -> io::Result<u32> {
        for &at in &self.types[1..] {
            let found = self.read(at)?;
            if found.kind != KIND_ENUM || !self.is_named(found.name, enumeration) {
                continue;
            }
            for item in 0..found.members {
                let at = found.body + item * 8;
                if self.is_named(self.word(at)? as usize, name) {
                    return self.word(at + 4);
                }
            }
        }
        Err(missing(name))
    }

    fn member(&self, of: &Type, name: &str, depth: u32) -> io::Result<Option<u32>> {
        for member in 0..of.members {
            let at = of.body + member * 12;
            let bits = self.word(at + 8)?;
            let bits = if of.has_bit_sizes {
                bits & 0xff_ffff
            } else {
                bits
            };
            let its_name = self.word(at)? as usize;
            if self.is_named(its_name, name) {
                return Ok(Some(bits / 8));
            }
            if !self.is_named(its_name, "") || depth == 0 {
                continue;
            }
            let inner = self.unqualified(self.word(at + 4)?)?;
            if matches!(inner.kind, KIND_STRUCT | KIND_UNION) {
                if let Some(offset) = self.member(&inner, name, depth - 1)? {
                    return Ok(Some(bits / 8 + offset));
                }
            }
        }
        Ok(None)
    }

    /// A type without const and volatile.
    fn unqualified(&self, mut id: u32) -> io::Result<Type> {
        for _ in 0..=DEPTH_MAX {
            let at = self.types.get(id as usize).ok_or_else(malformed)?;
            let found = self.read(*at)?;
            if !matches!(found.kind, KIND_CONST | KIND_VOLATILE) {
                return Ok(found);
            }
            id = found.value;
        }
        Err(malformed())
    }
}

impl Type {
    fn end(&self) -> usize {
        let body = match self.kind {
            // Integers, variables, tags of declarations.
            1 | 14 | 17 => 4,
            KIND_ARRAY => 12,
            // Also sections of data, and enumerations of 64 bits.
            KIND_STRUCT | KIND_UNION | 15 | 19 => 12 * self.members,
            KIND_ENUM | KIND_FUNC_PROTO => 8 * self.members,
            _ => 0,
        };
        self.body + body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A structure `outer` of 16 bytes: `first`, and without a name, const, from byte 8 on, a union of `second` and `third`;
    /// and an enumeration `flags` in which `last` is 5.
    fn made() -> Vec<u8> {
        let names = b"\0outer\0first\0second\0third\0flags\0last\0";
        let name = |of: &str| {
            let with_end = [of.as_bytes(), b"\0"].concat();
            let at = names.windows(with_end.len()).position(|w| w == with_end);
            at.unwrap() as u32
        };
        let words = [
            // 1: an integer
            [0, 1 << 24, 8, 64].to_vec(),
            // 2: the union
            vec![
                0,
                KIND_UNION << 24 | 2,
                8,
                name("second"),
                1,
                0,
                name("third"),
                1,
                0,
            ],
            // 3: const
            vec![0, KIND_CONST << 24, 2],
            // 4: the structure
            vec![
                name("outer"),
                KIND_STRUCT << 24 | 2,
                16,
                name("first"),
                1,
                0,
                0,
                3,
                64,
            ],
            // 5: the enumeration
            vec![name("flags"), KIND_ENUM << 24 | 1, 4, name("last"), 5],
        ]
        .concat();
        let types = words.len() as u32 * 4;
        let header = [HEADER as u32, 0, types, types, names.len() as u32];
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        let all = header
            .iter()
            .chain(&words)
            .flat_map(|word| word.to_ne_bytes());
        bytes.extend(all);
        bytes.extend(names);
        bytes
    }

    #[test]
    fn members_are_found_by_name_also_in_what_has_none() {
        let btf = Btf::parse(made()).unwrap();
        assert_eq!(btf.offset("outer", "first").unwrap(), 0);
        assert_eq!(btf.offset("outer", "third").unwrap(), 8);
        assert_eq!(btf.size("outer").unwrap(), 16);
        assert_eq!(btf.constant("flags", "last").unwrap(), 5);
        assert!(btf.offset("outer", "fourth").is_err());
        assert!(btf.offset("oute", "first").is_err());
        assert!(btf.constant("flags", "las").is_err());
    }

    #[test]
    fn what_is_cut_short_or_changed_is_an_error_or_found_out_later_and_never_a_panic() {
        let whole = made();
        for len in 0..whole.len() {
            let _ = Btf::parse(whole[..len].to_vec()).map(|btf| btf.offset("outer", "third"));
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                if let Ok(btf) = Btf::parse(bytes) {
                    let _ = btf.offset("outer", "third");
                    let _ = btf.constant("flags", "last");
                }
            }
        }
    }

    #[test]
    fn the_running_kernel_describes_its_pages() {
        let Ok(btf) = Btf::of_kernel() else {
            return pleat_testing::skip("the kernel does not describe its types");
        };
        assert!(btf.offset("page", "_refcount").unwrap() < btf.size("page").unwrap());
        assert!(btf.offset("page", "_mapcount").unwrap() < btf.size("page").unwrap());
        assert!(btf.constant("pageflags", "PG_head").unwrap() < 64);
    }
}
