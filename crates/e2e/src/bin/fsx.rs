//! A file exerciser after the idea of fsx (Apple, NeXT): random reads, writes, truncations, mapped
//! accesses and holes on one file, each compared with a model of it in memory.
//!
//! ```text
//! fsx [--ops N] [--size MAX] [--seed S] [--threads T] [--flip-after N] FILE
//! ```
//!
//! MAX may end in K, M or G. Every thread has a file of its own: FILE, FILE.1, FILE.2 ... The same seed
//! gives the same operations. On a mismatch it prints the last operations and ends with status 1; the file
//! is left for inspection. `--flip-after N` flips a byte behind the model's back, which has to be noticed.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// One operation touches at most so much.
const SPAN_MAX: u64 = 128 << 10;
/// So many operations are shown when something is wrong.
const LOG_TAIL: usize = 60;
const USAGE: &str =
    "usage: fsx [--ops N] [--size MAX] [--seed S] [--threads T] [--flip-after N] FILE";

struct Args {
    ops: u64,
    size_max: u64,
    seed: u64,
    threads: u64,
    flip_after: Option<u64>,
    file: PathBuf,
}

fn main() -> ExitCode {
    let Some(args) = Args::parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads)
            .map(|number| {
                let args = &args;
                scope.spawn(move || exercise(args, number))
            })
            .collect();
        let ended = threads.into_iter().map(|t| t.join());
        ended.map(|r| r.expect("no panic")).collect()
    });
    let failures: Vec<&String> = results.iter().filter_map(|r| r.as_ref().err()).collect();
    failures.iter().for_each(|failure| eprintln!("{failure}"));
    if failures.is_empty() {
        println!(
            "ok fsx: {} threads, {} operations each",
            args.threads, args.ops
        );
        return ExitCode::SUCCESS;
    }
    ExitCode::FAILURE
}

impl Args {
    fn parse(mut words: impl Iterator<Item = String>) -> Option<Args> {
        let (mut ops, mut size_max, mut seed, mut threads) = (10_000, 1 << 20, 1, 1);
        let (mut flip_after, mut file) = (None, None);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--ops" => ops = words.next()?.parse().ok()?,
                "--size" => size_max = size(&words.next()?)?,
                "--seed" => seed = words.next()?.parse().ok()?,
                "--threads" => threads = words.next()?.parse().ok()?,
                "--flip-after" => flip_after = Some(words.next()?.parse().ok()?),
                flag if flag.starts_with('-') => return None,
                _ if file.is_some() => return None,
                _ => file = Some(PathBuf::from(word)),
            }
        }
        (size_max > 0 && threads > 0).then_some(())?;
        Some(Args {
            ops,
            size_max,
            seed,
            threads,
            flip_after,
            file: file?,
        })
    }
}

fn size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// One thread's work: all operations on its file, then the whole file once more.
fn exercise(args: &Args, number: u64) -> Result<(), String> {
    let path = match number {
        0 => args.file.clone(),
        n => PathBuf::from(format!("{}.{n}", args.file.display())),
    };
    let mut fsx = Exerciser::new(path, args.seed.wrapping_add(number << 32), args.size_max)
        .map_err(|e| format!("fsx: {}: {e}", args.file.display()))?;
    for op in 0..args.ops {
        if args.flip_after == Some(op) && number == 0 {
            fsx.flip_a_byte().map_err(|why| fsx.report(&why))?;
        }
        fsx.step().map_err(|why| fsx.report(&why))?;
    }
    fsx.reopen().map_err(|e| fsx.report(&e.to_string()))?;
    fsx.check_all().map_err(|why| fsx.report(&why))
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A file, and what must be in it.
struct Exerciser {
    path: PathBuf,
    file: File,
    /// Of the largest size the file may have; only what is below the end of file is touched.
    map: Map,
    model: Vec<u8>,
    size_max: u64,
    random: Random,
    seed: u64,
    done: u64,
    log: VecDeque<String>,
    can_punch: bool,
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path)
}

impl Exerciser {
    fn new(path: PathBuf, seed: u64, size_max: u64) -> io::Result<Exerciser> {
        let file = open(&path)?;
        file.set_len(0)?;
        Ok(Exerciser {
            map: Map::of(&file, size_max)?,
            file,
            path,
            model: vec![],
            size_max,
            random: Random(seed),
            seed,
            done: 0,
            log: VecDeque::new(),
            can_punch: true,
        })
    }

