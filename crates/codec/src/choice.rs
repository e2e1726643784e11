//! What `--codec` names: which codec compresses which page.

use pleat_types::{CodecId, Page};

use crate::dictionary::{Dictionary, Training};
use crate::lz4::ACCELERATIONS;
use crate::registry::id_of;
use crate::zstd::{LEVELS, LEVEL_DEFAULT};
use crate::{fold, Fold, Lz4, Lzo, Wkdm, Zstd, ZstdWithDictionary};

/// Behind the name of a zstd choice: with a dictionary of the job.
const WITH_DICTIONARY: &str = "+dict";

/// `fold` for pages of words, and those that `lz4` does nothing with; `lz4` for others, which it gets back faster.
const AUTO: &str = "auto";

/// Nothing is compressed: what compression is compared with, and so in no list of codecs.
const RAW: &str = "raw";

/// Where a page's contents come from; some choices compress the two kinds differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// Heap, stack and the like: what swap would hold.
    Anonymous,
    /// A page of a file.
    File,
}

/// The rule by which pages get their codec; shared by the folding threads of a job.
#[derive(Debug)]
pub struct Choice {
    name: String,
    anonymous: CodecId,
    file: CodecId,
    /// `auto`: by what is in the page.
    by_page: bool,
    zstd_level: i32,
    lz4_acceleration: i32,
    training: Option<Training>,
}

/// The name that is no choice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no codec '{name}': choose from {}", Choice::help())]
pub struct UnknownChoice {
    /// The name given.
    pub name: String,
}

