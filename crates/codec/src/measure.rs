//! What codecs cost on real pages: nanoseconds and bytes per page, on one thread.
//!
//! `pleat bench codec` and `cargo bench -p pleat-codec` print what [`measure`] finds. Pages go through
//! [`Folder`], as in the engine: repeated words and pages kept raw are part of the figures.
//!
//! The method. All pools are gone through with one codec, then with the next, so that between two
//! uses of a page everything else has been through the caches: pages and compressed bytes come from
//! where the size of all pools puts them (32 MiB of pools: mostly memory, as in a pager), while the
//! codec's tables and the one output buffer stay near. Compressed bytes lie packed, as in a store.
//! Of [`PASSES`] passes, each beginning with another codec so that noise meets all alike, every pool
//! keeps the median. Two passes go before: one warms up, one checks that every page comes back.

mod pool;
mod random;
mod table;
mod typical;

pub use pool::{Pool, PoolError};
pub use random::Random;
pub use table::table;
pub use typical::typical_pools;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use pleat_types::{CodecId, Page, PAGE_SIZE};

use crate::{Choice, CodecError, Folded, Folder, PageKind, UnknownChoice};

/// Timed passes; odd, so that the median is one of them.
pub const PASSES: usize = 7;

/// A pool with fewer pages is gone through several times per pass: the clock reads to some 30 ns.
const PAGES_PER_PASS_MIN: usize = 64;

/// What one codec does to one pool of pages. Times and bytes are means per page.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Name of the [`Choice`].
    pub codec: String,
    /// Name of the pool.
    pub pool: String,
    /// How many pages the pool has.
    pub pages: usize,
    /// Nanoseconds to fold a page.
    pub compress_ns: f64,
    /// Nanoseconds to unfold a page.
    pub decompress_ns: f64,
    /// Bytes stored per page: none for one repeated word, 4096 for a page kept raw.
    pub bytes: f64,
    /// How many pages repeat one word.
    pub same_pages: usize,
    /// How many pages were kept raw.
    pub raw_pages: usize,
}

/// Why there is no measurement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MeasureError {
    /// A name that is no choice.
    #[error(transparent)]
    UnknownCodec(#[from] UnknownChoice),
    /// A page did not come back the same: a bug in the codec.
    #[error("{codec} changed page {page} of {pool}; please report this with the file")]
    Changed {
        /// Name of the [`Choice`].
        codec: String,
        /// Name of the pool.
        pool: String,
        /// Number of the page in the pool, from 0.
        page: usize,
    },
    /// A codec refused what it wrote itself: a bug in the codec.
    #[error(
        "{codec} cannot read what it wrote of {pool} ({error}); please report this with the file"
    )]
    Refused {
        /// Name of the [`Choice`].
        codec: String,
        /// Name of the pool.
        pool: String,
        /// What it said.
        error: CodecError,
    },
}

/// Measures each of `codecs`, names of [`Choice`]s, on each of `pools`; ordered by pool, then codec.
/// Empty pools are left out.
///
/// Holds all the compressed pages of all codecs at once. Takes about 20 times as long as compressing
/// and decompressing every page once with each.
///
/// `done` is told of pages that a codec has gone through once more, [`passes`] of them in all.
///
/// # Errors
/// A name that is no choice, or a page that did not come back the same.
pub fn measure(
    pools: &[Pool],
    codecs: &[&str],
    done: &dyn Fn(u64),
) -> Result<Vec<Measured>, MeasureError> {
    let mut subjects = Vec::new();
    for codec in codecs {
        let of_codec = pools
            .iter()
            .filter(|pool| !pool.pages.is_empty())
            .map(|pool| Subject::new(pool, codec));
        subjects.push(of_codec.collect::<Result<Vec<_>, _>>()?);
    }
    for subject in subjects.iter_mut().flatten() {
        subject.compress_pass();
        subject.check_pass()?;
        done(subject.pages());
    }
    for pass in 0..PASSES {
        for turn in 0..codecs.len() {
            for subject in &mut subjects[(turn + pass) % codecs.len()] {
                let ns = subject.compress_pass();
                subject.compress_ns.push(ns);
                let ns = subject.decompress_pass()?;
                subject.decompress_ns.push(ns);
                done(subject.pages());
            }
        }
    }
    let of_pool = |pool| subjects.iter().filter_map(move |s| s.get(pool));
    let measured = (0..pools.len()).flat_map(of_pool);
    Ok(measured.map(Subject::measured).collect())
}

/// How many pages [`measure`] goes through, each as often as it does so.
pub fn passes(pools: &[Pool], codecs: &[&str]) -> u64 {
    let pages: usize = pools.iter().map(|pool| pool.pages.len()).sum();
    (pages * codecs.len() * (1 + PASSES)) as u64
}

