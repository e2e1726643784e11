//! Which codecs there are: the one list that names, ids and constructors come from.

use pleat_types::CodecId;

use crate::{Choice, Codec, Fold, Lz4, Lzo, Lzrw1, Wkdm, Zstd, ZstdWithDictionary};

/// One codec of the list.
struct Entry {
    name: &'static str,
    id: CodecId,
    /// `None` when the choice has not (yet) what the codec needs.
    make: fn(&Choice) -> Option<Box<dyn Codec>>,
}

/// Every codec, the default first. An id is stored with pages and never given to another codec.
const CODECS: &[Entry] = &[
    Entry {
        name: Fold::NAME,
        id: Fold::ID,
        make: |_| Some(Box::new(Fold::new())),
    },
    Entry {
        name: Lz4::NAME,
        id: Lz4::ID,
        make: |choice| Some(Box::new(Lz4::with_acceleration(choice.lz4_acceleration()))),
    },
    Entry {
        name: Zstd::NAME,
        id: Zstd::ID,
        make: |choice| Some(Box::new(Zstd::new(choice.zstd_level()))),
    },
    Entry {
        name: ZstdWithDictionary::NAME,
        id: ZstdWithDictionary::ID,
        make: |choice| Some(Box::new(ZstdWithDictionary::new(choice.dictionary()?))),
    },
    Entry {
        name: Lzo::NAME,
        id: Lzo::ID,
        make: |_| Some(Box::new(Lzo::new())),
    },
    Entry {
        name: Lzrw1::NAME,
        id: Lzrw1::ID,
        make: |_| Some(Box::new(Lzrw1::new())),
    },
    Entry {
        name: Wkdm::NAME,
        id: Wkdm::ID,
        make: |_| Some(Box::new(Wkdm::new())),
    },
];

const IDS: usize = 16;

/// One value of each codec, made when it is first needed.
#[derive(Default)]
pub(crate) struct CodecSet {
    made: [Option<Box<dyn Codec>>; IDS],
}

impl CodecSet {
    /// The codec with this id, as `choice` says; `None` when there is none.
    pub fn get(&mut self, id: CodecId, choice: &Choice) -> Option<&mut dyn Codec> {
        let made = self.made.get_mut(usize::from(id.0))?;
        if made.is_none() {
            *made = Some(make(id, choice)?);
        }
        Some(made.as_mut()?.as_mut())
    }
}

fn make(id: CodecId, choice: &Choice) -> Option<Box<dyn Codec>> {
    let entry = CODECS.iter().find(|entry| entry.id == id)?;
    (entry.make)(choice)
}

/// The id of the codec called `name`.
pub(crate) fn id_of(name: &str) -> Option<CodecId> {
    CODECS.iter().find(|e| e.name == name).map(|e| e.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_codec_is_made_under_its_own_name_and_id() {
        let choice = Choice::parse("lz4").expect("listed");
        let mut set = CodecSet::default();
        for entry in CODECS {
            assert_eq!(id_of(entry.name), Some(entry.id), "listed twice");
            match set.get(entry.id, &choice) {
                Some(codec) => assert_eq!((codec.name(), codec.id()), (entry.name, entry.id)),
                None => assert_eq!(entry.id, ZstdWithDictionary::ID, "there is no dictionary"),
            }
        }
        assert!(set.get(CodecId::RAW, &choice).is_none());
        assert!(set.get(CodecId(IDS as u8), &choice).is_none());
    }
}
