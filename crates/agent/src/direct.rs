//! `syscall`, which pleat stands in front of: a program that makes a call of `interpose` or `locks` by its number means the same,
//! and `exits` is told of what it has to know.
//!
//! Everything else goes to the kernel as it would, by the shortest way: Rust programs wait for locks by it.

use crate::{exits, interpose, locks};
use core::arch::naked_asm;

/// As the C library's.
///
/// # Safety
/// As for the C library's.
#[no_mangle]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() {
    naked_asm!(
        "cmp rdi, {madvise}",
        "je 2f",
        "cmp rdi, {mlockall}",
        "je 3f",
        "cmp rdi, {clone}",
        "je 6f",
        "cmp rdi, {exit}",
        "je 6f",
        "cmp rdi, {clone3}",
        "je 6f",
        "cmp rdi, {set_tid_address}",
        "je 6f",
        "cmp rdi, {set_robust_list}",
        "je 6f",
        "cmp rdi, {prctl}",
        "je 6f",
        "cmp rdi, {seccomp}",
        "je 6f",
        "7:",
        // The kernel takes the fourth argument in another register than functions do.
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 4f",
        "ret",
        "2:",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "sub rsp, 8",
        "call {madvise_here}",
        "jmp 5f",
        "3:",
        "mov rdi, rsi",
        "sub rsp, 8",
        "call {mlockall_here}",
        "jmp 5f",
        "4:",
        "neg eax",
        "mov edi, eax",
        "sub rsp, 8",
        "call {fail}",
        // An int becomes the long that the caller gets.
        "5:",
        "add rsp, 8",
        "cdqe",
        "ret",
        // All but the sixth argument, which none of these has, in order from the top of the stack on.
        "6:",
        "push rdi",
        "push r9",
        "push r8",
        "push rcx",
        "push rdx",
        "push rsi",
        "mov rsi, rsp",
        "sub rsp, 8",
        "call {note_call}",
        "add rsp, 8",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop r8",
        "pop r9",
        "pop rdi",
        "jmp 7b",
        madvise = const libc::SYS_madvise,
        mlockall = const libc::SYS_mlockall,
        clone = const libc::SYS_clone,
        exit = const libc::SYS_exit,
        clone3 = const libc::SYS_clone3,
        set_tid_address = const libc::SYS_set_tid_address,
        set_robust_list = const libc::SYS_set_robust_list,
        prctl = const libc::SYS_prctl,
        seccomp = const libc::SYS_seccomp,
        note_call = sym exits::note_call,
        madvise_here = sym interpose::madvise,
        mlockall_here = sym locks::mlockall,
        fail = sym interpose::fail,
    )
}
