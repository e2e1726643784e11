//! What another program is executed with: the agent stays in its environment.
//!
//! A start script that sets an LD_PRELOAD of its own, or `env -i`, would take its program out of the job. So every exec of the
//! C library comes by here (see `patch`), and what is missing is added: the agent behind the program's own libraries in
//! LD_PRELOAD (a sanitizer's wants to be the first), and the variables by which it finds the supervisor. An environment that has them goes to the kernel as it is. Where no
//! variable of pleat's was there at all, the new program's agent takes what was added out again ([`hide`]),
//! so that the program reads the environment it was given.
//!
//! Left alone is an environment with another socket, which is of another job or empty because somebody wants a program to
//! run without pleat. Nothing is added where the program's loader would complain of the agent, which cannot be read from
//! where it is (as another user, or below another root). From a program for another kind of machine, or with shorter
//! addresses, the agent is taken away: its loader would complain, too. A static program, or one with the
//! set-user-id bit, ignores what was added.
//!
//! All this may run in a child of vfork, on a small stack, with every lock of the C library held by
//! somebody else: it reads what the constructor has noted, writes to its own stack and makes system calls.

use crate::raw::{self, Errno};
use crate::stubs::Registers;
use core::ffi::{c_char, CStr};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use pleat_wire::{elf, ADDED_VARIABLE, ASK_FROM_VARIABLE, DEVICES_VARIABLE, SOCKET_VARIABLE};
use syscalls::Sysno;

const PRELOAD: &str = "LD_PRELOAD";
/// Words on the stack for an environment: enough for most, and for all but a few. The C library's own stack for
/// posix_spawn has 32 KiB. A larger one is mapped.
const WORDS: usize = 256;
const WORDS_MORE: usize = 1792;
/// Most bytes of a value that the agent is put behind.
const VALUE_MAX: usize = 64 << 10;

/// A variable of ours as it is to be in every environment. Written once, by the constructor.
struct Entry<const N: usize> {
    bytes: [AtomicU8; N],
    len: AtomicUsize,
}

impl<const N: usize> Entry<N> {
    const fn new() -> Entry<N> {
        Entry {
            bytes: [const { AtomicU8::new(0) }; N],
            len: AtomicUsize::new(0),
        }
    }

    /// Notes `name=value`; nothing where that is too long.
    fn note(&self, name: &str, value: &[u8]) {
        let len = name.len() + 1 + value.len();
        if len >= N {
            return;
        }
        let text = name.as_bytes().iter().chain(b"=").chain(value);
        for (to, from) in self.bytes.iter().zip(text) {
            to.store(*from, Ordering::Relaxed);
        }
        self.len.store(len, Ordering::Release);
    }

    /// As a C string, if it was noted.
    fn pointer(&self) -> Option<usize> {
        (self.len.load(Ordering::Acquire) > 0).then_some(self.bytes.as_ptr() as usize)
    }

    fn bytes(&self) -> &[u8] {
        let len = self.len.load(Ordering::Acquire);
        // SAFETY: an atomic byte is a byte, and nobody writes to these after the constructor.
        unsafe { core::slice::from_raw_parts(self.bytes.as_ptr().cast(), len) }
    }
}

static AGENT: Entry<4200> = Entry::new();
static SOCKET: Entry<128> = Entry::new();
static ASK_FROM: Entry<64> = Entry::new();
static DEVICES: Entry<512> = Entry::new();
static ADDED: Entry<32> = Entry::new();
/// The constructor has noted them all.
static IS_READY: AtomicBool = AtomicBool::new(false);

/// Notes what every environment is to have. By the constructor. Without a path by which the agent can be loaded from
/// anywhere nothing is added to any.
pub fn note(agent: &[u8], socket: &[u8], ask_from: Option<&[u8]>, devices: Option<&[u8]>) {
    let is_loadable =
        agent.first() == Some(&b'/') && !agent.iter().any(|byte| b" :".contains(byte));
    AGENT.note(PRELOAD, agent);
    SOCKET.note(SOCKET_VARIABLE, socket);
    ask_from.inspect(|value| ASK_FROM.note(ASK_FROM_VARIABLE, value));
    devices.inspect(|value| DEVICES.note(DEVICES_VARIABLE, value));
    ADDED.note(ADDED_VARIABLE, b"1");
    let is_noted = AGENT.pointer().is_some() && SOCKET.pointer().is_some();
    IS_READY.store(is_loadable && is_noted, Ordering::Release);
}

/// In the place of the C library's system call.
pub extern "C" fn execve(registers: &Registers) -> isize {
    let Registers { rdi, rsi, rdx, .. } = *registers;
    let call = Call {
        number: Sysno::execve,
        arguments: [rdi, rsi, rdx, 0, 0, 0],
        environment: 2,
        program: Program {
            directory: libc::AT_FDCWD,
            path: rdi,
            flags: 0,
        },
    };
    call.make()
}

