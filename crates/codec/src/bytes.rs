//! Access to fixed-size pieces of buffers.

/// The `N` elements of `of` from `at` on.
///
/// # Panics
/// When they are not all there: buffers are made so long that this does not happen.
#[inline(always)]
pub fn window<T, const N: usize>(of: &mut [T], at: usize) -> &mut [T; N] {
    let piece = &mut of[at..at + N];
    piece.try_into().expect("N elements")
}
