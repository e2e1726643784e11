//! Named choices of codec, layout and sizing: one definition for help, tests and benchmarks.
//!
//! A preset only names things; whoever builds the engine looks the names up.

/// A named, tested combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// Name of the codec.
    pub codec: &'static str,
    /// Name of the layout of the compressed cache.
    pub layout: &'static str,
    /// Name of the sizing policy, with its parameter.
    pub sizing: &'static str,
    /// Most pages filled per fault.
    pub run_max: u32,
}

/// Every preset, the default first.
///
/// - `pleat`: pleat's own.
/// - `castro03`: the adaptive compressed cache of de Castro, Lago and Da Silva (2003): cells of
///   two pages, its sizing policy, LZO, and no read-ahead from the compressed cache (section 2.3.2).
///   Their other codecs are `--codec wkdm` and `--codec lzowkdm`.
/// - `static`: a compressed cache of a fixed share, for comparison: castro03 (section 3) shows why one
///   size does not fit all.
const PRESETS: [Preset; 3] = [
    Preset {
        name: "pleat",
        codec: "auto",
        layout: "bins",
        sizing: "balance:60%",
        run_max: 16,
    },
    Preset {
        name: "castro03",
        codec: "lzo",
        layout: "cells2",
        sizing: "castro03",
        run_max: 1,
    },
    Preset {
        name: "static",
        codec: "auto",
        layout: "bins",
        sizing: "static:25%",
        run_max: 16,
    },
];

/// The preset of that name.
pub fn preset(name: &str) -> Option<Preset> {
    PRESETS.into_iter().find(|preset| preset.name == name)
}

/// Names of all presets, the default first.
pub fn preset_names() -> Vec<&'static str> {
    PRESETS.iter().map(|preset| preset.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_to_its_preset_and_its_sizing_exists() {
        for name in preset_names() {
            let found = preset(name).unwrap();
            assert_eq!(found.name, name);
            assert!(found.run_max >= 1);
            assert!(
                pleat_policy::sizing_by_name(found.sizing).is_ok(),
                "{}",
                found.sizing
            );
        }
        assert_eq!(preset("no such preset"), None);
    }
}