/// In the place of the C library's system call.
pub extern "C" fn execveat(registers: &Registers) -> isize {
    let Registers {
        rdi,
        rsi,
        rdx,
        r10,
        r8,
        ..
    } = *registers;
    let call = Call {
        number: Sysno::execveat,
        arguments: [rdi, rsi, rdx, r10, r8, 0],
        environment: 3,
        program: Program {
            directory: rdi as i32,
            path: rsi,
            flags: r8 as i32,
        },
    };
    call.make()
}

/// An exec that is to be made.
struct Call {
    number: Sysno,
    arguments: [usize; 6],
    /// Which argument is the environment.
    environment: usize,
    program: Program,
}

impl Call {
    /// Makes it; comes back only if that fails, with what the kernel says.
    fn make(self) -> isize {
        let environment = self.arguments[self.environment] as *const *const c_char;
        let given = match IS_READY.load(Ordering::Acquire) {
            // SAFETY: the caller's environment, as for the kernel.
            true => unsafe { Given::of(environment) },
            false => None,
        };
        let Some(mut given) = given else {
            return self.make_in(environment as usize);
        };
        given.is_for_other = self.program.is_of_another_machine();
        let is_to_change = match given.is_for_other {
            true => given.agent.is_some(),
            false => given.lacks_something() && can_be_loaded(),
        };
        match is_to_change {
            true => self.make_with(&given),
            false => self.make_in(environment as usize),
        }
    }

    fn make_with(&self, given: &Given) -> isize {
        match given.words() {
            words if words <= WORDS => self.on_stack::<WORDS>(given),
            words if words <= WORDS_MORE => self.on_stack::<WORDS_MORE>(given),
            words => self.in_mapping(given, words),
        }
    }

    #[inline(never)]
    fn on_stack<const N: usize>(&self, given: &Given) -> isize {
        let mut room = [MaybeUninit::<usize>::uninit(); N];
        self.make_in(given.fill(&mut room))
    }

    /// In a child of vfork the mapping stays with the parent, if the exec succeeds: some ten pages for an environment of
    /// thousands of variables.
    #[inline(never)]
    fn in_mapping(&self, given: &Given, words: usize) -> isize {
        let len = words * size_of::<usize>();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mapped = raw::map(len, libc::PROT_READ | libc::PROT_WRITE, flags, -1);
        let Ok(start) = mapped else {
            return self.make_in(self.arguments[self.environment]);
        };
        // SAFETY: mapped just now, of that size; any bytes are valid.
        let room = unsafe { core::slice::from_raw_parts_mut(start as *mut _, words) };
        let result = self.make_in(given.fill(room));
        // SAFETY: nobody else knows of it.
        let _ = unsafe { raw::call(Sysno::munmap, [start, len, 0, 0, 0, 0]) };
        result
    }

    fn make_in(&self, environment: usize) -> isize {
        let mut arguments = self.arguments;
        arguments[self.environment] = environment;
        // SAFETY: the caller's arguments, with an environment like his.
        raw::as_answer(unsafe { raw::call(self.number, arguments) })
    }
}

/// An environment that a program is to be executed in.
struct Given {
    environment: *const *const c_char,
    /// Its variables.
    count: usize,
    /// Which of them is the LD_PRELOAD that counts, and its value. The loader takes the last.
    preload: Option<(usize, *const c_char)>,
    /// Where the agent is in that, with what separates it from another library.
    agent: Option<(usize, usize)>,
    /// The variables of pleat's are there.
    has_socket: bool,
    /// The program cannot have the agent.
    is_for_other: bool,
}

impl Given {
    /// What is in an environment; `None` if it is to stay as it is.
    ///
    /// # Safety
    /// `environment` must be a null-terminated array of C strings, or null.
    unsafe fn of(environment: *const *const c_char) -> Option<Given> {
        let mut given = Given {
            environment,
            count: 0,
            preload: None,
            agent: None,
            has_socket: false,
            is_for_other: false,
        };
        // SAFETY: stays within the null-terminated array, whose entries are C strings.
        unsafe {
            while let Some(entry) = entry(environment, given.count) {
                if value_of(entry, PRELOAD).is_some() {
                    given.preload = Some((given.count, entry));
                }
                if let Some(name) = value_of(entry, SOCKET_VARIABLE) {
                    if name != value(SOCKET.bytes()) {
                        return None;
                    }
                    given.has_socket = true;
                }
                given.count += 1;
            }
        }
        given.agent = place_of_agent(given.own_preload());
        (given.own_preload().len() <= VALUE_MAX).then_some(given)
    }

    fn lacks_something(&self) -> bool {
        self.agent.is_none() || !self.has_socket
    }

