//! The few things pleat asks of the operating system, each behind a small safe face.
//!
//! With `agent`, this is where the `unsafe` of pleat lives; every block says why it holds.

pub mod btf;
pub mod capabilities;
pub mod channel;
pub mod grant;
pub mod guard;
pub mod helper;
pub mod inherited;
pub mod inject;
pub mod job_group;
pub mod keeper;
pub mod lease;
pub mod limits;
pub mod local;
pub mod memory_file;
mod one_page;
pub mod oom_score;
pub mod page_refs;
pub mod pidfd;
pub mod process;
pub mod procfs;
pub mod random;
pub mod ring;
pub mod robust;
pub mod signals;
pub mod source;
pub mod take_out;
pub mod ticks;
pub mod uffd;

/// The bytes of a message of plain integers without padding.
pub fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: `Plain` types have no padding, so every byte is initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Reads a message of plain integers; `None` when there are too few bytes.
pub fn read_plain<T: Plain>(bytes: &[u8]) -> Option<T> {
    (bytes.len() >= size_of::<T>()).then(|| {
        // SAFETY: enough bytes, and any bytes are a valid `Plain` value.
        unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) }
    })
}

/// # Safety
/// Implemented only for `repr(C)` structs of integers without padding.
pub unsafe trait Plain: Copy {}

// SAFETY: five 32-bit integers and a reserved one, then u64.
unsafe impl Plain for pleat_wire::message::Hello {}
// SAFETY: four u32 and a u64.
unsafe impl Plain for pleat_wire::message::Prepare {}
// SAFETY: four 32-bit integers and two u64.
unsafe impl Plain for pleat_wire::message::Prepared {}
// SAFETY: two u32 and u64s.
unsafe impl Plain for pleat_wire::message::Guard {}
// SAFETY: two u32 and u64s.
unsafe impl Plain for pleat_wire::message::Keep {}
// SAFETY: bytes in a multiple of eight, and u64.
unsafe impl Plain for pleat_wire::injected::Injected {}
// SAFETY: two u32, a u64, and items of a u64 and two u32.
unsafe impl Plain for pleat_wire::message::Take {}
// SAFETY: two u32, bytes in a multiple of eight, four u64 and two u32.
unsafe impl Plain for pleat_wire::message::Taken {}
// SAFETY: two 32-bit integers and three u64.
unsafe impl Plain for pleat_wire::message::FileRequest {}
// SAFETY: two u32.
unsafe impl Plain for pleat_wire::message::FileAnswer {}
// SAFETY: two u32, and items of three u64 and two u32.
unsafe impl Plain for pleat_wire::message::Replace {}
// SAFETY: u32 alone.
unsafe impl Plain for pleat_wire::message::Shed {}
// SAFETY: a u32 and an i32.
unsafe impl Plain for pleat_wire::message::Word {}
