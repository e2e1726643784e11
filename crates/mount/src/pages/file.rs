//! What a [`crate::Content`] remembers of one file; lives and dies with the node.
#![forbid(unsafe_code)]

/// The pages of one file.
#[derive(Debug, Default)]
pub struct FilePages {}