impl Choice {
    /// The names [`Choice::parse`] knows, the default first. Of those of zstd with a level or a
    /// dictionary there is one each.
    pub fn names() -> &'static [&'static str] {
        &[
            "auto",
            "fold",
            "lz4",
            "lz4:8",
            "lzo",
            "lzrw1",
            "wkdm",
            "lzowkdm",
            "zstd",
            "zstd:6",
            "zstd:3+dict",
        ]
    }

    /// The names, the default first, for a help text.
    pub fn help() -> String {
        let plain = Choice::names().iter().filter(|n| !n.contains(':'));
        let plain: Vec<&str> = plain.copied().collect();
        let (low, high) = (LEVELS.start(), LEVELS.end());
        let (fast, fastest) = (ACCELERATIONS.start(), ACCELERATIONS.end());
        format!(
            "{}, lz4:ACCELERATION ({fast} to {fastest}), zstd:LEVEL ({low} to {high}), zstd:LEVEL{WITH_DICTIONARY} (learns from the first pages)",
            plain.join(", ")
        )
    }

    /// The choice called `name`: a codec's name; `auto`, for each page the one of `fold` and `lz4` that
    /// suits it; `raw`, none at all; `lzowkdm`, castro03's lzo for pages of files and wkdm
    /// for others; `lz4:ACCELERATION`; `zstd:LEVEL`; or either name of zstd with `+dict` behind it.
    ///
    /// # Errors
    /// When `name` is none of these.
    pub fn parse(name: &str) -> Result<Choice, UnknownChoice> {
        let unknown = || UnknownChoice { name: name.into() };
        let mut choice = Choice {
            name: name.into(),
            anonymous: Zstd::ID,
            file: Zstd::ID,
            by_page: name == AUTO,
            zstd_level: LEVEL_DEFAULT,
            lz4_acceleration: *ACCELERATIONS.start(),
            training: None,
        };
        if name == AUTO {
            // Each page's own.
        } else if name == RAW {
            (choice.anonymous, choice.file) = (CodecId::RAW, CodecId::RAW);
        } else if name == "lzowkdm" {
            (choice.anonymous, choice.file) = (Wkdm::ID, Lzo::ID);
        } else if let Some((level, with_dictionary)) = parse_zstd(name) {
            choice.zstd_level = level.ok_or_else(unknown)?;
            choice.training = with_dictionary.then(|| Training::new(choice.zstd_level));
        } else if let Some(acceleration) = name.strip_prefix("lz4:") {
            let known = |a: &i32| ACCELERATIONS.contains(a);
            let acceleration = acceleration.parse().ok().filter(known);
            choice.lz4_acceleration = acceleration.ok_or_else(unknown)?;
            (choice.anonymous, choice.file) = (Lz4::ID, Lz4::ID);
        } else {
            choice.anonymous = id_of(name).ok_or_else(unknown)?;
            choice.file = choice.anonymous;
        }
        Ok(choice)
    }

    /// The name it was parsed from.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which codec compresses this page now: that changes once a dictionary is trained.
    pub(crate) fn codec_for(&self, page: &Page, kind: PageKind) -> CodecId {
        if self.dictionary().is_some() {
            return ZstdWithDictionary::ID;
        }
        if self.by_page {
            let words = fold::holds_words(page);
            return if words { Fold::ID } else { Lz4::ID };
        }
        match kind {
            PageKind::Anonymous => self.anonymous,
            PageKind::File => self.file,
        }
    }

    /// Which codec is tried on a page with which that one, [`Choice::codec_for`], did nothing. Numbers that are all different
    /// but follow one another, or have top bytes in common, hold no zeros and nothing that was there before.
    pub(crate) fn codec_after(&self, first: CodecId) -> Option<CodecId> {
        (self.by_page && first == Lz4::ID).then_some(Fold::ID)
    }

    /// Which codec compresses pages that stayed cold.
    pub(crate) fn codec_when_cold(&self) -> CodecId {
        if self.dictionary().is_some() {
            ZstdWithDictionary::ID
        } else {
            Zstd::ID
        }
    }

    /// Bytes that the choice itself has allocated. 0 without `+dict`; with it, 1 MiB of samples until
    /// there are enough, some 13 MiB while the dictionary is trained (an estimate; about 100 ms), and
    /// from then on the dictionary as the library prepares it, 100 to 500 KiB by level; 0 if training
    /// came to nothing.
    pub fn bytes_held(&self) -> usize {
        self.training.as_ref().map_or(0, Training::bytes_held)
    }

    /// Shows the choice a page about to be compressed, for it to learn from.
    pub(crate) fn show(&self, page: &Page) {
        if let Some(training) = &self.training {
            training.offer(page);
        }
    }

    /// Whether pages are still looked at to learn from.
    pub(crate) fn wants_pages(&self) -> bool {
        self.training.as_ref().is_some_and(Training::wants_pages)
    }

    /// Bytes of memory that [`Choice::learn`] needs for a moment; `None` while there is nothing to be
    /// learnt. Enough pages were folded for a dictionary, and nobody has made it yet.
    pub fn learning_due(&self) -> Option<usize> {
        self.training.as_ref()?.due()
    }

    /// Makes the dictionary of the job from the pages folded so far, if it is due; until then, and if it
    /// turns out to be of no use, pages are compressed without. Takes some 100 ms. Answers whether it was
    /// this call that learnt.
    pub fn learn(&self) -> bool {
        self.training.as_ref().is_some_and(Training::learn)
    }

    pub(crate) fn lz4_acceleration(&self) -> i32 {
        self.lz4_acceleration
    }

    pub(crate) fn zstd_level(&self) -> i32 {
        self.zstd_level
    }

    /// The dictionary of the job, once there is one.
    pub(crate) fn dictionary(&self) -> Option<&'static Dictionary> {
        self.training.as_ref()?.dictionary()
    }
}