    /// One random operation.
    fn step(&mut self) -> Result<(), String> {
        self.done += 1;
        let done = match self.random.below(100) {
            0..20 => return self.read(),
            20..35 => return self.read_mapped(),
            35..58 => self.write(),
            58..73 => self.write_mapped(),
            73..80 => self.append(),
            80..83 => self.truncate_down(),
            83..86 => self.truncate_up(),
            86..91 => self.punch(),
            91..96 => self.sync(),
            _ => self.close_and_open(),
        };
        done.map_err(|error| error.to_string())
    }

    fn note(&mut self, what: String) {
        if self.log.len() == LOG_TAIL {
            self.log.pop_front();
        }
        self.log.push_back(format!("{:8} {what}", self.done));
    }

    /// Somewhere below the largest size, or below the end of file.
    fn range(&mut self, below: u64) -> Range<u64> {
        let start = self.random.below(below);
        let length = 1 + self.random.below(SPAN_MAX);
        let mut range = start..below.min(start + length);
        if self.random.below(3) == 0 {
            range = range.start & !4095..(range.end.next_multiple_of(4096)).min(below);
        }
        range
    }

    fn range_in_file(&mut self) -> Option<Range<u64>> {
        match self.model.len() as u64 {
            0 => None,
            size => Some(self.range(size)),
        }
    }

    fn read(&mut self) -> Result<(), String> {
        let Some(range) = self.range_in_file() else {
            return Ok(());
        };
        self.note(format!("read {range:x?}"));
        let mut found = vec![0; (range.end - range.start) as usize];
        let got = self.file.read_exact_at(&mut found, range.start);
        got.map_err(|e| format!("read {range:x?}: {e}"))?;
        self.compare("read", range, &found)
    }

    fn read_mapped(&mut self) -> Result<(), String> {
        let Some(range) = self.range_in_file() else {
            return Ok(());
        };
        self.note(format!("mapped read {range:x?}"));
        let found = self.map.read(range.clone());
        self.compare("mapped read", range, &found)
    }

