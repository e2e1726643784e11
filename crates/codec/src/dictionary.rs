//! The zstd dictionary of a job: samples of its first pages, training once there are enough, and what
//! came of it. Lives in the [`crate::Choice`] that the folding threads share.
//!
//! No thread waits for another here: a page that comes while another thread takes a sample is no
//! sample, and while one trains, the others go on without dictionary.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use pleat_types::{Page, PAGE_SIZE};
use zstd_safe::{CDict, DDict};

use crate::{Codec, Zstd, ZstdWithDictionary, KEEP_BYTES_MAX};

/// One page in so many is a sample, so that they are of more than one place and time.
const SAMPLE_EVERY: usize = 8;
/// Bytes of samples to train from: some 60 times the dictionary, as the library advises.
const SAMPLES_BYTES: usize = 1 << 20;
/// The last samples are not trained from: they tell whether the dictionary is of use.
const TRIAL_BYTES: usize = SAMPLES_BYTES / 8;
/// A dictionary is used when it leaves at most so many hundredths of the bytes of the trial. Where
/// pages have little in common, frames with one can be longer than those without.
const USEFUL_PERCENT: usize = 98;
/// What the library allocates while it trains, measured.
const TRAINING_BYTES: usize = 12 << 20;
/// Larger ones find little more in pages of 4 KiB; 8 KiB leave up to two per cent more bytes.
const DICTIONARY_BYTES_MAX: usize = 16 << 10;

/// What was trained, prepared for both directions.
pub(crate) struct Dictionary {
    to_encode: CDict<'static>,
    to_decode: DDict<'static>,
}

impl Dictionary {
    /// Trains from `samples`, pages one behind the other. `None` when they have too little in common.
    pub fn train(samples: &[u8], level: i32) -> Option<Dictionary> {
        let mut bytes = vec![0; DICTIONARY_BYTES_MAX];
        let sizes = vec![PAGE_SIZE; samples.len() / PAGE_SIZE];
        let samples = &samples[..sizes.len() * PAGE_SIZE];
        let len = zstd_safe::train_from_buffer(&mut bytes[..], samples, &sizes).ok()?;
        bytes.truncate(len);
        Some(Dictionary {
            to_encode: CDict::try_create(&bytes, level)?,
            to_decode: DDict::try_create(&bytes)?,
        })
    }

    /// Whether `pages`, one behind the other, become noticeably shorter with it than at `level` alone.
    fn is_of_use(&self, pages: &[u8], level: i32) -> bool {
        let bytes_with = |codec: &mut dyn Codec| -> usize {
            let mut out = [0; KEEP_BYTES_MAX];
            let (pages, _) = pages.as_chunks();
            let bytes = pages.iter().map(|page| codec.compress(page, &mut out));
            bytes.map(|len| len.unwrap_or(PAGE_SIZE)).sum()
        };
        let without = bytes_with(&mut Zstd::new(level));
        bytes_with(&mut ZstdWithDictionary::new(self)) * 100 <= without * USEFUL_PERCENT
    }

    /// For compression at the level it was trained for.
    pub fn to_encode(&self) -> &CDict<'static> {
        &self.to_encode
    }

    /// For decompression.
    pub fn to_decode(&self) -> &DDict<'static> {
        &self.to_decode
    }

    fn bytes_held(&self) -> usize {
        self.to_encode.sizeof() + self.to_decode.sizeof()
    }
}

/// On the way to a dictionary, or there.
pub(crate) struct Training {
    level: i32,
    /// Pages offered until there were enough samples.
    offered: AtomicUsize,
    enough: AtomicBool,
    /// Somebody makes the dictionary, or has.
    learning: AtomicBool,
    /// `None` once they are being learnt from.
    samples: Mutex<Option<Vec<u8>>>,
    /// Contexts borrow it for as long as they live, so it is never freed: a process has one job, and a
    /// job has at most one dictionary.
    trained: OnceLock<&'static Dictionary>,
    bytes_held: AtomicUsize,
}

impl Training {
    /// For compression at `level`; allocates nothing yet.
    pub fn new(level: i32) -> Training {
        Training {
            level,
            offered: AtomicUsize::new(0),
            enough: AtomicBool::new(false),
            learning: AtomicBool::new(false),
            samples: Mutex::new(Some(Vec::new())),
            trained: OnceLock::new(),
            bytes_held: AtomicUsize::new(0),
        }
    }

