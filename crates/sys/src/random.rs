//! Random bits that nobody can guess.

use std::io;

/// 128 of them, never all zero.
///
/// # Errors
/// When the kernel has none to give.
pub fn bits128() -> io::Result<[u64; 2]> {
    let mut bits = [0u64; 2];
    while bits == [0; 2] {
        // SAFETY: the buffer is valid for its size.
        let got = unsafe { libc::getrandom(bits.as_mut_ptr().cast(), size_of_val(&bits), 0) };
        match got {
            16 => {}
            // Cut short by a signal: not for so few, but then all are drawn again.
            0.. => bits = [0; 2],
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_the_same() {
        let drawn: std::collections::HashSet<_> = (0..1000).map(|_| bits128().unwrap()).collect();
        assert_eq!(drawn.len(), 1000);
    }
}
