//! Who holds the pages that lie in a pipe: how often each is referred to, and how often it is mapped.
//!
//! The kernel writes into pinned pages past all page tables (direct reads, io_uring's buffers, `process_vm_writev`), and tells
//! ordinary system calls of none. What is asked here is its own count, by a BPF program of type SYSCALL: a few loads from
//! the caller's descriptor table to the pipe, its buffers, and their pages. It changes nothing, and reads nothing but a
//! pipe of this module's caller ([`Pipe`]), for what is found at a pipe's place in another open file would be anything.
//!
//! Takes CAP_BPF and CAP_PERFMON, and a kernel that describes its types ([`crate::btf`]).

use crate::btf::Btf;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Most pages asked of at once: the program is as long as that.
pub const PAGES_MAX: usize = 64;

/// What the kernel says of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageUse {
    /// Everything that keeps it: the file it is of, page tables, pipes, who has pinned it, lists of a CPU.
    pub references: u32,
    /// Page tables that have it.
    pub mappings: u32,
    /// It is a part of a larger page.
    pub is_huge: bool,
    /// It may not leave memory.
    pub is_locked: bool,
}

/// A pipe whose buffers are pages of files.
pub struct Pipe {
    /// What is spliced into it comes out here.
    pub out: OwnedFd,
    /// Here it goes in.
    pub into: OwnedFd,
}

impl Pipe {
    /// A pipe of so many pages.
    ///
    /// # Errors
    /// There is no descriptor or memory, or an ordinary user has too many pages in pipes.
    pub fn new(pages: usize) -> io::Result<Pipe> {
        let mut ends = [0; 2];
        // SAFETY: there is room for two descriptors, which are fresh.
        let pipe = unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) < 0 {
                return Err(io::Error::last_os_error());
            }
            Pipe {
                out: OwnedFd::from_raw_fd(ends[0]),
                into: OwnedFd::from_raw_fd(ends[1]),
            }
        };
        let bytes = (pages * pleat_wire::PAGE) as libc::c_int;
        // SAFETY: plain numbers.
        match unsafe { libc::fcntl(pipe.into.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) } {
            0.. => Ok(pipe),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The program, ready to be run.
pub struct PageRefs {
    program: OwnedFd,
    bits: FlagBits,
}

#[derive(Clone, Copy)]
struct FlagBits {
    head: u32,
    unevictable: u32,
    mlocked: u32,
}

impl FlagBits {
    fn of(btf: &Btf) -> io::Result<FlagBits> {
        let bit = |name| btf.constant("pageflags", name);
        Ok(FlagBits {
            head: bit("PG_head")?,
            unevictable: bit("PG_unevictable")?,
            mlocked: bit("PG_mlocked")?,
        })
    }
}

/// What the program is given, and gives back.
#[repr(C)]
struct Context {
    descriptor: u64,
    count: u64,
    pages: [Answer; PAGES_MAX],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Answer {
    head: u64,
    flags: u64,
    references: u32,
    mappings: u32,
}

const ANSWER_BYTES: i16 = size_of::<Answer>() as i16;
const ANSWERS: i16 = std::mem::offset_of!(Context, pages) as i16;

impl PageRefs {
    /// Makes the program for the running kernel.
    ///
    /// # Errors
    /// This process may not, or the kernel has no such thing: then nobody can tell who holds a page.
    pub fn new() -> io::Result<PageRefs> {
        let btf = Btf::of_kernel()?;
        let (code, bits) = (assemble(&btf)?, FlagBits::of(&btf)?);
        Ok(PageRefs {
            program: load(&code)?,
            bits,
        })
    }

    /// What holds each of the first `count` pages that wait in the pipe, each of which is one of its buffers.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn read(&self, pipe: &Pipe, count: usize) -> io::Result<Vec<PageUse>> {
        assert!(count <= PAGES_MAX);
        let mut context = Context {
            descriptor: pipe.into.as_raw_fd() as u64,
            count: count as u64,
            pages: [Answer::default(); PAGES_MAX],
        };
        let mut run = TestRun {
            program: self.program.as_raw_fd() as u32,
            context_bytes: size_of::<Context>() as u32,
            context: std::ptr::from_mut(&mut context) as u64,
            ..TestRun::default()
        };
        bpf(PROG_TEST_RUN, &mut run)?;
        if run.answer != 0 {
            return Err(io::Error::other("the kernel's memory could not be read"));
        }
        let pages = context.pages[..count].iter();
        Ok(pages.map(|page| self.page_use(page)).collect())
    }

    fn page_use(&self, page: &Answer) -> PageUse {
        let has = |bit: u32| page.flags >> bit & 1 == 1;
        PageUse {
            references: page.references,
            // The kernel counts from -1.
            mappings: page.mappings.wrapping_add(1),
            is_huge: page.head & 1 == 1 || has(self.bits.head),
            is_locked: has(self.bits.unevictable) || has(self.bits.mlocked),
        }
    }
}

const PROG_LOAD: libc::c_int = 5;
const PROG_TEST_RUN: libc::c_int = 10;
const PROG_TYPE_SYSCALL: u32 = 31;
const F_SLEEPABLE: u32 = 1 << 4;

/// The argument of bpf(2) for loading.
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    instructions_count: u32,
    instructions: u64,
    license: u64,
    log: [u64; 2],
    kernel_version: u32,
    flags: u32,
}

