//! The few functions of other libraries that this one calls, looked up without calling anybody.
//!
//! A program may have functions of its own by any name, `memset` or `dlsym` or `clone`, and the dynamic linker would
//! bind this library to them: sanitizers, profilers and allocators do. They were not made for a thread that the C library
//! does not know, nor for one that stands between a fault and its answer. So this library has no undefined symbol but
//! two variables by which it finds the dynamic linker's list of what is loaded (a test of `pleat-e2e` reads its symbol
//! table), and looks for the rest in that list:
//!
//! ```text
//! program -> preloaded libraries, this one among them -> its libraries -> ... -> C library
//!                                      next() looks from here on --->        <--- last()
//! ```
//!
//! What a function of this library stands in front of is the `next` of its name, so that a sanitizer or an allocator
//! that is loaded behind it keeps its place. What it needs of the C library itself is the `last`.
//!
//! The list is read once, before the program's `main`, when the dynamic linker does not change it.

use core::arch::asm;
use core::ffi::{c_char, c_int, c_void, CStr};
use core::sync::atomic::{AtomicUsize, Ordering};

/// A function of another library: its address, or 0.
pub struct Symbol(AtomicUsize);

/// What this library's `pthread_create` stands in front of.
pub static PTHREAD_CREATE: Symbol = Symbol(AtomicUsize::new(0));
/// What this library's `fork` stands in front of.
pub static FORK: Symbol = Symbol(AtomicUsize::new(0));
/// What this library's `clone` stands in front of.
pub static CLONE: Symbol = Symbol(AtomicUsize::new(0));
/// What this library's `ptrace` stands in front of.
pub static PTRACE: Symbol = Symbol(AtomicUsize::new(0));
static KEY_CREATE: Symbol = Symbol(AtomicUsize::new(0));
static SETSPECIFIC: Symbol = Symbol(AtomicUsize::new(0));
static ATFORK: Symbol = Symbol(AtomicUsize::new(0));
static ERRNO_LOCATION: Symbol = Symbol(AtomicUsize::new(0));
static STACK_SIZE: Symbol = Symbol(AtomicUsize::new(0));

/// Whether the list was read. Threads that read it at the same time find the same.
static IS_READ: AtomicUsize = AtomicUsize::new(0);

impl Symbol {
    /// The address; looked up now if a constructor before ours is the caller. 0 when there is none.
    pub fn address(&self) -> usize {
        resolve();
        self.0.load(Ordering::Acquire)
    }
}

/// Looks all of them up.
pub fn resolve() {
    if IS_READ.load(Ordering::Acquire) != 0 {
        return;
    }
    let note = |symbol: &Symbol, address| symbol.0.store(address, Ordering::Release);
    note(&PTHREAD_CREATE, next(c"pthread_create"));
    note(&FORK, next(c"fork"));
    note(&CLONE, next(c"clone"));
    note(&PTRACE, next(c"ptrace"));
    note(&KEY_CREATE, last(c"pthread_key_create"));
    note(&SETSPECIFIC, last(c"pthread_setspecific"));
    note(&ATFORK, last(c"pthread_atfork"));
    note(&ERRNO_LOCATION, last(c"__errno_location"));
    note(&STACK_SIZE, last(c"pthread_attr_getstacksize"));
    IS_READ.store(1, Ordering::Release);
}

/// Whether the C library is the GNU one. Others run constructors without arguments, and keep what the kernel writes
/// when a thread ends where this library does not look for it (`threads`).
pub fn is_gnu() -> bool {
    let (gnu, _) = linker_variables();
    gnu != 0 && objects().any(Object::defines_us)
}

/// Has these called at every fork of the program's: before it, and after it in the parent and in the child. `false`
/// where that cannot be had.
pub fn at_fork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) -> bool {
    type AtFork = unsafe extern "C" fn(
        Option<extern "C" fn()>,
        Option<extern "C" fn()>,
        Option<extern "C" fn()>,
    ) -> c_int;
    let address = ATFORK.address();
    if address == 0 {
        return false;
    }
    // SAFETY: found under this name, so it has this type; the three stay loaded.
    unsafe {
        let register = core::mem::transmute::<usize, AtFork>(address);
        register(Some(prepare), Some(parent), Some(child)) == 0
    }
}

