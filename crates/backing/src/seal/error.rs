//! What can go wrong with sealing, told so that the user knows what to do about it.
#![forbid(unsafe_code)]

use std::io;

/// Why a job cannot have sealed pages. Only ever at its start.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// No page of memory for the key.
    #[error("cannot get memory for the key: {0}; free some memory or say --swap-plain")]
    Memory(#[source] io::Error),
    /// The key could reach the system's own swap device.
    #[error("cannot lock the key in memory: {0}; raise the limit (ulimit -l) or say --swap-plain")]
    Lock(#[source] io::Error),
    /// The key would be seen in core dumps or in forked children; kernels before 4.14.
    #[error(
        "cannot keep the key out of core dumps and forked processes: {0}; use a newer kernel or \
         say --swap-plain"
    )]
    Hide(#[source] io::Error),
    /// The system's source of random bytes does not answer.
    #[error("cannot get random bytes for the key from the system; say --swap-plain")]
    Random,
}

/// What was read is not exactly what was closed under this identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "swap file, reading at byte {offset}: this is not what was written there; check the disk \
     (dmesg) and choose another --swap-dir"
)]
pub struct Damaged {
    /// First byte of the page in the file.
    pub offset: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_operation_and_remedy() {
        let refused = SealError::Lock(io::Error::from_raw_os_error(libc::ENOMEM)).to_string();
        assert_eq!(
            refused,
            "cannot lock the key in memory: Cannot allocate memory (os error 12); raise the limit \
             (ulimit -l) or say --swap-plain"
        );
        assert!(SealError::Random.to_string().contains("--swap-plain"));
        assert!(Damaged { offset: 4096 }
            .to_string()
            .starts_with("swap file, reading at byte 4096: "));
    }
}