/// The argument of bpf(2) for running.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    answer: u32,
    data: [u64; 3],
    repeat: [u32; 2],
    context_bytes: u32,
    context_out_bytes: u32,
    context: u64,
    context_out: u64,
}

/// Calls bpf(2); answers what it does, a descriptor or 0.
fn bpf<T>(command: libc::c_int, argument: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: both callers pair the command with its own structure, whose pointers are to values that outlive the call and
    // are as long as it says.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, argument, size_of::<T>()) };
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Tries to load the program, at most.
const LOADS_MAX: usize = 100;

fn load(code: &[u64]) -> io::Result<OwnedFd> {
    let mut argument = Load {
        kind: PROG_TYPE_SYSCALL,
        instructions_count: code.len() as u32,
        instructions: code.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        flags: F_SLEEPABLE,
        ..Load::default()
    };
    // The kernel gives up its look at the program when a signal waits, and says to try again.
    let mut attempts = 0..LOADS_MAX;
    let descriptor = loop {
        match bpf(PROG_LOAD, &mut argument) {
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && attempts.next().is_some() => {}
            other => break other?,
        }
    };
    // SAFETY: the kernel has just made it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

/// Registers: arguments of calls, what calls keep, the stack.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const CONTEXT: u8 = 6;
const AT: u8 = 7;
const MASK: u8 = 8;
const TAIL: u8 = 9;
const STACK: u8 = 10;
const GET_CURRENT_TASK: i32 = 35;
const PROBE_READ_KERNEL: i32 = 113;
/// On the stack: what was read last, and the page at hand.
const READ: i16 = -8;
const PAGE_AT: i16 = -16;
/// Where an answer has what.
const HEAD: i16 = std::mem::offset_of!(Answer, head) as i16;
const FLAGS: i16 = std::mem::offset_of!(Answer, flags) as i16;
const REFERENCES: i16 = std::mem::offset_of!(Answer, references) as i16;
const MAPPINGS: i16 = std::mem::offset_of!(Answer, mappings) as i16;

/// Instructions of BPF, as `linux/bpf.h` has them.
#[derive(Default)]
struct Assembler(Vec<u64>);

impl Assembler {
    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, value: i32) {
        let [low, high] = offset.to_ne_bytes();
        let [a, b, c, d] = value.to_ne_bytes();
        let instruction = [code, from << 4 | to, low, high, a, b, c, d];
        self.0.push(u64::from_ne_bytes(instruction));
    }

    fn copy(&mut self, to: u8, from: u8) {
        self.put(0xbf, to, from, 0, 0);
    }

    fn set(&mut self, to: u8, value: i32) {
        self.put(0xb7, to, 0, 0, value);
    }

    fn add(&mut self, to: u8, value: i32) {
        self.put(0x07, to, 0, 0, value);
    }

    fn load(&mut self, to: u8, from: u8, offset: i16) {
        self.put(0x79, to, from, offset, 0);
    }

    fn load_half(&mut self, to: u8, from: u8, offset: i16) {
        self.put(0x61, to, from, offset, 0);
    }

    fn store(&mut self, to: u8, offset: i16, from: u8) {
        self.put(0x7b, to, from, offset, 0);
    }

    fn store_half(&mut self, to: u8, offset: i16, from: u8) {
        self.put(0x63, to, from, offset, 0);
    }

    fn call(&mut self, function: i32) {
        self.put(0x85, 0, 0, 0, function);
    }

    fn exit(&mut self) {
        self.put(0x95, 0, 0, 0, 0);
    }

    /// Reads the kernel's memory at R3 to the stack; ends with the error if it cannot be read.
    fn probe(&mut self, bytes: i32) {
        self.copy(R1, STACK);
        self.add(R1, READ.into());
        self.set(R2, bytes);
        self.call(PROBE_READ_KERNEL);
        // if R0 == 0, over the exit.
        self.put(0x15, R0, 0, 1, 0);
        self.exit();
    }

    /// Reads at an offset from what `AT` points to.
    fn probe_member(&mut self, offset: u32, bytes: i32) {
        self.copy(R3, AT);
        self.add(R3, offset as i32);
        self.probe(bytes);
    }

    /// Follows the pointer at an offset from what `AT` points to.
    fn follow(&mut self, offset: u32) {
        self.probe_member(offset, 8);
        self.load(AT, STACK, READ);
    }

    /// Answers with a member of the page at hand.
    fn answer(&mut self, member: u32, bytes: i32, at: i16) {
        self.load(R3, STACK, PAGE_AT);
        self.add(R3, member as i32);
        self.probe(bytes);
        if bytes == 8 {
            self.load(R1, STACK, READ);
            self.store(CONTEXT, at, R1);
        } else {
            self.load_half(R1, STACK, READ);
            self.store_half(CONTEXT, at, R1);
        }
    }
}

/// From the running task to the pipe, and of each of its buffers to the page. A loop would be shorter, but kernels differ in
/// whether they let a program write to its context at a place that they do not know.
fn assemble(btf: &Btf) -> io::Result<Vec<u64>> {
    let mut code = Assembler::default();
    code.copy(CONTEXT, R1);
    code.call(GET_CURRENT_TASK);
    code.copy(AT, R0);
    code.follow(btf.offset("task_struct", "files")?);
    code.follow(btf.offset("files_struct", "fdt")?);
    code.follow(btf.offset("fdtable", "fd")?);
    code.load(R1, CONTEXT, 0);
    // Eight bytes each: shifted left by 3, added.
    code.put(0x67, R1, 0, 0, 3);
    code.put(0x0f, AT, R1, 0, 0);
    code.follow(0);
    code.follow(btf.offset("file", "private_data")?);
    code.probe_member(btf.offset("pipe_inode_info", "ring_size")?, 4);
    code.load_half(MASK, STACK, READ);
    code.add(MASK, -1);
    code.probe_member(btf.offset("pipe_inode_info", "tail")?, 4);
    code.load_half(TAIL, STACK, READ);
    code.follow(btf.offset("pipe_inode_info", "bufs")?);
    for page in 0..PAGES_MAX as i32 {
        of_one_page(&mut code, btf, page)?;
    }
    code.set(R0, 0);
    code.exit();
    Ok(code.0)
}

fn of_one_page(code: &mut Assembler, btf: &Btf, page: i32) -> io::Result<()> {
    code.load(R1, CONTEXT, 8);
    // if R1 > page, over the end.
    code.put(0x25, R1, 0, 2, page);
    code.set(R0, 0);
    code.exit();
    // R3 = AT + ((TAIL + page) & MASK) * size
    code.copy(R3, TAIL);
    code.add(R3, page);
    code.put(0x5f, R3, MASK, 0, 0);
    code.put(0x27, R3, 0, 0, btf.size("pipe_buffer")? as i32);
    code.put(0x0f, R3, AT, 0, 0);
    code.add(R3, btf.offset("pipe_buffer", "page")? as i32);
    code.probe(8);
    code.load(R1, STACK, READ);
    code.store(STACK, PAGE_AT, R1);
    let at = ANSWERS + ANSWER_BYTES * page as i16;
    // Its lowest bit tells of a page behind the first of a larger one; what the rest says has changed with the name, in Linux 7.
    let head = btf.offset("page", "compound_head");
    let head = head.or_else(|_| btf.offset("page", "compound_info"))?;
    code.answer(head, 8, at + HEAD);
    code.answer(btf.offset("page", "flags")?, 8, at + FLAGS);
    code.answer(btf.offset("page", "_mapcount")?, 4, at + MAPPINGS);
    code.answer(btf.offset("page", "_refcount")?, 4, at + REFERENCES);
    Ok(())
}