/// A key for a value of each thread, and what is called with it when the thread ends; `None` where that cannot be had.
pub fn make_key(on_end: extern "C" fn(*mut c_void)) -> Option<u32> {
    type Create = unsafe extern "C" fn(*mut u32, extern "C" fn(*mut c_void)) -> c_int;
    let (address, mut key) = (KEY_CREATE.address(), 0);
    if address == 0 || SETSPECIFIC.address() == 0 {
        return None;
    }
    // SAFETY: found under this name, so it has this type; the function stays loaded.
    let result = unsafe { core::mem::transmute::<usize, Create>(address)(&mut key, on_end) };
    (result == 0).then_some(key)
}

/// Sets the calling thread's value under a key from [`make_key`].
pub fn set_value(key: u32, value: *const c_void) {
    type Set = unsafe extern "C" fn(u32, *const c_void) -> c_int;
    // SAFETY: found under this name when the key was made, so it has this type.
    let set = unsafe { core::mem::transmute::<usize, Set>(SETSPECIFIC.address()) };
    // SAFETY: the C library made the key. Without a value nothing is called.
    let _ = unsafe { set(key, value) };
}

/// Sets the errno of the calling thread, which is one of the program's.
pub fn set_errno(errno: i32) {
    type Location = unsafe extern "C" fn() -> *mut c_int;
    let address = ERRNO_LOCATION.address();
    if address != 0 {
        // SAFETY: found under this name, so it has this type; it answers with this thread's own variable.
        unsafe { *core::mem::transmute::<usize, Location>(address)() = errno };
    }
}

/// The size of the stack that attributes ask for; 0 when they do not say.
///
/// # Safety
/// The attributes are the program's, and valid.
pub unsafe fn stack_size(attributes: *const c_void) -> usize {
    type StackSize = unsafe extern "C" fn(*const c_void, *mut usize) -> c_int;
    let address = STACK_SIZE.address();
    let mut size = 0;
    if address != 0 {
        // SAFETY: found under this name, so it has this type; the caller's attributes.
        let _ = unsafe { core::mem::transmute::<usize, StackSize>(address)(attributes, &mut size) };
    }
    size
}

/// Where a function of the C library itself begins, and its length, whoever else has one of that name.
pub fn text_of_c_library(name: &CStr) -> Option<(usize, usize)> {
    let mut found = objects().filter(|object| file_name(object.path()) == C_LIBRARY);
    found.find_map(|object| object.find_text(name))
}

/// Where this library was loaded from.
pub fn own_path() -> &'static [u8] {
    let own = objects().find(|object| object.defines_us());
    own.map_or(&[], Object::path)
}

fn file_name(path: &[u8]) -> &[u8] {
    let start = path.iter().rposition(|byte| *byte == b'/');
    &path[start.map_or(0, |at| at + 1)..]
}

/// The first of that name behind this library.
fn next(name: &CStr) -> usize {
    let mut behind = objects().skip_while(|object| !object.defines_us()).skip(1);
    behind.find_map(|object| object.find(name)).unwrap_or(0)
}

/// The last of that name.
fn last(name: &CStr) -> usize {
    let found = objects().filter(|object| !object.defines_us());
    found
        .filter_map(|object| object.find(name))
        .last()
        .unwrap_or(0)
}

/// Where the GNU dynamic linker and where musl keeps the list; 0 for what there is not.
fn linker_variables() -> (usize, usize) {
    let (gnu, musl): (usize, usize);
    // SAFETY: reads two words of this library's own table of addresses, which the dynamic linker has filled.
    unsafe {
        asm!(
            ".weak _r_debug",
            ".weak _dl_debug_addr",
            "mov {}, qword ptr [rip + _r_debug@GOTPCREL]",
            "mov {}, qword ptr [rip + _dl_debug_addr@GOTPCREL]",
            out(reg) gnu,
            out(reg) musl,
            options(nostack, preserves_flags, pure, readonly)
        );
    }
    (gnu, musl)
}

/// The head of `struct r_debug` of <link.h>.
#[repr(C)]
struct Debug {
    version: c_int,
    first: *const Object,
}

/// The public part of `struct link_map` of <link.h>; musl's begins the same.
#[repr(C)]
struct Object {
    base: usize,
    name: *const c_char,
    dynamic: *const [usize; 2],
    next: *const Object,
}

/// What is loaded, in the order in which the dynamic linker searches.
fn objects() -> impl Iterator<Item = &'static Object> {
    let (gnu, musl) = linker_variables();
    // SAFETY: each variable, where it is there, is what <link.h> says; nothing is unloaded before `main`.
    let first = unsafe {
        match (gnu as *const Debug, musl as *const *const Debug) {
            (gnu, _) if !gnu.is_null() => (*gnu).first.as_ref(),
            (_, musl) if !musl.is_null() => (*musl).as_ref().and_then(|debug| debug.first.as_ref()),
            _ => None,
        }
    };
    // SAFETY: as above.
    core::iter::successors(first, |object| unsafe { object.next.as_ref() })
}

