//! Messages of the protocol (`<linux/fuse.h>`) that do not go through the server: READ and WRITE, which are
//! hot, and notifications. Numbers are in the machine's own byte order.
#![forbid(unsafe_code)]

/// `struct fuse_in_header`.
pub const HEADER_BYTES: usize = 40;
/// `struct fuse_out_header`.
pub const ANSWER_HEADER_BYTES: usize = 16;
/// `struct fuse_read_in` and `struct fuse_write_in`.
pub const TRANSFER_BYTES: usize = 40;
/// `struct fuse_notify_retrieve_in`.
const RETRIEVED_BYTES: usize = 40;

/// `FUSE_READ`.
pub const READ: u32 = 15;
/// `FUSE_WRITE`.
pub const WRITE: u32 = 16;
/// `FUSE_NOTIFY_REPLY`.
pub const NOTIFY_REPLY: u32 = 41;
/// `FUSE_WRITE_KILL_SUIDGID`.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// What each request begins with.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// What is asked.
    pub opcode: u32,
    /// Which answer belongs to it.
    pub unique: u64,
    /// About which node.
    pub node: u64,
}

/// READ or WRITE without its data.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes asked for or given.
    pub size: u32,
    /// `write_flags`, for a WRITE.
    pub flags: u32,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(field.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at + 8)?;
    Some(u64::from_ne_bytes(field.try_into().ok()?))
}

/// The header of a message, if it has one.
pub fn header(message: &[u8]) -> Option<Header> {
    let header = message.get(..HEADER_BYTES)?;
    Some(Header {
        opcode: u32_at(header, 4)?,
        unique: u64_at(header, 8)?,
        node: u64_at(header, 16)?,
    })
}

/// What a READ or WRITE asks for.
pub fn transfer(message: &[u8]) -> Option<Transfer> {
    let body = message.get(HEADER_BYTES..HEADER_BYTES + TRANSFER_BYTES)?;
    Some(Transfer {
        offset: u64_at(body, 8)?,
        size: u32_at(body, 16)?,
        flags: u32_at(body, 20)?,
    })
}

/// The data of a WRITE.
pub fn written(message: &[u8], size: u32) -> Option<&[u8]> {
    message
        .get(HEADER_BYTES + TRANSFER_BYTES..)?
        .get(..size as usize)
}

/// Offset and data of a NOTIFY_REPLY.
pub fn retrieved(message: &[u8]) -> Option<(u64, &[u8])> {
    let body = message.get(HEADER_BYTES..)?;
    let (head, data) = body.split_at_checked(RETRIEVED_BYTES)?;
    let size = u32_at(head, 16)? as usize;
    Some((u64_at(head, 8)?, data.get(..size)?))
}

/// `struct fuse_out_header`: an answer when `unique` is not 0, else a notification with code `error`.
pub fn answer_header(len: usize, error: i32, unique: u64) -> [u8; ANSWER_HEADER_BYTES] {
    let mut header = [0; ANSWER_HEADER_BYTES];
    // The kernel takes no message as long as that.
    header[..4].copy_from_slice(&(len as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&error.to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_taken_apart_as_the_kernel_puts_it_together() {
        let mut message = Vec::new();
        for word in [83u32, WRITE] {
            message.extend(word.to_ne_bytes());
        }
        for word in [7u64, 42] {
            message.extend(word.to_ne_bytes());
        }
        message.extend([0; 16]);
        message.extend(0u64.to_ne_bytes());
        message.extend(4096u64.to_ne_bytes());
        message.extend(3u32.to_ne_bytes());
        message.extend(WRITE_KILL_SUIDGID.to_ne_bytes());
        message.extend([0; 16]);
        message.extend(b"abc");
        let header = header(&message).expect("it is long enough");
        assert_eq!((header.opcode, header.unique, header.node), (WRITE, 7, 42));
        let transfer = transfer(&message).expect("it is long enough");
        assert_eq!((transfer.offset, transfer.size), (4096, 3));
        assert_eq!(transfer.flags, WRITE_KILL_SUIDGID);
        assert_eq!(written(&message, 3), Some(&b"abc"[..]));
    }

    #[test]
    fn short_messages_are_refused() {
        for len in 0..HEADER_BYTES + TRANSFER_BYTES {
            let message = vec![1; len];
            assert!(transfer(&message).is_none());
            assert!(retrieved(&message).is_none());
            assert_eq!(header(&message).is_some(), len >= HEADER_BYTES);
        }
        assert!(written(&[0; HEADER_BYTES + TRANSFER_BYTES + 2], 3).is_none());
    }
}
