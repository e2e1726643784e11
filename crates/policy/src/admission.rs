//! Which pages may enter the compressed cache.
//!
//! The engine asks for each page that is to leave memory. A rule is written as names joined by `+`, for
//! instance `onlyswap+pass`; a page enters when every one of them agrees:
//!
//! | name | enters the cache | from |
//! |---|---|---|
//! | `all` | every page | castro03, section 2.3.1 |
//! | `onlyswap` | pages backed by swap | castro03, section 4.4 |
//! | `onlydirty` | pages backed by swap that have no copy there | cervera99 |
//! | `clean-switch` | dirty pages always, clean ones while that pays (`clean_switch.rs`) | castro03, section 2.3.4 |
//! | `pass` | only what compresses to 3/4; the rest is passed on to the backing store, or dropped when clean, instead of being kept as it is | douglis93, table 1: "the threshold (4:3)" |

use crate::clean_switch::CleanSwitch;
use crate::notation::whole;
use crate::Backed;

/// A page about to leave memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Identifies the page as long as it lives, whoever holds it.
    pub id: u64,
    /// What backs it.
    pub backed: Backed,
    /// Its content is in the backing store, too.
    pub clean: bool,
}

/// The admission rule, with what it learned.
#[derive(Debug, Default)]
pub struct Admission {
    only_swap: bool,
    only_dirty: bool,
    passes_on: bool,
    clean_switch: Option<CleanSwitch>,
}

/// How each rule is written; names are joined by `+`.
pub fn admission_names() -> Vec<&'static str> {
    vec![
        "all",
        "clean-switch[:PAGES]",
        "onlydirty",
        "onlyswap",
        "pass",
    ]
}

/// The rule written as `text`, fresh.
///
/// # Errors
/// A message that names the remedy, when a name is unknown or its parameter is wrong.
pub fn admission_by_name(text: &str) -> Result<Admission, String> {
    let mut admission = Admission::default();
    text.split('+').try_for_each(|name| admission.add(name))?;
    Ok(admission)
}

impl Admission {
    fn add(&mut self, name: &str) -> Result<(), String> {
        match name {
            "all" => {}
            "onlyswap" => self.only_swap = true,
            "onlydirty" => self.only_dirty = true,
            "pass" => self.passes_on = true,
            "clean-switch" => self.clean_switch = Some(CleanSwitch::default()),
            _ => self.clean_switch = Some(clean_switch_of(name)?),
        }
        Ok(())
    }

    /// Whether this page may enter. While clean pages are not wanted, those refused are remembered.
    pub fn admits(&mut self, page: Candidate) -> bool {
        let swap = page.backed == Backed::BySwap;
        if (self.only_swap && !swap) || (self.only_dirty && (!swap || page.clean)) {
            return false;
        }
        match &mut self.clean_switch {
            Some(switch) if page.clean => switch.admits(page.id),
            _ => true,
        }
    }

    /// Whether a page of which more than 3/4 is left goes on to the backing store (or nowhere, when
    /// clean) instead of into the cache.
    pub fn passes_on_incompressible(&self) -> bool {
        self.passes_on
    }

    /// A clean page left the cache unused.
    pub fn clean_released(&mut self) {
        if let Some(switch) = &mut self.clean_switch {
            switch.released();
        }
    }

    /// A clean page of the cache was wanted.
    pub fn clean_reclaimed(&mut self) {
        if let Some(switch) = &mut self.clean_switch {
            switch.reclaimed();
        }
    }

    /// A page was read from the backing store.
    pub fn read(&mut self, id: u64) {
        if let Some(switch) = &mut self.clean_switch {
            switch.read(id);
        }
    }

    /// Whether clean pages are kept out now because that did not pay.
    pub fn clean_is_off(&self) -> bool {
        self.clean_switch.as_ref().is_some_and(CleanSwitch::is_off)
    }

    /// Times clean pages were switched off.
    pub fn switches(&self) -> u64 {
        self.clean_switch.as_ref().map_or(0, CleanSwitch::switches)
    }

