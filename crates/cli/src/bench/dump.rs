//! `pleat bench dump`: a random sample of the pages that a process has in memory.
//!
//! Taken are the pages that pleat would fold: private, anonymous, present. The process is neither
//! stopped nor changed; a page that it writes to meanwhile may be torn, which no codec minds.

use crate::args::BenchDumpArgs;
use crate::exit::Stop;
use pleat_codec::measure::Random;
use pleat_sys::procfs::{maps, present_anon_runs, Mapping, MappingKind, Pid};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const PAGE: u64 = 4096;
type Page = [u8; PAGE as usize];

/// Zero pages cost a pager next to nothing, and some programs have little else: one page in ten of
/// the sample may be one.
const ZERO_SHARE: usize = 10;

/// So many pages are looked at for each one wanted, however many are zero.
const LOOKS_PER_PAGE: u64 = 64;

/// Writes the sample, and one line about it.
pub fn dump(raw: &BenchDumpArgs) -> Result<(), Stop> {
    let pid = raw.pid;
    let population = Population::of(pid).map_err(|error| unreadable(pid, &error))?;
    let memory = File::open(format!("/proc/{pid}/mem")).map_err(|error| unreadable(pid, &error))?;
    let sample = sample(&population, raw.pages, raw.seed, |address| {
        let mut page = [0; PAGE as usize];
        memory.read_exact_at(&mut page, address).map(|()| page)
    });
    if sample.pages.is_empty() {
        return Err(Stop::mistake(format!(
            "process {pid} has no private memory to read but zeros: choose one that holds data"
        )));
    }
    write_new(&raw.file, &sample.pages)?;
    // The file is what was asked for; nobody need read the line.
    let _ = writeln!(
        io::stdout(),
        "{}: {} of the {} pages of process {pid}; {:.1} % of {} looked at were zero",
        raw.file.display(),
        sample.pages.len(),
        population.pages,
        100.0 * sample.zeros as f64 / sample.looked as f64,
        sample.looked
    );
    Ok(())
}

/// Writes what may hold secrets: readable by its owner only, and never into a file that others
/// have open.
fn write_new(path: &Path, pages: &[Page]) -> Result<(), Stop> {
    let file = path.display();
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| {
            Stop::mistake(format!(
                "cannot create {file}: {error}: choose another name or directory"
            ))
        })?;
    out.write_all(pages.as_flattened())
        .map_err(|error| Stop::failure(format!("cannot write {file}: {error}")))
}

fn unreadable(pid: Pid, error: &io::Error) -> Stop {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => "give the number of a process that runs ('ps' lists them)",
        io::ErrorKind::PermissionDenied => "run this as root",
        _ => "the process may have ended; try another one",
    };
    Stop::mistake(format!(
        "cannot read the memory of process {pid} ({error}): {remedy}"
    ))
}

/// The pages of a process that can be drawn, numbered in the order of their addresses.
struct Population {
    /// First number and first address of each run of adjacent pages.
    runs: Vec<(u64, u64)>,
    pages: u64,
}

impl Population {
    fn of(pid: Pid) -> io::Result<Population> {
        let mut population = Population {
            runs: Vec::new(),
            pages: 0,
        };
        for mapping in maps(pid)?.iter().filter(|mapping| is_wanted(mapping)) {
            for (start, end) in present_anon_runs(pid, mapping.start, mapping.end)? {
                population.runs.push((population.pages, start));
                population.pages += (end - start) / PAGE;
            }
        }
        Ok(population)
    }

    fn address(&self, number: u64) -> u64 {
        let run = self.runs.partition_point(|(first, _)| *first <= number) - 1;
        let (first, start) = self.runs[run];
        start + (number - first) * PAGE
    }
}

fn is_wanted(mapping: &Mapping) -> bool {
    let kind = matches!(mapping.kind, MappingKind::Anonymous | MappingKind::Heap);
    kind && mapping.readable && mapping.writable && !mapping.shared
}

/// What was drawn.
struct Sample {
    pages: Vec<Page>,
    /// Pages read, those left out included.
    looked: u64,
    /// How many of them were zero.
    zeros: u64,
}