    /// The value of LD_PRELOAD.
    fn own_preload(&self) -> &[u8] {
        let value = self.preload.and_then(|(_, entry)| {
            // SAFETY: an entry of the environment.
            unsafe { value_of(entry, PRELOAD) }
        });
        value.unwrap_or_default()
    }

    /// Room for all of it: pointers, and the text of LD_PRELOAD.
    fn words(&self) -> usize {
        let text = AGENT.bytes().len() + 1 + self.own_preload().len() + 1;
        self.count + MORE + text.div_ceil(size_of::<usize>())
    }

    /// Makes the environment in `room`, which has that many words; answers its address.
    fn fill(&self, room: &mut [MaybeUninit<usize>]) -> usize {
        let (pointers, text) = room.split_at_mut(self.count + MORE);
        let preload = self.write_preload(text);
        let mut at = 0;
        let mut put = |pointer: usize| {
            pointers[at].write(pointer);
            at += 1;
        };
        for nth in 0..self.count {
            // SAFETY: within the array.
            let entry = unsafe { *self.environment.add(nth) } as usize;
            match self.preload {
                Some((place, _)) if place == nth => preload.into_iter().for_each(&mut put),
                _ => put(entry),
            }
        }
        if self.preload.is_none() {
            preload.into_iter().for_each(&mut put);
        }
        if !self.has_socket && !self.is_for_other {
            let ours = [
                SOCKET.pointer(),
                ASK_FROM.pointer(),
                DEVICES.pointer(),
                ADDED.pointer(),
            ];
            ours.into_iter().flatten().for_each(&mut put);
        }
        put(0);
        pointers.as_ptr() as usize
    }

    /// `LD_PRELOAD=` with the agent behind what is there, or without it; answers its address, if it is to be there at all.
    fn write_preload(&self, room: &mut [MaybeUninit<usize>]) -> Option<usize> {
        let start = room.as_mut_ptr().cast::<u8>();
        let own = self.own_preload();
        let (name, agent) = AGENT.bytes().split_at(PRELOAD.len() + 1);
        let parts: [&[u8]; 3] = match self.agent {
            Some((0, end)) if self.is_for_other && end == own.len() => return None,
            Some((from, to)) if self.is_for_other => [&own[..from], b"", &own[to..]],
            Some(_) => [own, b"", b""],
            None if own.is_empty() => [b"", b"", agent],
            None => [own, b":", agent],
        };
        let text = [name, parts[0], parts[1], parts[2], b"\0"];
        for (at, byte) in text.into_iter().flatten().enumerate() {
            // SAFETY: `words` has counted all of them.
            unsafe { start.add(at).write(*byte) };
        }
        Some(start as usize)
    }
}

/// Where the agent is among these libraries, with the separator behind it, or before it where it is the last.
fn place_of_agent(preload: &[u8]) -> Option<(usize, usize)> {
    let mut start = 0;
    for library in preload.split(|byte| b": ".contains(byte)) {
        let end = start + library.len();
        if library == value(AGENT.bytes()) {
            let is_last = end == preload.len();
            let before = start.saturating_sub(usize::from(is_last));
            return Some((before, end + usize::from(!is_last)));
        }
        start = end + 1;
    }
    None
}

/// Pointers beside those that are there: LD_PRELOAD, four variables, the end.
const MORE: usize = 6;

/// An entry of an environment; `None` at its end.
///
/// # Safety
/// `environment` must be a null-terminated array, or null, with `nth` entries or more.
unsafe fn entry(environment: *const *const c_char, nth: usize) -> Option<*const c_char> {
    if environment.is_null() {
        return None;
    }
    // SAFETY: the caller's word.
    let entry = unsafe { *environment.add(nth) };
    (!entry.is_null()).then_some(entry)
}

/// The value of an environment variable.
///
/// # Safety
/// `environment` must be a null-terminated array of C strings, or null.
pub unsafe fn variable<'a>(environment: *const *const c_char, name: &str) -> Option<&'a [u8]> {
    // SAFETY: stays within the null-terminated array, whose entries are C strings.
    unsafe {
        let mut entries = (0..).map_while(|nth| entry(environment, nth));
        entries.find_map(|entry| value_of(entry, name))
    }
}

/// The value of an entry, if it is of that name. Others are not read to their end.
///
/// # Safety
/// `entry` must be a C string that lives as long as the answer is used.
unsafe fn value_of<'a>(entry: *const c_char, name: &str) -> Option<&'a [u8]> {
    for (at, byte) in name.bytes().chain(*b"=").enumerate() {
        // SAFETY: all bytes before were none of them zero, so the string goes on.
        if unsafe { *entry.add(at) } as u8 != byte {
            return None;
        }
    }
    // SAFETY: as above.
    Some(unsafe { CStr::from_ptr(entry.add(name.len() + 1)) }.to_bytes())
}

