//! What stands in front of the C library's own system calls: a stub for each, reached by a jump from the place
//! where the call was (see `patch`).
//!
//! A stub is to the code around it what the two instructions were that it stands for: it changes rax, rcx, r11 and the flags,
//! and nothing else. So it saves what the functions of ours may change, steps over the 128 bytes below the
//! stack pointer that the code may use (the red zone), and gives the functions an aligned stack. It uses some 500 bytes of that.
//!
//! The functions run anywhere that the C library makes these calls: within malloc, with its locks held; in a signal
//! handler; in a child of vfork, whose memory is its parent's; in a child of fork that has no agent yet. So they use no
//! lock, no errno, no malloc, and nothing of the C library.

use crate::{exec, growth, guards};
use core::arch::naked_asm;
use core::ffi::CStr;
use core::sync::atomic::AtomicUsize;

/// What the caller had in the registers of a system call. In the order in which they are saved, the last first.
#[repr(C)]
pub struct Registers {
    /// The sixth argument.
    pub r9: usize,
    /// The fifth.
    pub r8: usize,
    /// The fourth.
    pub r10: usize,
    /// The third.
    pub rdx: usize,
    /// The second.
    pub rsi: usize,
    /// The first.
    pub rdi: usize,
    /// The kernel's answer, where the call has been made.
    pub rax: usize,
}

/// A stub, and what it is for.
pub struct Stub {
    /// The function of the C library.
    pub function: &'static CStr,
    /// The number of its system call.
    pub number: u32,
    /// Where its code goes on behind that.
    pub back: &'static AtomicUsize,
    /// The stub itself.
    pub entry: unsafe extern "C" fn(),
}

/// Calls by which the C library gets memory.
pub static GROWTH: [Stub; 2] = [
    Stub {
        function: c"brk",
        number: libc::SYS_brk as u32,
        back: &BRK_BACK,
        entry: brk,
    },
    Stub {
        function: c"mmap",
        number: libc::SYS_mmap as u32,
        back: &MMAP_BACK,
        entry: mmap,
    },
];

/// By which it puts guards at the ends of stacks.
pub static ADVICE: Stub = Stub {
    function: c"madvise",
    number: libc::SYS_madvise as u32,
    back: &MADVISE_BACK,
    entry: madvise,
};

/// Calls by which it executes another program. All others of that family come to these.
pub static EXEC: [Stub; 3] = [
    Stub {
        function: c"execve",
        number: libc::SYS_execve as u32,
        back: &EXECVE_BACK,
        entry: execve,
    },
    Stub {
        function: c"execveat",
        number: libc::SYS_execveat as u32,
        back: &EXECVEAT_BACK,
        entry: execveat,
    },
    Stub {
        function: c"fexecve",
        number: libc::SYS_execveat as u32,
        back: &FEXECVE_BACK,
        entry: fexecve,
    },
];

/// A stub: `$first` is what it does before its function is called, whose answer is what the caller gets.
macro_rules! stub {
    ($name:ident, $back:ident, $function:path, [$($first:literal),*], $number:expr) => {
        static $back: AtomicUsize = AtomicUsize::new(0);

        /// # Safety
        /// Reached only by the jump that `patch` has put in place of the two instructions.
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                $($first,)*
                "lea rsp, [rsp - 128]",
                "push rax",
                "push rdi",
                "push rsi",
                "push rdx",
                "push r10",
                "push r8",
                "push r9",
                "push rbp",
                "mov rbp, rsp",
                "sub rsp, 256",
                "and rsp, -16",
                "movaps [rsp], xmm0",
                "movaps [rsp + 16], xmm1",
                "movaps [rsp + 32], xmm2",
                "movaps [rsp + 48], xmm3",
                "movaps [rsp + 64], xmm4",
                "movaps [rsp + 80], xmm5",
                "movaps [rsp + 96], xmm6",
                "movaps [rsp + 112], xmm7",
                "movaps [rsp + 128], xmm8",
                "movaps [rsp + 144], xmm9",
                "movaps [rsp + 160], xmm10",
                "movaps [rsp + 176], xmm11",
                "movaps [rsp + 192], xmm12",
                "movaps [rsp + 208], xmm13",
                "movaps [rsp + 224], xmm14",
                "movaps [rsp + 240], xmm15",
                "lea rdi, [rbp + 8]",
                "cld",
                "call {function}",
                "movaps xmm0, [rsp]",
                "movaps xmm1, [rsp + 16]",
                "movaps xmm2, [rsp + 32]",
                "movaps xmm3, [rsp + 48]",
                "movaps xmm4, [rsp + 64]",
                "movaps xmm5, [rsp + 80]",
                "movaps xmm6, [rsp + 96]",
                "movaps xmm7, [rsp + 112]",
                "movaps xmm8, [rsp + 128]",
                "movaps xmm9, [rsp + 144]",
                "movaps xmm10, [rsp + 160]",
                "movaps xmm11, [rsp + 176]",
                "movaps xmm12, [rsp + 192]",
                "movaps xmm13, [rsp + 208]",
                "movaps xmm14, [rsp + 224]",
                "movaps xmm15, [rsp + 240]",
                "mov rsp, rbp",
                "pop rbp",
                "pop r9",
                "pop r8",
                "pop r10",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                // What the caller gets is in rax.
                "lea rsp, [rsp + 8 + 128]",
                "jmp qword ptr [rip + {back}]",
                function = sym $function,
                back = sym $back,
                number = const $number,
            )
        }
    };
}

/// A call that is made before the function hears of it.
macro_rules! after {
    ($name:ident, $back:ident, $function:path, $number:expr) => {
        stub!(
            $name,
            $back,
            $function,
            ["mov eax, {number}", "syscall"],
            $number
        );
    };
}

/// A call that the function makes itself.
macro_rules! instead {
    ($name:ident, $back:ident, $function:path) => {
        stub!($name, $back, $function, ["mov eax, {number}"], 0);
    };
}

after!(brk, BRK_BACK, growth::after_brk, libc::SYS_brk);
after!(mmap, MMAP_BACK, growth::after_mmap, libc::SYS_mmap);
instead!(madvise, MADVISE_BACK, guards::madvise);
instead!(execve, EXECVE_BACK, exec::execve);
instead!(execveat, EXECVEAT_BACK, exec::execveat);
instead!(fexecve, FEXECVE_BACK, exec::execveat);