    /// New content: pages of one word, text, or noise, so that it compresses in every way.
    fn content(&mut self, length: u64) -> Vec<u8> {
        let (kind, word) = (self.random.below(4), self.random.next());
        let text = format!("operation {} of seed {}; ", self.done, self.seed);
        let byte = |at: u64| text.as_bytes()[at as usize % text.len()];
        match kind {
            0 => (0..length).map(|_| self.random.next() as u8).collect(),
            1 => (0..length)
                .map(|at| word.to_le_bytes()[at as usize % 8])
                .collect(),
            _ => (0..length).map(byte).collect(),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let range = self.range(self.size_max);
        self.write_at("write", range)
    }

    fn append(&mut self) -> io::Result<()> {
        let end = self.model.len() as u64;
        let length = 1 + self.random.below(SPAN_MAX);
        self.write_at("append", end..(end + length).min(self.size_max))
    }

    fn write_at(&mut self, what: &str, range: Range<u64>) -> io::Result<()> {
        self.note(format!("{what} {range:x?}"));
        let bytes = self.content(range.end - range.start);
        self.file.write_all_at(&bytes, range.start)?;
        self.remember(range, &bytes);
        Ok(())
    }

    /// Beyond the end of file only after the file has been made longer.
    fn write_mapped(&mut self) -> io::Result<()> {
        let range = self.range(self.size_max);
        self.note(format!("mapped write {range:x?}"));
        if range.end > self.model.len() as u64 {
            self.file.set_len(range.end)?;
        }
        let bytes = self.content(range.end - range.start);
        self.map.write(range.clone(), &bytes);
        self.remember(range, &bytes);
        match self.random.below(4) {
            0 => self.map.sync(),
            _ => Ok(()),
        }
    }

    fn remember(&mut self, range: Range<u64>, bytes: &[u8]) {
        let size = self.model.len().max(range.end as usize);
        self.model.resize(size, 0);
        self.model[range.start as usize..range.end as usize].copy_from_slice(bytes);
    }

    fn truncate_down(&mut self) -> io::Result<()> {
        let size = self.random.below(self.model.len() as u64 + 1);
        self.truncate(size)
    }

    fn truncate_up(&mut self) -> io::Result<()> {
        let size = self.model.len() as u64;
        let size = size + self.random.below(self.size_max - size + 1);
        self.truncate(size)
    }

    fn truncate(&mut self, size: u64) -> io::Result<()> {
        self.note(format!("truncate {:x} to {size:x}", self.model.len()));
        self.file.set_len(size)?;
        self.model.resize(size as usize, 0);
        Ok(())
    }

    fn punch(&mut self) -> io::Result<()> {
        let range = match self.range_in_file() {
            Some(range) if self.can_punch => range,
            _ => return Ok(()),
        };
        self.note(format!("punch {range:x?}"));
        match punch_hole(&self.file, range.clone()) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                eprintln!("fsx: no holes here: {}", self.path.display());
                self.can_punch = false;
            }
            punched => {
                punched?;
                self.model[range.start as usize..range.end as usize].fill(0);
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.note("fsync".into());
        self.file.sync_all()
    }

    fn close_and_open(&mut self) -> io::Result<()> {
        self.note("close, open".into());
        self.reopen()
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.file = open(&self.path)?;
        self.map = Map::of(&self.file, self.size_max)?;
        Ok(())
    }

    fn flip_a_byte(&mut self) -> Result<(), String> {
        let Some(range) = self.range_in_file() else {
            return Ok(());
        };
        let other = open(&self.path).map_err(|e| e.to_string())?;
        let byte = [!self.model[range.start as usize]];
        let written = other.write_all_at(&byte, range.start);
        written.map_err(|e| e.to_string())?;
        self.check_all()
    }

    fn check_all(&mut self) -> Result<(), String> {
        let size = self.file.metadata().map_err(|e| e.to_string())?.len();
        if size != self.model.len() as u64 {
            return Err(format!("size {size:x}, not {:x}", self.model.len()));
        }
        let mut found = vec![0; self.model.len()];
        let read = self.file.read_exact_at(&mut found, 0);
        read.map_err(|e| e.to_string())?;
        self.compare("the whole file", 0..size, &found)
    }

    fn compare(&self, what: &str, range: Range<u64>, found: &[u8]) -> Result<(), String> {
        let expected = &self.model[range.start as usize..range.end as usize];
        if expected == found {
            return Ok(());
        }
        let differs = |i: &usize| expected[*i] != found[*i];
        let wrong = (0..found.len()).filter(differs);
        let (count, last) = wrong.clone().fold((0, 0), |(n, _), i| (n + 1, i));
        let first = wrong.clone().next().expect("they differ");
        Err(format!(
            "{what} {range:x?}: {count} bytes differ, from {:x} to {:x}; at the first {:02x}, not {:02x}",
            range.start + first as u64,
            range.start + last as u64,
            found[first],
            expected[first],
        ))
    }

    fn report(&self, why: &str) -> String {
        let log: Vec<&str> = self.log.iter().map(String::as_str).collect();
        format!(
            "{}\nMISMATCH in {} after {} operations, seed {}: {why}",
            log.join("\n"),
            self.path.display(),
            self.done,
            self.seed
        )
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn punch_hole(file: &File, range: Range<u64>) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let (start, length) = (range.start as i64, (range.end - range.start) as i64);
    // SAFETY: fallocate takes no pointers, and the descriptor is open as long as `file` is borrowed.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, start, length) })
}

/// A shared mapping. Its file must be at least as long as what is touched.
struct Map {
    start: *mut u8,
    length: usize,
}

impl Map {
    fn of(file: &File, length: u64) -> io::Result<Map> {
        let length = length as usize;
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        let nowhere = std::ptr::null_mut();
        // SAFETY: the kernel chooses the place; the descriptor is open.
        let start = unsafe { libc::mmap(nowhere, length, access, libc::MAP_SHARED, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Map {
            start: start.cast(),
            length,
        })
    }

    fn read(&self, range: Range<u64>) -> Vec<u8> {
        assert!(range.end as usize <= self.length);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        // SAFETY: the range is inside the mapping and, as the caller sees to, inside the file; nothing in
        // this process writes to it now.
        unsafe {
            let from = self.start.add(range.start as usize);
            from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len());
        }
        bytes
    }

    fn write(&mut self, range: Range<u64>, bytes: &[u8]) {
        assert!(range.end as usize <= self.length && bytes.len() as u64 == range.end - range.start);
        // SAFETY: as in `read`.
        unsafe {
            let to = self.start.add(range.start as usize);
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    fn sync(&self) -> io::Result<()> {
        // SAFETY: start and length are those of a live mapping.
        check(unsafe { libc::msync(self.start.cast(), self.length, libc::MS_SYNC) })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: start and length are those of a live mapping, to which nothing refers any more.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}
