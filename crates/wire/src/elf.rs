//! For which kind of machine a program is, which both sides ask before they have the agent loaded into it.

/// Bytes at the beginning of a file by which it is known.
pub const HEAD: usize = 20;

/// The class (1: 32-bit, 2: 64-bit) and machine of a program, by the first bytes of its file; `None` if that is no ELF
/// file.
pub fn kind(head: &[u8; HEAD]) -> Option<(u8, u16)> {
    let is_elf = head.starts_with(b"\x7fELF");
    is_elf.then_some((head[4], u16::from_le_bytes([head[18], head[19]])))
}