/// The level of a zstd choice (`None` when there is no such level), and whether it has a dictionary;
/// `None` when it is a choice of something else.
fn parse_zstd(name: &str) -> Option<(Option<i32>, bool)> {
    let options = name.strip_prefix(Zstd::NAME)?;
    let (level, with_dictionary) = match options.strip_suffix(WITH_DICTIONARY) {
        Some(level) => (level, true),
        None => (options, false),
    };
    let level = match level.strip_prefix(':') {
        Some(level) => level.parse().ok().filter(|l| *l != 0 && LEVELS.contains(l)),
        None => level.is_empty().then_some(LEVEL_DEFAULT),
    };
    Some((level, with_dictionary))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{testing, Folded, Folder, Lz4};
    use pleat_types::PAGE_SIZE;
    use std::sync::Arc;

    #[test]
    fn auto_takes_fold_for_words_and_lz4_for_text() {
        let auto = Choice::parse(AUTO).expect("listed");
        let codec_for = |page| auto.codec_for(&page, PageKind::Anonymous);
        assert_eq!(codec_for(testing::pointer_page(1)), Fold::ID);
        assert_eq!(codec_for([b'x'; 4096]), Lz4::ID);
    }

    #[test]
    fn auto_leaves_to_fold_what_lz4_does_nothing_with_and_others_leave_nothing() {
        let folded = |name, page: &Page| {
            let choice = Choice::parse(name).expect("listed");
            fold(&mut Folder::new(&Arc::new(choice)), page)
        };
        let mut time = 1_700_000_000_000_000_000u64;
        let times = testing::noise(7);
        let times = times[..PAGE_SIZE / 8].iter().flat_map(|&step| {
            time += 0x0123_4567 * (1 + u64::from(step));
            time.to_le_bytes()
        });
        let page: Page = times.collect::<Vec<u8>>().try_into().expect("a page");
        let (codec, bytes) = folded(AUTO, &page);
        assert!(codec == Fold::ID && bytes.len() < 3000, "{}", bytes.len());
        assert_eq!(folded("lz4", &page), (CodecId::RAW, page.to_vec()));
        let noise = testing::noise(8);
        assert_eq!(folded(AUTO, &noise), (CodecId::RAW, noise.to_vec()));
    }

    #[test]
    fn every_listed_name_is_a_choice_and_no_other() {
        for name in Choice::names() {
            assert_eq!(Choice::parse(name).expect("listed").name(), *name);
        }
        for name in ["zstd:-5", "zstd:19", "zstd+dict", "zstd:-1+dict"] {
            assert_eq!(Choice::parse(name).expect("described").name(), name);
        }
        for name in [
            "", "zstd:", "zstd:0", "zstd:20", "zstd:-6", "lz4:0", "lz4:x", "zstd:3+", "zstd1",
            "lz4+dict",
        ] {
            assert!(Choice::parse(name).is_err(), "{name}");
        }
        let unknown = Choice::parse("lz5").expect_err("no such codec");
        assert!(unknown.to_string().contains("lz4, "), "{unknown}");
    }

    #[test]
    fn lzowkdm_is_wkdm_but_lzo_for_pages_of_files() {
        let codecs = |name| {
            let choice = Choice::parse(name).expect("listed");
            [PageKind::Anonymous, PageKind::File]
                .map(|kind| choice.codec_for(&testing::text_page(1), kind))
        };
        assert_eq!(codecs("lzowkdm"), [Wkdm::ID, Lzo::ID]);
        assert_eq!(codecs("lz4"), [Lz4::ID; 2]);
    }

    fn fold(folder: &mut Folder, page: &Page) -> (CodecId, Vec<u8>) {
        let mut out = [0; PAGE_SIZE];
        match folder.fold(page, PageKind::Anonymous, &mut out) {
            Folded::Bytes { codec, len } => (codec, out[..len].to_vec()),
            Folded::Same(_) => panic!("not of one word"),
        }
    }

    #[test]
    fn a_dictionary_is_trained_once_and_both_kinds_of_pages_come_back_in_every_folder() {
        let choice = Arc::new(Choice::parse("zstd:3+dict").expect("listed"));
        let mut folders = [0; 3].map(|_| Folder::new(&choice));
        assert_eq!(choice.bytes_held(), 0);
        let mut folded = Vec::new();
        for seed in 0..2200 {
            let folder = &mut folders[seed % 3];
            folded.push(fold(folder, &testing::text_page(seed as u64)));
            choice.learn();
        }
        assert_eq!(folded[0].0, Zstd::ID);
        assert_eq!(folded[2199].0, ZstdWithDictionary::ID);
        let switched = folded.iter().filter(|(id, _)| *id == Zstd::ID).count();
        assert_eq!(
            folded[switched].0,
            ZstdWithDictionary::ID,
            "only one switch"
        );
        assert!(folded[2199].1.len() < folded[0].1.len(), "of use");
        assert!(choice.bytes_held() > 0);
        for (seed, (codec, bytes)) in folded.iter().enumerate() {
            let mut page = [0; PAGE_SIZE];
            let mut unfold = |folder: &mut Folder| folder.unfold(*codec, bytes, &mut page);
            unfold(&mut folders[(seed + 1) % 3]).expect("shared by all folders");
            assert!(page == testing::text_page(seed as u64));
        }
    }
}
