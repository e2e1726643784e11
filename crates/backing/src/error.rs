//! What can go wrong with the swap file, told so that the user knows what to do about it.
//!
//! Every error names the operation, the store (with its directory), the place in it and a remedy. The engine
//! looks at the variant: a full disk is the end of growth, a lost write is the end of the job.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::time::Duration;

use crate::backing::Transfer;

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Making the file.
    Create,
    /// Writing to it.
    Write,
    /// Waiting for earlier writes to reach the disk.
    WriteBack,
    /// Reading from it.
    Read,
    /// Giving disk blocks back.
    Punch,
    /// Asking how much room there is.
    Inspect,
}

/// Where an error happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// What was being done.
    pub operation: Operation,
    /// What the store is and where it lies: "swap file in /var/tmp".
    pub name: String,
    /// First byte of the range in question, if there is one.
    pub offset: Option<u64>,
}

impl Site {
    pub(crate) fn of(name: &str, operation: Operation, offset: u64) -> Self {
        Site {
            operation,
            name: name.to_owned(),
            offset: Some(offset),
        }
    }
}

impl From<Transfer> for Operation {
    fn from(transfer: Transfer) -> Self {
        match transfer {
            Transfer::Read => Operation::Read,
            Transfer::Write => Operation::Write,
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let doing = match self.operation {
            Operation::Create => "creating it",
            Operation::Write => "writing",
            Operation::WriteBack => "waiting for writes",
            Operation::Read => "reading",
            Operation::Punch => "freeing disk blocks",
            Operation::Inspect => "asking for free space",
        };
        write!(f, "{}, {doing}", self.name)?;
        match self.offset {
            Some(offset) => write!(f, " at byte {offset}"),
            None => Ok(()),
        }
    }
}

/// Why the swap file could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum BackingError {
    /// ENOSPC. Nothing written earlier is affected.
    #[error("{0}: no space left; free some space there or choose another --swap-dir")]
    NoSpace(Site),
    /// EDQUOT. Nothing written earlier is affected.
    #[error("{0}: the disk quota is used up; free some of it or choose another --swap-dir")]
    Quota(Site),
    /// EFBIG. Nothing written earlier is affected.
    #[error(
        "{0}: the file would be larger than allowed; raise the limit (ulimit -f) or choose \
         a --swap-dir on another file system"
    )]
    TooLarge(Site),
    /// EIO on this very range.
    #[error("{0}: the disk reports an I/O error; check it (dmesg) and choose another --swap-dir")]
    Device(Site),
    /// Writes that had been accepted did not reach the disk. Which ones is not known, so nothing is
    /// read from the file any more.
    #[error(
        "{0}: pages that were written earlier did not reach the disk, so the job cannot go on; \
         check the disk (dmesg, free space) and choose another --swap-dir"
    )]
    Lost(Site),
    /// The file ends before the range that was to be read.
    #[error(
        "{0}: the file is shorter than what was written to it; find out what else changes it, or choose \
         another --swap-dir"
    )]
    Truncated(Site),
    /// A transfer has been under way for so long that nobody expects its end any more. What it
    /// would have done is not known, and it may still do it.
    #[error(
        "{site}: no answer for {} s; check the disk (dmesg) and choose another --swap-dir",
        .waited.as_secs()
    )]
    Stuck {
        /// Where it happened.
        site: Site,
        /// How long there has been no answer.
        waited: Duration,
    },
    /// Anything else the system answered.
    #[error("{site}: {source}; choose another, writable --swap-dir")]
    Other {
        /// Where it happened.
        site: Site,
        /// What the system said.
        source: io::Error,
    },
}

impl BackingError {
    /// For whoever watches over transfers: the one at `offset` of the store called `name` has had
    /// no answer for as long as `waited`.
    #[must_use]
    pub fn stuck(name: &str, transfer: Transfer, offset: u64, waited: Duration) -> Self {
        BackingError::Stuck {
            site: Site::of(name, transfer.into(), offset),
            waited,
        }
    }

    pub(crate) fn new(site: Site, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOSPC) => BackingError::NoSpace(site),
            Some(libc::EDQUOT) => BackingError::Quota(site),
            Some(libc::EFBIG) => BackingError::TooLarge(site),
            Some(libc::EIO) => BackingError::Device(site),
            None if source.kind() == io::ErrorKind::UnexpectedEof => BackingError::Truncated(site),
            _ => BackingError::Other { site, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(errno: i32) -> String {
        let site = Site::of("swap file in /var/swap", Operation::Write, 4096);
        BackingError::new(site, io::Error::from_raw_os_error(errno)).to_string()
    }

    #[test]
    fn messages_name_operation_place_and_remedy() {
        assert_eq!(
            told(libc::ENOSPC),
            "swap file in /var/swap, writing at byte 4096: no space left; free some space there \
             or choose another --swap-dir"
        );
        for errno in [libc::EDQUOT, libc::EFBIG, libc::EIO, libc::EACCES] {
            assert!(told(errno).starts_with("swap file in /var/swap, writing at byte 4096: "));
            assert!(told(errno).contains("--swap-dir"), "{}", told(errno));
        }
    }

    #[test]
    fn a_transfer_without_answer_says_for_how_long() {
        let waited = Duration::from_secs(30);
        let error = BackingError::stuck("swap file in /var/swap", Transfer::Read, 8192, waited);
        assert_eq!(
            error.to_string(),
            "swap file in /var/swap, reading at byte 8192: no answer for 30 s; check the disk \
             (dmesg) and choose another --swap-dir"
        );
    }
}