/// For each codec the figures over all pages of all pools, in the order of the codecs. The pool is
/// called `all`.
pub fn totals(measured: &[Measured]) -> Vec<Measured> {
    let mut totals: Vec<Measured> = Vec::new();
    for one in measured {
        let Some(total) = totals.iter_mut().find(|total| total.codec == one.codec) else {
            totals.push(Measured {
                pool: "all".into(),
                ..one.clone()
            });
            continue;
        };
        let pages = total.pages + one.pages;
        let mean = |a: f64, b: f64| (a * total.pages as f64 + b * one.pages as f64) / pages as f64;
        *total = Measured {
            compress_ns: mean(total.compress_ns, one.compress_ns),
            decompress_ns: mean(total.decompress_ns, one.decompress_ns),
            bytes: mean(total.bytes, one.bytes),
            pages,
            same_pages: total.same_pages + one.same_pages,
            raw_pages: total.raw_pages + one.raw_pages,
            ..total.clone()
        };
    }
    totals
}

/// A pool of pages of one word teaches nothing, however often it is shown.
const LEARNING_PASSES_MAX: usize = 64;

/// One codec on one pool. Each has a folder and a choice of its own, as a job has: what an adaptive
/// choice learns from one pool does not help it with another.
struct Subject<'a> {
    pool: &'a Pool,
    codec: &'a str,
    choice: Arc<Choice>,
    folder: Folder,
    /// What each page became, in order; their bytes stand in `bytes` one after the other.
    folded: Vec<Folded>,
    bytes: Vec<u8>,
    compress_ns: Vec<f64>,
    decompress_ns: Vec<f64>,
}

impl<'a> Subject<'a> {
    fn new(pool: &'a Pool, codec: &'a str) -> Result<Self, UnknownChoice> {
        let choice = Arc::new(Choice::parse(codec)?);
        Ok(Subject {
            pool,
            codec,
            folder: Folder::new(&choice),
            choice,
            folded: Vec::new(),
            bytes: Vec::new(),
            compress_ns: Vec::new(),
            decompress_ns: Vec::new(),
        })
    }

    fn rounds(&self) -> usize {
        PAGES_PER_PASS_MIN.div_ceil(self.pool.pages.len())
    }

    /// Shows a choice that learns from pages as many as it wants to see.
    fn let_learn(&mut self) {
        let mut out = [0; PAGE_SIZE];
        for _ in 0..LEARNING_PASSES_MAX {
            if !self.choice.wants_pages() {
                break;
            }
            for page in &self.pool.pages {
                self.folder.fold(page, PageKind::Anonymous, &mut out);
            }
        }
        self.choice.learn();
    }