    /// Memory of the record.
    pub fn metadata_bytes(&self) -> u64 {
        self.clean_switch
            .as_ref()
            .map_or(0, CleanSwitch::metadata_bytes)
    }
}

/// Reads `clean-switch:PAGES`.
fn clean_switch_of(name: &str) -> Result<CleanSwitch, String> {
    let Some(pages) = name.strip_prefix("clean-switch:") else {
        return Err(format!(
            "no admission rule is called {name:?}; there are {}, joined by +",
            admission_names().join(", ")
        ));
    };
    let pages = whole(pages).and_then(CleanSwitch::new);
    pages.ok_or_else(|| {
        format!("{name}: write how many pages to remember, 1 to 2^24, as in clean-switch:65536")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRTY: Candidate = candidate(Backed::BySwap, false);
    const CLEAN: Candidate = candidate(Backed::BySwap, true);
    const FILE: Candidate = candidate(Backed::ByFile, true);
    const DIRTY_FILE: Candidate = candidate(Backed::ByFile, false);

    const fn candidate(backed: Backed, clean: bool) -> Candidate {
        Candidate {
            id: 7,
            backed,
            clean,
        }
    }

    fn admitted(rule: &str) -> [bool; 4] {
        let mut rule = admission_by_name(rule).unwrap();
        [DIRTY, CLEAN, FILE, DIRTY_FILE].map(|page| rule.admits(page))
    }

    #[test]
    fn each_rule_admits_what_its_paper_says() {
        assert_eq!(admitted("all"), [true; 4]);
        assert_eq!(admitted("clean-switch"), [true; 4]);
        assert_eq!(admitted("pass"), [true; 4]);
        assert_eq!(admitted("onlyswap"), [true, true, false, false]);
        assert_eq!(admitted("onlydirty"), [true, false, false, false]);
    }

    #[test]
    fn a_page_enters_when_every_rule_agrees() {
        assert_eq!(admitted("onlydirty+onlyswap"), [true, false, false, false]);
        let both = admission_by_name("all+onlyswap+pass").unwrap();
        assert!(both.passes_on_incompressible());
        assert!(!admission_by_name("all").unwrap().passes_on_incompressible());
    }

    #[test]
    fn clean_pages_that_never_come_back_are_kept_out_and_dirty_ones_are_not() {
        let mut rule = admission_by_name("clean-switch").unwrap();
        (0..100_000).for_each(|_| rule.clean_released());
        assert!(rule.clean_is_off() && rule.switches() == 1);
        assert!(!rule.admits(CLEAN) && !rule.admits(FILE));
        assert!(rule.admits(DIRTY) && rule.admits(DIRTY_FILE));
        assert!(rule.metadata_bytes() > 0);
    }

    #[test]
    fn without_the_switch_nothing_is_learned_or_remembered() {
        let mut rule = admission_by_name("all").unwrap();
        (0..100_000).for_each(|_| rule.clean_released());
        rule.clean_reclaimed();
        rule.read(7);
        assert!(rule.admits(CLEAN) && !rule.clean_is_off());
        assert_eq!((rule.switches(), rule.metadata_bytes()), (0, 0));
    }

    #[test]
    fn every_listed_rule_can_be_made_with_and_without_what_is_in_brackets() {
        for name in admission_names() {
            let bare = name.split('[').next().unwrap();
            let full = name.replace(['[', ']'], "").replace("PAGES", "1000");
            for text in [bare, &full] {
                assert!(admission_by_name(text).is_ok(), "{text}");
            }
        }
    }

    #[test]
    fn nonsense_is_answered_with_the_list_or_an_example() {
        for text in ["", "all+", "none", "onlyswap,pass", "clean-switch=5"] {
            let error = admission_by_name(text).unwrap_err();
            assert!(error.contains("clean-switch[:PAGES], onlydirty"), "{error}");
        }
        for text in ["clean-switch:", "clean-switch:0", "clean-switch:99999999"] {
            let error = admission_by_name(text).unwrap_err();
            assert!(error.contains("clean-switch:65536"), "{text}: {error}");
        }
    }
}
