//! What the supervisor of an ordinary user and `pleat-helper` say to each other, over a pair of sockets.
//!
//! The helper begins, with [`WITH_DEVICE`] and the device's descriptor, or with [`WITHOUT_DEVICE`] and an errno.
//! Then each packet to it carries one userfaultfd, and is answered with an errno, 0 when the handshake is made.

/// The helper's descriptor of its socket.
pub const SOCKET: i32 = 3;
/// Bytes of what the helper sends: one word.
pub const ANSWER_BYTES: usize = 4;
/// The device comes with this word.
pub const WITH_DEVICE: i32 = 1 << 16;
/// There is none; an errno is added.
pub const WITHOUT_DEVICE: i32 = 1 << 17;