const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const DT_VERSYM: usize = 0x6fff_fff0;
/// Of a version: it is bound to only by those that name it.
const HIDDEN: u16 = 1 << 15;
const STT_FUNC: u8 = 2;

const C_LIBRARY: &[u8] = b"libc.so.6";

impl Object {
    /// The path it was loaded from.
    fn path(&self) -> &'static [u8] {
        match self.name.is_null() {
            true => &[],
            // SAFETY: a C string, which lives as long as the object.
            false => unsafe { CStr::from_ptr(self.name) }.to_bytes(),
        }
    }

    /// Whether this is the library that this code is in.
    fn defines_us(&self) -> bool {
        self.base == crate::area::base()
    }

    /// The address of a table. Some dynamic linkers have added the base to it already.
    fn table(&self, tag: usize) -> Option<usize> {
        let mut entry = self.dynamic;
        loop {
            // SAFETY: the dynamic section ends with a tag of 0.
            let [found, value] = unsafe { entry.as_ref() }.copied()?;
            match found {
                0 => return None,
                found if found == tag => {
                    let is_relative = value < self.base;
                    return Some(value + if is_relative { self.base } else { 0 });
                }
                // SAFETY: not yet at the end.
                _ => entry = unsafe { entry.add(1) },
            }
        }
    }

    fn find(&self, name: &CStr) -> Option<usize> {
        self.find_text(name).map(|(start, _)| start)
    }

    /// Where a function that it defines begins, and its length: of the version that a reference without one is bound to, or of any if
    /// all are old ones. Objects without a table of the GNU kind are passed over.
    fn find_text(&self, name: &CStr) -> Option<(usize, usize)> {
        let symbols = self.table(DT_SYMTAB)? as *const libc::Elf64_Sym;
        let names = self.table(DT_STRTAB)?;
        let versions = self.table(DT_VERSYM).map(|table| table as *const u16);
        let mut old = None;
        for index in Bucket::of(self.table(DT_GNU_HASH)? as *const u32, name) {
            // SAFETY: the table of hashes leads to entries of the table of symbols, whose names are C strings, and each
            // of which has a version if there are any.
            let (symbol, found, version) = unsafe {
                let symbol = &*symbols.add(index);
                let found = CStr::from_ptr((names + symbol.st_name as usize) as *const c_char);
                (symbol, found, versions.map_or(0, |table| *table.add(index)))
            };
            let is_defined = symbol.st_shndx != 0 && symbol.st_info & 0xf == STT_FUNC;
            if !is_defined || found != name {
                continue;
            }
            let start = self.base + symbol.st_value as usize;
            let text = (start, symbol.st_size as usize);
            if version & HIDDEN == 0 {
                return Some(text);
            }
            old.get_or_insert(text);
        }
        old
    }
}

/// The symbols of one object that may have a name: those with its hash.
struct Bucket {
    /// The hash of the symbol looked at next, and its number; null at the end.
    entry: *const u32,
    index: usize,
    hash: u32,
}

impl Bucket {
    fn of(table: *const u32, name: &CStr) -> Bucket {
        let hash = name.to_bytes().iter().fold(5381u32, |hash, byte| {
            hash.wrapping_mul(33).wrapping_add(u32::from(*byte))
        });
        // SAFETY: the table begins with four numbers, then come a filter of words of 64 bits, the buckets, and the hash
        // of every symbol from the first that is in the table at all.
        unsafe {
            let [buckets, first, filter] = [0, 1, 2].map(|at| *table.add(at) as usize);
            let start = table.add(4 + 2 * filter);
            let index = match buckets {
                0 => 0,
                _ => *start.add(hash as usize % buckets) as usize,
            };
            let entry = match index {
                index if index < first.max(1) => core::ptr::null(),
                index => start.add(buckets + index - first),
            };
            Bucket { entry, index, hash }
        }
    }
}

impl Iterator for Bucket {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while !self.entry.is_null() {
            let index = self.index;
            // SAFETY: not yet at the bucket's end, which the lowest bit of its last hash marks.
            let found = unsafe { *self.entry };
            self.index += 1;
            self.entry = match found & 1 {
                // SAFETY: as above.
                0 => unsafe { self.entry.add(1) },
                _ => core::ptr::null(),
            };
            if (found ^ self.hash) | 1 == 1 {
                return Some(index);
            }
        }
        None
    }
}
