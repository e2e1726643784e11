//! Which codecs there are: the one list that names, ids and constructors come from.

use pleat_types::CodecId;

use crate::{Codec, Lz4, Lzo, Lzrw1, Wkdm};

/// One codec of the list.
struct Entry {
    name: &'static str,
    id: CodecId,
    make: fn() -> Box<dyn Codec>,
}

/// Every codec, the default first. An id is stored with pages and never given to another codec.
const CODECS: &[Entry] = &[
    Entry {
        name: Lz4::NAME,
        id: Lz4::ID,
        make: || Box::new(Lz4::new()),
    },
    Entry {
        name: Lzo::NAME,
        id: Lzo::ID,
        make: || Box::new(Lzo::new()),
    },
    Entry {
        name: Lzrw1::NAME,
        id: Lzrw1::ID,
        make: || Box::new(Lzrw1::new()),
    },
    Entry {
        name: Wkdm::NAME,
        id: Wkdm::ID,
        make: || Box::new(Wkdm::new()),
    },
];

const IDS: usize = 16;

/// One value of each codec, made when it is first needed.
#[derive(Default)]
pub(crate) struct CodecSet {
    made: [Option<Box<dyn Codec>>; IDS],
}

impl CodecSet {
    /// The codec with this id; `None` when there is none.
    pub fn get(&mut self, id: CodecId) -> Option<&mut dyn Codec> {
        let made = self.made.get_mut(usize::from(id.0))?;
        if made.is_none() {
            *made = Some(make(id)?);
        }
        Some(made.as_mut()?.as_mut())
    }
}

fn make(id: CodecId) -> Option<Box<dyn Codec>> {
    let entry = CODECS.iter().find(|entry| entry.id == id)?;
    Some((entry.make)())
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
        let mut set = CodecSet::default();
        for entry in CODECS {
            let codec = set.get(entry.id).expect("listed");
            assert_eq!((codec.name(), codec.id()), (entry.name, entry.id));
            assert_eq!(id_of(entry.name), Some(entry.id), "listed twice");
        }
        assert!(set.get(CodecId::RAW).is_none());
        assert!(set.get(CodecId(IDS as u8)).is_none());
    }
}
