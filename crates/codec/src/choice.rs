//! What `--codec` names: which codec compresses which page.

use pleat_types::CodecId;

use crate::registry::id_of;

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
}

/// The name that is no choice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no codec '{name}': choose from {}", Choice::names().join(", "))]
pub struct UnknownChoice {
    /// The name given.
    pub name: String,
}

impl Choice {
    /// The names [`Choice::parse`] knows, the default first.
    pub fn names() -> &'static [&'static str] {
        &["lz4", "lzo", "lzrw1", "wkdm"]
    }

    /// The choice called `name`.
    ///
    /// # Errors
    /// When [`Choice::names`] does not list it.
    pub fn parse(name: &str) -> Result<Choice, UnknownChoice> {
        let unknown = || UnknownChoice { name: name.into() };
        let one = id_of(name).ok_or_else(unknown)?;
        Ok(Choice {
            name: name.into(),
            anonymous: one,
            file: one,
        })
    }

    /// The name it was parsed from.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which codec compresses a page of this kind.
    pub fn codec_for(&self, kind: PageKind) -> CodecId {
        match kind {
            PageKind::Anonymous => self.anonymous,
            PageKind::File => self.file,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_name_is_a_choice_and_no_other() {
        for name in Choice::names() {
            assert_eq!(Choice::parse(name).expect("listed").name(), *name);
        }
        let unknown = Choice::parse("lz5").expect_err("no such codec");
        assert!(unknown.to_string().contains("lz4"), "{unknown}");
    }
}