/// What is behind the equals sign.
fn value(entry: &[u8]) -> &[u8] {
    let at = entry.iter().position(|&byte| byte == b'=');
    at.map_or(&[], |at| &entry[at + 1..])
}

/// Whether a loader with this process's rights and root finds the agent.
fn can_be_loaded() -> bool {
    // SAFETY: the path ends with a zero, as all of `AGENT` that was not written to.
    let path = unsafe { CStr::from_ptr(value(AGENT.bytes()).as_ptr().cast()) };
    raw::open(path, libc::O_RDONLY).map(raw::close).is_ok()
}

/// What is to be executed.
struct Program {
    directory: i32,
    path: usize,
    flags: i32,
}

impl Program {
    /// Whether it is in the format of another kind of machine, or of the same with shorter addresses. What cannot be
    /// told is none: the kernel will say what is wrong.
    fn is_of_another_machine(&self) -> bool {
        let mut head = [0u8; elf::HEAD];
        if !self.is_file() || self.read(&mut head) != Ok(head.len()) {
            return false;
        }
        elf::kind(&head).is_some_and(|kind| kind != (ELFCLASS64, EM_X86_64))
    }

    /// Anything else may do something when it is opened.
    fn is_file(&self) -> bool {
        // SAFETY: all zeros is a valid `stat`, which outlives the call; the path is the caller's.
        unsafe {
            let mut status: libc::stat = core::mem::zeroed();
            let status_at = (&raw mut status) as usize;
            let flags = (self.flags & libc::AT_EMPTY_PATH) as usize;
            let arguments = [self.directory as usize, self.path, status_at, flags, 0, 0];
            let found = raw::call(Sysno::newfstatat, arguments);
            found.is_ok() && status.st_mode & libc::S_IFMT == libc::S_IFREG
        }
    }

    fn read(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
        let arguments = [self.directory as usize, self.path, flags, 0, 0, 0];
        let buffer = (bytes.as_mut_ptr() as usize, bytes.len());
        // SAFETY: the path is the caller's, and the buffer has room.
        unsafe {
            let read = |fd: usize| raw::call(Sysno::pread64, [fd, buffer.0, buffer.1, 0, 0, 0]);
            match raw::call(Sysno::openat, arguments) {
                Ok(fd) => {
                    let got = read(fd);
                    raw::close(fd as i32);
                    got
                }
                // The file itself may be what was given.
                Err(_) if self.flags & libc::AT_EMPTY_PATH != 0 => read(self.directory as usize),
                Err(errno) => Err(errno),
            }
        }
    }
}

const ELFCLASS64: u8 = 2;
const EM_X86_64: u16 = 62;

/// Takes out of a new program's environment what was added to an environment that had nothing of pleat's. By the constructor,
/// where every exec of this process is seen again.
///
/// # Safety
/// `environment` must be the process's own, as the kernel has laid it out, and no thread but this one may be there.
pub unsafe fn hide(environment: *mut *mut c_char) {
    // SAFETY: the caller's word; entries are only read here.
    let is_added = |at: usize| unsafe {
        let found = entry(environment.cast(), at)?;
        let ours = [
            SOCKET_VARIABLE,
            ASK_FROM_VARIABLE,
            DEVICES_VARIABLE,
            ADDED_VARIABLE,
        ];
        Some(ours.iter().any(|name| value_of(found, name).is_some()))
    };
    let (mut from, mut to) = (0, 0);
    while let Some(is_ours) = is_added(from) {
        // SAFETY: both are within the array, and `to` is not after `from`; the strings are this process's own.
        unsafe {
            let entry = *environment.add(from);
            if !is_ours && !is_only_agent(entry) {
                *environment.add(to) = entry;
                to += 1;
            }
        }
        from += 1;
    }
    if !environment.is_null() {
        // SAFETY: not beyond the end that was there.
        unsafe { *environment.add(to) = core::ptr::null_mut() };
    }
}

/// Takes the agent out of LD_PRELOAD, where it is the last; answers whether nothing is left.
///
/// # Safety
/// `entry` must be a C string that may be written to.
unsafe fn is_only_agent(entry: *mut c_char) -> bool {
    // SAFETY: a C string.
    let Some(libraries) = (unsafe { value_of(entry, PRELOAD) }) else {
        return false;
    };
    match libraries.strip_suffix(value(AGENT.bytes())) {
        Some([]) => true,
        Some([own @ .., b':']) => {
            let colon = PRELOAD.len() + 1 + own.len();
            // SAFETY: within the string, which ends there now. Nothing that was read of it is used any more.
            unsafe { *entry.add(colon) = 0 };
            false
        }
        _ => false,
    }
}
