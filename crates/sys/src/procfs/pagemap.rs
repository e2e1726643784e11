//! Which anonymous pages of a process are in memory, from /proc/PID/pagemap.
//!
//! One PAGEMAP_SCAN ioctl (Linux 6.7) returns runs of such pages; where it is missing, the 64-bit
//! entry of each page is read instead. Either way the answer is old the moment it is given: the
//! process runs on. About 0.1 us a page.

use super::Pid;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

const PAGE: u64 = pleat_wire::PAGE as u64;

/// First address and first address after a run of pages.
type Run = (u64, u64);

// Categories of pages (linux/fs.h).
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_PFNZERO: u64 = 1 << 5;

// Bits of an entry of /proc/PID/pagemap.
const ENTRY_PRESENT: u64 = 1 << 63;
const ENTRY_SWAPPED: u64 = 1 << 62;
const ENTRY_FILE: u64 = 1 << 61;

/// Runs in one answer of the ioctl; more need another call.
const REGIONS: usize = 256;
/// Entries in one read of the fallback.
const ENTRIES: usize = 512;

/// `struct pm_scan_arg`.
#[repr(C)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`
const PAGEMAP_SCAN: u64 =
    3 << 30 | (size_of::<ScanArgument>() as u64) << 16 | (b'f' as u64) << 8 | 16;

/// The page table of a process, to be looked at again and again.
pub struct PageTable(File);

impl PageTable {
    /// Of this process. It stays that process's, also when its number is given to another.
    ///
    /// # Errors
    /// It has ended, or may not be looked at.
    pub fn open(pid: Pid) -> io::Result<PageTable> {
        File::open(format!("/proc/{pid}/pagemap")).map(PageTable)
    }

