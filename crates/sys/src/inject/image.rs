//! The agent's library as bytes that can be put anywhere into another process.

use object::elf::{FileHeader64, PF_W, PF_X, PT_LOAD};
use object::elf::{R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_X86_64_RELATIVE};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{
    Endianness, Object, ObjectSymbol, ObjectSymbolTable, RelocationFlags, RelocationTarget,
};
use pleat_wire::injected::{GIVEN_SYMBOL, START_SYMBOL};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const PAGE: u64 = 4096;

/// A library, read and understood.
#[derive(Debug)]
pub struct Image {
    /// What has content, from its first address on.
    bytes: Vec<u8>,
    /// Bytes of memory that it takes: whole pages.
    span: u64,
    /// Where addresses are to be put that depend on where it lies: offset, and the address without that.
    places: Vec<(u64, u64)>,
    /// Pages of code, as start and end.
    code: (u64, u64),
    /// Where these begin in the file.
    code_offset: u64,
    start: u64,
    given: u64,
    /// Device and inode.
    identity: (u64, u64),
}

fn unfit(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl Image {
    /// Reads a library.
    ///
    /// # Errors
    /// It cannot be read, is no ELF library for this machine, or needs what only a loader can do.
    pub fn read(path: &Path) -> io::Result<Image> {
        let mut image = Image::of(&std::fs::read(path)?)?;
        let file = std::fs::metadata(path)?;
        image.identity = (file.dev(), file.ino());
        Ok(image)
    }

    fn of(file: &[u8]) -> io::Result<Image> {
        let bad = |_| unfit("no ELF library");
        let elf = ElfFile64::<Endianness>::parse(file).map_err(bad)?;
        let (endian, header) = (elf.endian(), elf.elf_header());
        if header.e_machine(endian) != object::elf::EM_X86_64 {
            return Err(unfit("a library for another machine"));
        }
        let mut image = load(header, endian, file)?;
        let symbol = |name: &str| {
            let mut symbols = elf.dynamic_symbols();
            let found = symbols.find(|symbol| symbol.name() == Ok(name));
            found
                .map(|symbol| symbol.address())
                .ok_or_else(|| unfit(name))
        };
        image.start = symbol(START_SYMBOL)?;
        image.given = symbol(GIVEN_SYMBOL)?;
        let table = elf
            .dynamic_symbol_table()
            .ok_or_else(|| unfit("no symbols"))?;
        for (offset, relocation) in elf.dynamic_relocations().into_iter().flatten() {
            let RelocationFlags::Elf { r_type } = relocation.flags() else {
                return Err(unfit("a relocation of another kind"));
            };
            let addend = relocation.addend() as u64;
            let address = match (r_type, relocation.target()) {
                (R_X86_64_RELATIVE, _) => addend,
                (
                    R_X86_64_64 | R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT,
                    RelocationTarget::Symbol(index),
                ) => {
                    let symbol = table.symbol_by_index(index).map_err(bad)?;
                    match symbol.address() {
                        // Of others, and not needed: null.
                        0 if symbol.is_undefined() && symbol.is_weak() => continue,
                        0 => return Err(unfit("a symbol of another library")),
                        address => address + addend,
                    }
                }
                _ => return Err(unfit("a relocation of another kind")),
            };
            image.places.push((offset, address));
        }
        let fits =
            |len: u64, place: u64| place.checked_add(len).is_some_and(|end| end <= image.span);
        let given_len = size_of::<pleat_wire::injected::Injected>() as u64;
        let is_fit = image.places.iter().all(|(offset, _)| fits(8, *offset))
            && fits(given_len, image.given)
            && (image.code.0..image.code.1).contains(&image.start);
        is_fit
            .then_some(image)
            .ok_or_else(|| unfit("addresses outside of the library"))
    }

    /// The file's device and inode.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Bytes of memory that it takes.
    pub fn span(&self) -> u64 {
        self.span
    }

    /// Pages of code, as start and end, where it lies at `base`.
    pub fn code_at(&self, base: u64) -> (u64, u64) {
        (base + self.code.0, base + self.code.1)
    }

    /// Where the pages of code lie from the library's first address on, and in its file.
    pub fn code_in_file(&self) -> (u64, u64) {
        (self.code.0, self.code_offset)
    }

    /// The address of the code by which its thread is started.
    pub fn start_at(&self, base: u64) -> u64 {
        base + self.start
    }

    /// The bytes to write to `base` on, which are fewer than [`Image::span`]: the rest is zeros.
    pub fn bytes_at(&self, base: u64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let mut put = |offset: u64, content: &[u8]| {
            let (start, end) = (offset as usize, offset as usize + content.len());
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[start..end].copy_from_slice(content);
        };
        for (offset, address) in &self.places {
            put(*offset, &(base + address).to_ne_bytes());
        }
        bytes
    }

    /// Where what it is given is to be written.
    pub fn given_at(&self, base: u64) -> u64 {
        base + self.given
    }
}

/// The segments as the kernel would map them.
fn load(header: &FileHeader64<Endianness>, endian: Endianness, file: &[u8]) -> io::Result<Image> {
    let bad = |_| unfit("no ELF library");
    let mut image = Image {
        bytes: Vec::new(),
        span: 0,
        places: Vec::new(),
        code: (0, 0),
        code_offset: 0,
        start: 0,
        given: 0,
        identity: (0, 0),
    };
    for segment in header.program_headers(endian, file).map_err(bad)? {
        if segment.p_type(endian) != PT_LOAD {
            continue;
        }
        let content = segment
            .data(endian, file)
            .map_err(|()| unfit("a cut library"))?;
        let start = segment.p_vaddr(endian);
        let end = start.checked_add(segment.p_memsz(endian));
        let end = end
            .filter(|end| *end < 1 << 30)
            .ok_or_else(|| unfit("a huge library"))?;
        image.span = image.span.max(end.next_multiple_of(PAGE));
        let at = start as usize;
        if image.bytes.len() < at + content.len() {
            image.bytes.resize(at + content.len(), 0);
        }
        image.bytes[at..at + content.len()].copy_from_slice(content);
        if segment.p_flags(endian) & PF_X != 0 {
            if image.code.1 != 0 || segment.p_flags(endian) & PF_W != 0 {
                return Err(unfit("code in several places"));
            }
            image.code = (start / PAGE * PAGE, end.next_multiple_of(PAGE));
            image.code_offset = segment.p_offset(endian) / PAGE * PAGE;
        }
    }
    Ok(image)
}