    /// The dictionary, once there is one.
    pub fn dictionary(&self) -> Option<&'static Dictionary> {
        self.trained.get().copied()
    }

    /// Bytes of samples, or of the dictionary, prepared for both directions.
    pub fn bytes_held(&self) -> usize {
        self.bytes_held.load(Ordering::Relaxed)
    }

    /// Takes `page` for a sample, if one is wanted.
    ///
    /// Cost: a read when enough were taken; else a count, and for one page in [`SAMPLE_EVERY`] a copy.
    pub fn offer(&self, page: &Page) {
        if self.enough.load(Ordering::Relaxed) {
            return;
        }
        let before = self.offered.fetch_add(1, Ordering::Relaxed);
        if before.is_multiple_of(SAMPLE_EVERY) {
            self.add(page);
        }
    }

    fn add(&self, page: &Page) {
        let Ok(mut guard) = self.samples.try_lock() else {
            return;
        };
        let Some(samples) = guard.as_mut().filter(|s| s.len() < SAMPLES_BYTES) else {
            return;
        };
        if samples.is_empty() {
            samples.reserve_exact(SAMPLES_BYTES);
            self.bytes_held.store(SAMPLES_BYTES, Ordering::Relaxed);
        }
        samples.extend_from_slice(page);
        let enough = samples.len() >= SAMPLES_BYTES;
        self.enough.store(enough, Ordering::Release);
    }

    /// Whether there are not enough samples yet.
    pub fn wants_pages(&self) -> bool {
        !self.enough.load(Ordering::Acquire)
    }

    /// Bytes that [`Training::learn`] will need beside the samples, once there are enough of them and
    /// until somebody learns.
    pub fn due(&self) -> Option<usize> {
        let enough = self.enough.load(Ordering::Acquire);
        (enough && !self.learning.load(Ordering::Relaxed)).then_some(TRAINING_BYTES)
    }

    /// Makes the dictionary, if it is due. Takes some 100 ms, twice that at the highest levels.
    /// Answers whether this call made it.
    pub fn learn(&self) -> bool {
        if self.due().is_none() || self.learning.swap(true, Ordering::Relaxed) {
            return false;
        }
        let samples = self
            .samples
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(samples) = samples {
            self.train(&samples);
        }
        true
    }

    fn train(&self, samples: &[u8]) {
        let hold = |bytes| self.bytes_held.store(bytes, Ordering::Relaxed);
        hold(samples.len() + TRAINING_BYTES);
        let (samples, trial) = samples.split_at(samples.len() - TRIAL_BYTES);
        let dictionary = Dictionary::train(samples, self.level)
            .filter(|dictionary| dictionary.is_of_use(trial, self.level));
        hold(dictionary.as_ref().map_or(0, Dictionary::bytes_held));
        if let Some(dictionary) = dictionary {
            // Nobody else sets it: the samples were taken out once.
            self.trained.get_or_init(|| Box::leak(Box::new(dictionary)));
        }
    }
}

impl std::fmt::Debug for Training {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let held = self.bytes_held();
        write!(
            f,
            "Training {{ level: {}, bytes_held: {held} }}",
            self.level
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use crate::zstd::LEVELS;

    fn pages_of(page: fn(u64) -> Page) -> Vec<Page> {
        (0..256).map(page).collect()
    }

    #[test]
    fn a_dictionary_prepared_for_any_level_takes_less_than_its_samples() {
        let pages = pages_of(testing::text_page);
        for level in LEVELS {
            let dictionary = Dictionary::train(pages.as_flattened(), level).expect("good samples");
            assert!(dictionary.bytes_held() < SAMPLES_BYTES, "level {level}");
        }
    }

    #[test]
    fn only_a_dictionary_of_use_is_kept() {
        let offered = |pages: &[Page]| {
            let training = Training::new(1);
            for page in pages {
                for _ in 0..SAMPLE_EVERY {
                    training.offer(page);
                    training.learn();
                }
            }
            assert!(training.bytes_held() < SAMPLES_BYTES, "samples are freed");
            training.dictionary().is_some()
        };
        assert!(offered(&pages_of(testing::text_page)));
        assert!(!offered(&pages_of(testing::noise)));
    }

    #[test]
    fn threads_that_offer_at_once_train_one_dictionary() {
        let training = Training::new(1);
        let offer_many = || {
            for seed in 0..4000 {
                training.offer(&testing::text_page(seed));
                training.learn();
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(offer_many);
            }
        });
        let dictionary = training.dictionary().expect("enough samples, and of use");
        assert_eq!(training.bytes_held(), dictionary.bytes_held());
    }

    #[test]
    fn a_thread_that_finds_the_samples_taken_goes_on() {
        let training = Training::new(1);
        let guard = training.samples.lock().expect("nobody panicked");
        training.offer(&testing::text_page(1));
        drop(guard);
        assert_eq!(training.bytes_held(), 0);
    }
}
