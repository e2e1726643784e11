//! memcpy and its kin, for which compilers write calls wherever bytes are copied, filled or compared.
//!
//! They are this library's own and nobody else sees them (`.hidden`): the program may have such functions itself, and
//! those may touch memory that is away, count calls, or check addresses. Pages are copied eight bytes at a time, which
//! every CPU does fast; the rest is short.

use core::arch::global_asm;

/// Defines them, each name with `$prefix` in front.
macro_rules! functions {
    ($prefix:literal) => {
        global_asm!(
            concat!(".macro pleat_begin name\n.section .text.pleat_\\name,\"ax\",@progbits\n"),
            concat!(".globl ", $prefix, "\\name\n.hidden ", $prefix, "\\name\n"),
            concat!(
                ".type ",
                $prefix,
                "\\name,@function\n",
                $prefix,
                "\\name:\n"
            ),
            ".endm",
            concat!(
                ".macro pleat_end name\n.size ",
                $prefix,
                "\\name, . - ",
                $prefix,
                "\\name\n.endm"
            ),
            // memcpy(to: rdi, from: rsi, len: rdx)
            "pleat_begin memcpy",
            "mov rax, rdi",
            "mov rcx, rdx",
            "shr rcx, 3",
            "rep movsq",
            "mov ecx, edx",
            "and ecx, 7",
            "rep movsb",
            "ret",
            "pleat_end memcpy",
            // memmove(to: rdi, from: rsi, len: rdx): backwards where the target begins within the source.
            "pleat_begin memmove",
            "mov rax, rdi",
            "mov rcx, rdx",
            "mov r8, rdi",
            "sub r8, rsi",
            "cmp r8, rdx",
            "jb 2f",
            "rep movsb",
            "ret",
            "2:",
            "lea rdi, [rdi + rdx - 1]",
            "lea rsi, [rsi + rdx - 1]",
            "std",
            "rep movsb",
            "cld",
            "ret",
            "pleat_end memmove",
            // memset(to: rdi, byte: esi, len: rdx)
            "pleat_begin memset",
            "mov r8, rdi",
            "movzx eax, sil",
            "mov rcx, 0x0101010101010101",
            "imul rax, rcx",
            "mov rcx, rdx",
            "shr rcx, 3",
            "rep stosq",
            "mov ecx, edx",
            "and ecx, 7",
            "rep stosb",
            "mov rax, r8",
            "ret",
            "pleat_end memset",
            // memcmp(one: rdi, other: rsi, len: rdx): the difference of the first two bytes that differ.
            "pleat_begin memcmp",
            "xor ecx, ecx",
            "2:",
            "cmp rcx, rdx",
            "jae 3f",
            "movzx eax, byte ptr [rdi + rcx]",
            "movzx r8d, byte ptr [rsi + rcx]",
            "inc rcx",
            "sub eax, r8d",
            "je 2b",
            "ret",
            "3:",
            "xor eax, eax",
            "ret",
            "pleat_end memcmp",
            // bcmp: as memcmp.
            "pleat_begin bcmp",
            concat!("jmp ", $prefix, "memcmp"),
            "pleat_end bcmp",
            // strlen(text: rdi)
            "pleat_begin strlen",
            "xor eax, eax",
            "2:",
            "cmp byte ptr [rdi + rax], 0",
            "je 3f",
            "inc rax",
            "jmp 2b",
            "3:",
            "ret",
            "pleat_end strlen",
            ".purgem pleat_begin",
            ".purgem pleat_end",
            ".text",
        );
    };
}

#[cfg(not(test))]
functions!("");
#[cfg(test)]
functions!("tested_");

#[cfg(test)]
mod tests {
    use core::ffi::{c_char, c_int, c_void};

    extern "C" {
        fn tested_memcpy(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void;
        fn tested_memmove(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void;
        fn tested_memset(to: *mut c_void, byte: c_int, len: usize) -> *mut c_void;
        fn tested_memcmp(one: *const c_void, other: *const c_void, len: usize) -> c_int;
        fn tested_bcmp(one: *const c_void, other: *const c_void, len: usize) -> c_int;
        fn tested_strlen(text: *const c_char) -> usize;
    }

    const LENGTHS: [usize; 9] = [0, 1, 7, 8, 9, 63, 64, 65, 200];

    fn numbered() -> Vec<u8> {
        (0..=255).collect()
    }

    #[test]
    fn copies_are_what_was_copied_and_nothing_beside_them_changes() {
        for len in LENGTHS {
            for (from, to) in [(0, 0), (3, 5), (8, 1)] {
                let source = numbered();
                let mut target = vec![0xee; 256];
                // SAFETY: both are longer than that.
                let answer = unsafe {
                    tested_memcpy(
                        target[to..].as_mut_ptr().cast(),
                        source[from..].as_ptr().cast(),
                        len,
                    )
                };
                assert_eq!(answer, target[to..].as_mut_ptr().cast());
                assert_eq!(target[to..to + len], source[from..from + len]);
                assert!(target[..to].iter().all(|byte| *byte == 0xee));
                assert!(target[to + len..].iter().all(|byte| *byte == 0xee));
            }
        }
    }

    #[test]
    fn bytes_move_over_themselves_in_both_directions() {
        for len in LENGTHS {
            for (from, to) in [(0, 0), (0, 1), (1, 0), (0, 40), (40, 0), (10, 17)] {
                let mut expected = numbered();
                expected.copy_within(from..from + len, to);
                let mut bytes = numbered();
                let start: *mut u8 = bytes.as_mut_ptr();
                // SAFETY: both ends are within the bytes.
                unsafe {
                    tested_memmove(start.add(to).cast(), start.add(from).cast(), len);
                }
                assert_eq!(bytes, expected, "{len} bytes from {from} to {to}");
            }
        }
    }

    #[test]
    fn bytes_are_filled_to_the_last_and_no_further() {
        for len in LENGTHS {
            let mut bytes = vec![1u8; 256];
            // SAFETY: within the bytes; of the number only the lowest byte counts.
            unsafe { tested_memset(bytes[3..].as_mut_ptr().cast(), 0x1ab, len) };
            assert!(bytes[3..3 + len].iter().all(|byte| *byte == 0xab));
            assert!(bytes[..3]
                .iter()
                .chain(&bytes[3 + len..])
                .all(|byte| *byte == 1));
        }
    }

    #[test]
    fn bytes_are_compared_as_unsigned_numbers() {
        let compare = |one: &[u8], other: &[u8]| {
            let (one, other, len) = (one.as_ptr().cast(), other.as_ptr().cast(), one.len());
            // SAFETY: both have that length.
            unsafe {
                [
                    tested_memcmp(one, other, len).signum(),
                    tested_bcmp(one, other, len).signum(),
                ]
            }
        };
        assert_eq!(compare(b"", b""), [0, 0]);
        assert_eq!(compare(b"same", b"same"), [0, 0]);
        assert_eq!(compare(b"a\x80z", b"a\x01z"), [1, 1]);
        assert_eq!(compare(b"a\x01z", b"a\x80a"), [-1, -1]);
    }

    #[test]
    fn a_text_ends_at_its_zero() {
        for text in [c"", c"a", c"forty-two"] {
            // SAFETY: a C string.
            assert_eq!(unsafe { tested_strlen(text.as_ptr()) }, text.count_bytes());
        }
    }
}