    /// Keeps every page compressed, for the decompressing passes, and compares it with what comes
    /// back.
    fn check_pass(&mut self) -> Result<(), MeasureError> {
        self.let_learn();
        let (mut out, mut back) = ([0; PAGE_SIZE], [0; PAGE_SIZE]);
        for (number, page) in self.pool.pages.iter().enumerate() {
            let folded = self.folder.fold(page, PageKind::Anonymous, &mut out);
            let bytes = &out[..stored_bytes(folded)];
            back.fill(0x5A);
            unfold(&mut self.folder, folded, bytes, &mut back).map_err(|e| self.refused(e))?;
            if back != *page {
                return Err(MeasureError::Changed {
                    codec: self.codec.into(),
                    pool: self.pool.name.clone(),
                    page: number,
                });
            }
            self.folded.push(folded);
            self.bytes.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn pages(&self) -> u64 {
        self.pool.pages.len() as u64
    }

    /// Nanoseconds per page.
    fn compress_pass(&mut self) -> f64 {
        let mut out = [0; PAGE_SIZE];
        let start = Instant::now();
        for _ in 0..self.rounds() {
            for page in &self.pool.pages {
                black_box(self.folder.fold(page, PageKind::Anonymous, &mut out));
                black_box(&out);
            }
        }
        self.per_page(start)
    }

    /// Nanoseconds per page.
    fn decompress_pass(&mut self) -> Result<f64, MeasureError> {
        let mut back = [0; PAGE_SIZE];
        let start = Instant::now();
        for _ in 0..self.rounds() {
            let mut at = 0;
            for &folded in &self.folded {
                let end = at + stored_bytes(folded);
                unfold(&mut self.folder, folded, &self.bytes[at..end], &mut back)
                    .map_err(|e| self.refused(e))?;
                black_box(&back);
                at = end;
            }
        }
        Ok(self.per_page(start))
    }

    fn per_page(&self, start: Instant) -> f64 {
        let pages = self.rounds() * self.pool.pages.len();
        start.elapsed().as_nanos() as f64 / pages as f64
    }

    fn refused(&self, error: CodecError) -> MeasureError {
        MeasureError::Refused {
            codec: self.codec.into(),
            pool: self.pool.name.clone(),
            error,
        }
    }

    fn measured(&self) -> Measured {
        let count = |wanted: fn(&Folded) -> bool| self.folded.iter().filter(|f| wanted(f)).count();
        Measured {
            codec: self.codec.into(),
            pool: self.pool.name.clone(),
            pages: self.folded.len(),
            compress_ns: median(&self.compress_ns),
            decompress_ns: median(&self.decompress_ns),
            bytes: self.bytes.len() as f64 / self.folded.len() as f64,
            same_pages: count(|folded| matches!(folded, Folded::Same(_))),
            raw_pages: count(
                |folded| matches!(folded, Folded::Bytes { codec, .. } if *codec == CodecId::RAW),
            ),
        }
    }
}

fn unfold(
    folder: &mut Folder,
    folded: Folded,
    bytes: &[u8],
    page: &mut Page,
) -> Result<(), CodecError> {
    match folded {
        Folded::Same(word) => {
            folder.fill_same(word, page);
            Ok(())
        }
        Folded::Bytes { codec, .. } => folder.unfold(codec, bytes, page),
    }
}

fn stored_bytes(folded: Folded) -> usize {
    match folded {
        Folded::Same(_) => 0,
        Folded::Bytes { len, .. } => len,
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, pages: Vec<Page>) -> Pool {
        Pool {
            name: name.into(),
            pages,
        }
    }

    fn noise() -> Page {
        let mut random = Random::new(1);
        std::array::from_fn(|_| random.next() as u8)
    }

    #[test]
    fn repeated_words_cost_nothing_and_pages_kept_raw_a_page() {
        let pools = [
            pool(
                "mixed",
                vec![[0; PAGE_SIZE], noise(), [7; PAGE_SIZE], noise()],
            ),
            pool("empty", vec![]),
            pool("raw", vec![noise()]),
        ];
        for measured in measure(&pools, Choice::names(), &|_| ()).expect("every page comes back") {
            let figures = (measured.pages, measured.same_pages, measured.raw_pages);
            let (expected, bytes) = match measured.pool.as_str() {
                "mixed" => ((4, 2, 2), 2048.0),
                "raw" => ((1, 0, 1), 4096.0),
                other => panic!("nothing to measure in {other}"),
            };
            assert_eq!((figures, measured.bytes), (expected, bytes), "{measured:?}");
            assert!(measured.compress_ns > 0.0 && measured.decompress_ns > 0.0);
        }
    }

    #[test]
    fn figures_come_by_pool_and_then_by_codec() {
        let pools = [pool("a", vec![noise()]), pool("b", vec![noise()])];
        let measured = measure(&pools, Choice::names(), &|_| ()).expect("every page comes back");
        let found = measured.iter().map(|m| (m.pool.as_str(), m.codec.as_str()));
        let expected = ["a", "b"]
            .iter()
            .flat_map(|pool| Choice::names().iter().map(move |codec| (*pool, *codec)));
        assert!(found.eq(expected), "{measured:?}");
    }

    #[test]
    fn a_name_that_is_no_codec_is_an_error() {
        let error =
            measure(&[pool("a", vec![noise()])], &["lz4", "lz5"], &|_| ()).expect_err("no lz5");
        assert!(matches!(error, MeasureError::UnknownCodec(_)), "{error}");
    }

    #[test]
    fn totals_are_means_over_pages_and_not_over_pools() {
        let one = |codec: &str, pages, ns, bytes| Measured {
            codec: codec.into(),
            pool: "p".into(),
            pages,
            compress_ns: ns,
            decompress_ns: ns / 2.0,
            bytes,
            same_pages: 1,
            raw_pages: 2,
        };
        let totals = totals(&[
            one("x", 10, 1000.0, 400.0),
            one("y", 10, 10.0, 4.0),
            one("x", 30, 2000.0, 800.0),
        ]);
        let expected = Measured {
            pool: "all".into(),
            same_pages: 2,
            raw_pages: 4,
            ..one("x", 40, 1750.0, 700.0)
        };
        assert_eq!(totals[0], expected);
        assert_eq!((totals.len(), totals[1].pages), (2, 10));
    }

    #[test]
    fn the_median_is_not_moved_by_one_disturbed_pass() {
        assert_eq!(median(&[3.0, 900.0, 1.0, 2.0, 4.0]), 3.0);
    }
}