/// Draws until there are `wanted` pages; pages that are gone, and zero pages beyond their share, are
/// passed over. May end with fewer.
fn sample(
    population: &Population,
    wanted: u32,
    seed: u64,
    mut read: impl FnMut(u64) -> io::Result<Page>,
) -> Sample {
    let wanted = wanted as usize;
    let mut sample = Sample {
        pages: Vec::new(),
        looked: 0,
        zeros: 0,
    };
    let mut zeros_kept = 0;
    let looks_max = LOOKS_PER_PAGE * wanted as u64;
    for number in shuffled(population.pages, seed).take(looks_max as usize) {
        let Ok(page) = read(population.address(number)) else {
            continue; // Unmapped since it was listed.
        };
        let zero = page == [0; PAGE as usize];
        sample.looked += 1;
        sample.zeros += u64::from(zero);
        if !zero || zeros_kept < wanted / ZERO_SHARE {
            zeros_kept += usize::from(zero);
            sample.pages.push(page);
        }
        if sample.pages.len() == wanted {
            break;
        }
    }
    // A sample that stayed short has too many zero pages for its size.
    let mut surplus =
        zeros_kept.saturating_sub((sample.pages.len() - zeros_kept) / (ZERO_SHARE - 1));
    sample.pages.retain(|page| {
        let drop = surplus > 0 && *page == [0; PAGE as usize];
        surplus -= usize::from(drop);
        !drop
    });
    sample
}

/// The numbers below `count` in random order: Fisher and Yates's shuffle, of which only the places
/// that were exchanged are remembered.
fn shuffled(count: u64, seed: u64) -> impl Iterator<Item = u64> {
    let mut random = Random::new(seed);
    let mut moved = HashMap::new();
    (0..count).map(move |at| {
        let drawn = at + random.below(count - at);
        let here = moved.remove(&at).unwrap_or(at);
        match drawn == at {
            true => here,
            false => moved.insert(drawn, here).unwrap_or(drawn),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn population(pages: u64) -> Population {
        // Two runs, so that numbers and addresses differ.
        Population {
            runs: vec![(0, 0x10_0000), (pages / 2, 0x90_0000)],
            pages,
        }
    }

    /// Page `number` of the address space; every `zero_every`th is zero.
    fn page_at(address: u64, zero_every: u64) -> Page {
        let mut page = [0; PAGE as usize];
        if !(address / PAGE).is_multiple_of(zero_every) {
            page[..8].copy_from_slice(&address.to_le_bytes());
        }
        page
    }

    #[test]
    fn shuffling_gives_each_number_once_and_another_order_for_another_seed() {
        let order: Vec<u64> = shuffled(1000, 1).collect();
        assert_eq!(order.iter().copied().collect::<BTreeSet<_>>().len(), 1000);
        assert!(order.iter().all(|&number| number < 1000));
        assert_eq!(order, shuffled(1000, 1).collect::<Vec<_>>());
        assert_ne!(order, shuffled(1000, 2).collect::<Vec<_>>());
        // Every number has the same chance to be drawn early.
        let late = order[..500].iter().filter(|&&number| number >= 500).count();
        assert!((200..300).contains(&late), "{late}");
    }

    #[test]
    fn no_page_is_drawn_twice_and_all_of_a_small_process() {
        let mut addresses = BTreeSet::new();
        let drawn = sample(&population(100), 1024, 1, |address| {
            assert!(addresses.insert(address), "{address:x} twice");
            Ok(page_at(address, u64::MAX))
        });
        assert_eq!((drawn.pages.len(), drawn.looked), (100, 100));
        let expected = (0..50).flat_map(|n| [0x10_0000 + n * PAGE, 0x90_0000 + n * PAGE]);
        assert_eq!(addresses, expected.collect());
    }

    #[test]
    fn zero_pages_stay_below_a_tenth_however_many_there_are() {
        for (pages, wanted) in [(10_000, 500), (200, 500), (30, 500)] {
            let drawn = sample(&population(pages), wanted, 3, |at| Ok(page_at(at, 2)));
            let zeros = drawn
                .pages
                .iter()
                .filter(|page| page[..8] == [0; 8])
                .count();
            assert!(
                zeros * ZERO_SHARE <= drawn.pages.len(),
                "{zeros} of {pages}"
            );
            assert!(drawn.pages.len() >= (wanted as usize).min(pages as usize / 2));
        }
    }

    #[test]
    fn a_process_of_zeros_ends_the_search() {
        let drawn = sample(&population(1 << 40), 10, 1, |_| Ok([0; PAGE as usize]));
        assert_eq!((drawn.pages.len(), drawn.looked), (0, LOOKS_PER_PAGE * 10));
    }

    #[test]
    fn pages_that_are_gone_are_passed_over() {
        let drawn = sample(&population(100), 10, 1, |at| match at < 0x90_0000 {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(page_at(at, u64::MAX)),
        });
        assert_eq!(drawn.pages.len(), 10);
    }
}