    /// Which of `pages` pages from the address `start` on exist, in memory or in the kernel's swap.
    ///
    /// # Errors
    /// EINVAL when the address is not a multiple of the page size; an unexpected end when it is beyond the last that a
    /// process can have, or the process is gone.
    pub fn which_exist(&self, start: u64, pages: usize) -> io::Result<Vec<bool>> {
        let found = entries(&self.0, start, pages)?;
        match found.len() == pages {
            true => Ok(found.into_iter().map(is_somewhere).collect()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Whether there is no page at an address, but a mark of the kernel's, as guards and poison are; or a page in its swap, or
    /// one that it is just moving.
    ///
    /// # Errors
    /// EINVAL when the address is not a multiple of the page size.
    pub fn is_marked(&self, address: u64) -> io::Result<bool> {
        let found = entries(&self.0, address, 1)?;
        Ok(found.first().is_some_and(|entry| is_mark(*entry)))
    }

    /// How many of `pages` pages from the address `start` on have nothing in the page table, in a row: no page, and none of
    /// the kernel's marks, as guards and poison are.
    ///
    /// # Errors
    /// EINVAL when the address is not a multiple of the page size.
    pub fn free_run(&self, start: u64, pages: usize) -> io::Result<usize> {
        let found = entries(&self.0, start, pages)?;
        let free = found.iter().take_while(|entry| !is_somewhere(**entry));
        Ok(free.count())
    }
}

/// Whether an entry is one of the kernel's marks, or for a page that is not just there.
fn is_mark(entry: u64) -> bool {
    entry & (ENTRY_PRESENT | ENTRY_SWAPPED) == ENTRY_SWAPPED
}

/// Runs of anonymous private pages in `start..end` that are in memory, in order of address, adjacent
/// ones joined. Pages that only read as zeros (never written) are left out; the fallback for kernels
/// before 6.7 cannot tell and includes them.
///
/// # Errors
/// EINVAL when the addresses are not multiples of the page size; the process has ended or may not
/// be looked at.
pub fn present_anon_runs(pid: Pid, start: u64, end: u64) -> io::Result<Vec<(u64, u64)>> {
    if !start.is_multiple_of(PAGE) || !end.is_multiple_of(PAGE) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let PageTable(pagemap) = PageTable::open(pid)?;
    match scan_runs(&pagemap, Wanted::Memory, start, end) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => {
            entry_runs(&pagemap, start, end)
        }
        result => result,
    }
}

/// Runs of pages in `start..end` that only read as zeros: present, but without memory until they are
/// written to. Empty where the kernel (before 6.7) cannot tell.
///
/// # Errors
/// As [`present_anon_runs`].
pub fn zero_page_runs(pid: Pid, start: u64, end: u64) -> io::Result<Vec<(u64, u64)>> {
    let PageTable(pagemap) = PageTable::open(pid)?;
    match scan_runs(&pagemap, Wanted::ZeroPage, start, end) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => {
            Ok(Vec::new())
        }
        result => result,
    }
}

/// Which pages a scan is for.
#[derive(Clone, Copy)]
enum Wanted {
    /// Private anonymous memory.
    Memory,
    /// The kernel's page of zeros, mapped.
    ZeroPage,
}

fn scan_runs(pagemap: &File, wanted: Wanted, start: u64, end: u64) -> io::Result<Vec<Run>> {
    let mut runs = Vec::new();
    let mut at = start;
    while at < end {
        let mut regions = [PageRegion {
            start: 0,
            end: 0,
            categories: 0,
        }; REGIONS];
        let (found, walk_end) = scan(pagemap, wanted, at, end, &mut regions)?;
        for region in &regions[..found] {
            push_joined(&mut runs, region.start, region.end);
        }
        if walk_end <= at {
            // A kernel that does not move on would keep us here for ever.
            return Err(io::Error::other("/proc: PAGEMAP_SCAN does not advance"));
        }
        at = walk_end;
    }
    Ok(runs)
}

/// One ioctl: how many regions it found, and the address up to which it looked.
fn scan(
    pagemap: &File,
    wanted: Wanted,
    start: u64,
    end: u64,
    regions: &mut [PageRegion; REGIONS],
) -> io::Result<(usize, u64)> {
    let (required, unwanted) = match wanted {
        Wanted::Memory => (0, PAGE_IS_FILE | PAGE_IS_SWAPPED | PAGE_IS_PFNZERO),
        Wanted::ZeroPage => (PAGE_IS_PFNZERO, PAGE_IS_SWAPPED),
    };
    let mut argument = ScanArgument {
        size: size_of::<ScanArgument>() as u64,
        flags: 0,
        start,
        end,
        walk_end: 0,
        regions: regions.as_mut_ptr() as u64,
        regions_len: REGIONS as u64,
        max_pages: 0,
        category_inverted: unwanted,
        category_mask: PAGE_IS_PRESENT | required | unwanted,
        category_anyof_mask: 0,
        return_mask: PAGE_IS_PRESENT,
    };
    // SAFETY: `argument` has the size it states; the kernel writes at most `regions_len` regions
    // to `regions`, which is that long and borrowed for the call.
    let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut argument) };
    match usize::try_from(found) {
        Ok(found) => Ok((found.min(REGIONS), argument.walk_end)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

fn entry_runs(pagemap: &File, start: u64, end: u64) -> io::Result<Vec<Run>> {
    let mut runs = Vec::new();
    let mut at = start;
    while at < end {
        let wanted = ((end - at) / PAGE).min(ENTRIES as u64) as usize;
        let found = entries(pagemap, at, wanted)?;
        if found.is_empty() {
            break; // Beyond the last address a process can have.
        }
        for entry in found {
            if is_anon(entry) {
                push_joined(&mut runs, at, at + PAGE);
            }
            at += PAGE;
        }
    }
    Ok(runs)
}

/// The entries of so many pages; fewer beyond the last address a process can have, none where it is gone.
fn entries(pagemap: &File, start: u64, pages: usize) -> io::Result<Vec<u64>> {
    if !start.is_multiple_of(PAGE) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut bytes = vec![0; pages * 8];
    let len = pagemap.read_at(&mut bytes, start / PAGE * 8)?;
    let entries = bytes[..len].chunks_exact(8);
    Ok(entries
        .map(|entry| u64::from_ne_bytes(entry.try_into().expect("eight bytes")))
        .collect())
}

/// Whether there is a page, in memory or in swap (as one is called, too, that the kernel is just moving).
fn is_somewhere(entry: u64) -> bool {
    entry & (ENTRY_PRESENT | ENTRY_SWAPPED) != 0
}

fn is_anon(entry: u64) -> bool {
    entry & (ENTRY_PRESENT | ENTRY_FILE) == ENTRY_PRESENT
}

fn push_joined(runs: &mut Vec<Run>, start: u64, end: u64) {
    match runs.last_mut() {
        Some(last) if last.1 == start => last.1 = end,
        _ => runs.push((start, end)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An anonymous or file mapping of the test, unmapped when dropped.
    struct Area {
        start: u64,
        pages: u64,
    }

    impl Area {
        fn new(pages: u64, flags: i32) -> Area {
            let len = (pages * PAGE) as usize;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping at an address of the kernel's choice.
            let start = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    len,
                    protection,
                    flags | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                )
            };
            assert_ne!(start, libc::MAP_FAILED);
            // SAFETY: the range was mapped above. Huge pages would make more present than touched.
            unsafe { libc::madvise(start, len, libc::MADV_NOHUGEPAGE) };
            Area {
                start: start as u64,
                pages,
            }
        }

        fn page(&self, number: u64) -> *mut u8 {
            assert!(number < self.pages);
            (self.start + number * PAGE) as *mut u8
        }

        fn write(&self, number: u64) {
            // SAFETY: inside the mapping, which only this test knows of.
            unsafe { self.page(number).write_volatile(1) };
        }

        fn read(&self, number: u64) {
            // SAFETY: inside the mapping, which only this test knows of.
            unsafe { self.page(number).read_volatile() };
        }

        /// Present runs as page numbers, by the ioctl and by entries.
        fn runs(&self) -> [Vec<Run>; 2] {
            let end = self.start + self.pages * PAGE;
            let pagemap = File::open("/proc/self/pagemap").unwrap();
            let by_entries = entry_runs(&pagemap, self.start, end).unwrap();
            let by_choice = present_anon_runs(std::process::id() as Pid, self.start, end).unwrap();
            [by_choice, by_entries].map(|runs| {
                let number = |address| (address - self.start) / PAGE;
                runs.into_iter()
                    .map(|(start, end)| (number(start), number(end)))
                    .collect()
            })
        }
    }

    impl Drop for Area {
        fn drop(&mut self) {
            // SAFETY: mapped in `new`, and nothing refers to it any more.
            unsafe { libc::munmap(self.start as *mut _, (self.pages * PAGE) as usize) };
        }
    }

    fn has_scan() -> bool {
        scan_runs(
            &File::open("/proc/self/pagemap").unwrap(),
            Wanted::Memory,
            0,
            PAGE,
        )
        .is_ok()
    }

    #[test]
    fn pages_that_were_written_are_present_and_no_others() {
        let area = Area::new(64, libc::MAP_PRIVATE);
        for page in [0, 1, 2, 10, 63].into_iter().chain(20..40) {
            area.write(page);
        }
        let expected = vec![(0, 3), (10, 11), (20, 40), (63, 64)];
        assert_eq!(area.runs(), [expected.clone(), expected]);
    }

    #[test]
    fn a_run_is_free_up_to_a_page_or_a_guard() {
        const MADV_GUARD_INSTALL: i32 = 102;
        let area = Area::new(16, libc::MAP_PRIVATE);
        let table = PageTable::open(std::process::id() as Pid).unwrap();
        let free = |from: u64| table.free_run(area.start + from * PAGE, (16 - from) as usize);
        assert_eq!(free(0).unwrap(), 16);
        area.write(10);
        assert_eq!(free(0).unwrap(), 10);
        assert_eq!(free(10).unwrap(), 0);
        // SAFETY: a page of the test's own, which nobody touches.
        let has_guards =
            unsafe { libc::madvise(area.page(5).cast(), PAGE as usize, MADV_GUARD_INSTALL) == 0 };
        if !has_guards {
            return pleat_testing::skip("the rest: the kernel has no guards");
        }
        assert_eq!(free(0).unwrap(), 5);
        assert_eq!(free(6).unwrap(), 4);
    }

    #[test]
    fn pages_that_were_only_read_hold_nothing() {
        let area = Area::new(64, libc::MAP_PRIVATE);
        area.read(5);
        area.write(7);
        if has_scan() {
            assert_eq!(area.runs()[0], vec![(7, 8)]);
        }
    }

    #[test]
    fn shared_memory_is_not_anonymous() {
        let area = Area::new(64, libc::MAP_SHARED);
        area.write(5);
        assert_eq!(area.runs(), [vec![], vec![]]);
    }

    #[test]
    fn more_runs_than_one_call_returns_are_all_found() {
        let area = Area::new(4 * REGIONS as u64 + 10, libc::MAP_PRIVATE);
        let expected: Vec<Run> = (0..area.pages)
            .step_by(2)
            .map(|page| (page, page + 1))
            .collect();
        for &(page, _) in &expected {
            area.write(page);
        }
        assert_eq!(area.runs(), [expected.clone(), expected]);
    }

    #[test]
    fn unaligned_addresses_are_refused() {
        let error = present_anon_runs(std::process::id() as Pid, 1, PAGE).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}
