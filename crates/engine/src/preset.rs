//! Named choices of codec, layout, sizing, admission and write-out: one definition for help, tests,
//! benchmarks and the simulator. Each part can be replaced: `castro03/layout=cells1/sizing=sluggish`.
//!
//! A preset only names things; [`Preset::parts`] looks the names up.

use crate::{Parts, SwapSettings, SwapUnit, Victims, WriteOut};

/// A named combination, or a variation of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preset {
    /// What it was called, variations included.
    pub name: String,
    /// Name of the codec.
    pub codec: String,
    /// Name of the layout of the compressed cache.
    pub layout: String,
    /// Name of the sizing policy, with its parameter.
    pub sizing: String,
    /// Names of the admission rules, joined by `+`.
    pub admission: String,
    /// When pages go to the swap file.
    pub write_out: WriteOut,
    /// A page takes a whole number of fragments of so many bytes in the swap file.
    pub fragment_bytes: u32,
    /// Most bytes written at once; `None`: as many as suit the budget.
    pub cluster_bytes: Option<u32>,
    /// What becomes free at once in the swap file.
    pub unit: SwapUnit,
    /// Whether a page may begin in one block of the swap file and end in the next.
    pub spans_blocks: bool,
    /// Most pages read from the swap file for one fault.
    pub ahead_max: u32,
    /// Places for compressed pages, in per cent of the blocks of a swap file of limited size.
    pub virtual_percent: Option<u32>,
    /// Most pages filled per fault.
    pub run_max: u32,
    /// Which pages leave memory, where uses are not seen.
    pub victims: Victims,
    /// Whether likely neighbours of a page that comes back come along, where uses are not seen.
    pub brings_neighbours: bool,
    /// Whether pages read from the swap file keep their copy there until they are seen to have changed, where writes
    /// are not reported.
    pub keeps_copies: bool,
}

/// One line of the table.
struct Line {
    name: &'static str,
    /// Codec, layout, sizing, admission.
    parts: [&'static str; 4],
    write_out: WriteOut,
    file: Division,
    run_max: u32,
    victims: Victims,
}

/// How a preset divides the swap file.
#[derive(Clone, Copy)]
struct Division {
    fragment_bytes: u32,
    cluster_bytes: Option<u32>,
    unit: SwapUnit,
    ahead_max: u32,
    virtual_percent: Option<u32>,
}

/// One page in each block, blocks written together where that is possible.
const BLOCKS: Division = Division {
    fragment_bytes: 4096,
    cluster_bytes: Some(128 << 10),
    unit: SwapUnit::Block,
    ahead_max: 1,
    virtual_percent: None,
};

/// The largest cluster that suits a budget: this part of it, one in so many, rounded down to a power of two. Several
/// buffers of that size are in use at once, and they are part of the budget.
const CLUSTER_PART: u64 = 512;
const CLUSTER_MIN: u64 = 64 << 10;
const CLUSTER_MAX: u64 = 256 << 10;

/// Pages without padding in large clusters, read back together when that pays.
const CLUSTERS: Division = Division {
    fragment_bytes: 1,
    cluster_bytes: None,
    unit: SwapUnit::Cluster,
    ahead_max: 256,
    virtual_percent: None,
};

/// Every preset, the default first.
///
/// - `pleat`: pleat's own.
/// - `douglis93`: Douglis's compression cache: a ring of frames, the three-way trade by age, only
///   memory backed by swap, the 4:3 rule, pages written ahead in clusters of 32 KiB of 1 KiB fragments
///   (sections 4.2, 4.3, 5.2).
/// - `cervera99`: compressed swapping: a small cache of 4 KiB buffers, only changed pages, all full
///   buffers written together at half of the cache (sections 3 and 4.3).
/// - `castro03`: the adaptive compressed cache of de Castro, Lago and Da Silva: cells of two pages, its
///   sizing policy, file pages too, the switch for clean pages, LZO, each page padded to a block
///   in the swap file, no read-ahead from the compressed cache (sections 2 and 3).
/// - `cpc08`: the compressed page cache of Beltran, Torres and Ayguade: blocks of powers of two, up
///   to 75 % of memory, compressed pages in the same LRU as others (section 3.2).
/// - `ramzswap09`: a compressed RAM disk used as swap, 25 % of memory, nothing but memory backed by
///   swap. (Its allocator is not published; the layout is pleat's.)
/// - `none`: no compressed cache, plain swapping: what the others are compared with.
/// - `static`: a compressed cache of a fixed share, for comparison: castro03 (section 3) shows why one
///   size does not fit all.
const PRESETS: [Line; 8] = [
    Line {
        name: "pleat",
        parts: ["auto", "bins", "pleat:8%:75%", "clean-switch"],
        write_out: WriteOut::OnDemand,
        file: CLUSTERS,
        run_max: 32,
        victims: Victims::Lives,
    },
    Line {
        name: "douglis93",
        parts: ["lzrw1", "ring", "douglis93", "onlyswap+pass"],
        write_out: WriteOut::Ahead { clean_percent: 10 },
        file: Division {
            fragment_bytes: 1024,
            cluster_bytes: Some(32 << 10),
            ahead_max: 1,
            ..CLUSTERS
        },
        run_max: 1,
        victims: Victims::Fifo,
    },
    Line {
        name: "cervera99",
        parts: ["lzo", "buffers", "cervera99", "onlydirty"],
        write_out: WriteOut::Buffers {
            threshold_percent: 50,
        },
        file: Division {
            cluster_bytes: Some(1 << 20),
            virtual_percent: Some(200),
            ..BLOCKS
        },
        run_max: 1,
        victims: Victims::Fifo,
    },
    Line {
        name: "castro03",
        parts: ["lzo", "cells2", "castro03", "clean-switch"],
        write_out: WriteOut::OnDemand,
        file: BLOCKS,
        run_max: 1,
        victims: Victims::Fifo,
    },
    Line {
        name: "cpc08",
        parts: ["lzo", "blocks", "cpc08", "all"],
        write_out: WriteOut::OnDemand,
        file: BLOCKS,
        run_max: 1,
        victims: Victims::Fifo,
    },
    Line {
        name: "ramzswap09",
        parts: ["lzo", "bins", "static:25%", "onlyswap"],
        write_out: WriteOut::OnDemand,
        file: BLOCKS,
        run_max: 1,
        victims: Victims::Fifo,
    },
    Line {
        name: "none",
        parts: ["raw", "bins", "static:0", "onlydirty"],
        write_out: WriteOut::OnDemand,
        file: BLOCKS,
        run_max: 1,
        victims: Victims::Fifo,
    },
    Line {
        name: "static",
        parts: ["auto", "bins", "static:25%", "clean-switch"],
        write_out: WriteOut::OnDemand,
        file: CLUSTERS,
        run_max: 16,
        victims: Victims::Lives,
    },
];

/// A swap file that holds little is let be up to this size.
const SLACK_BYTES: u64 = 4 << 20;

/// What may be replaced in a preset, as it is written.
const KEYS: &str = "codec, layout, sizing, admission, clean, threshold, fragment, cluster, spans, \
                    ahead, virtual, run, victims, neighbours, copies";

impl Preset {
    fn of(line: &Line) -> Preset {
        let [codec, layout, sizing, admission] = line.parts.map(str::to_owned);
        Preset {
            name: line.name.to_owned(),
            codec,
            layout,
            sizing,
            admission,
            write_out: line.write_out,
            fragment_bytes: line.file.fragment_bytes,
            cluster_bytes: line.file.cluster_bytes,
            unit: line.file.unit,
            spans_blocks: true,
            ahead_max: line.file.ahead_max,
            virtual_percent: line.file.virtual_percent,
            run_max: line.run_max,
            victims: line.victims,
            brings_neighbours: line.victims == Victims::Lives,
            keeps_copies: line.victims == Victims::Lives,
        }
    }

    /// Replaces one part.
    ///
    /// # Errors
    /// A message that names the remedy.
    fn replace(&mut self, part: &str) -> Result<(), String> {
        let wrong = || format!("{part:?} is not KEY=VALUE; the keys are {KEYS}");
        let (key, value) = part.split_once('=').ok_or_else(wrong)?;
        let number = |least: u32, most: u32| {
            let number = value.parse().ok();
            let within = number.filter(|number| (least..=most).contains(number));
            within.ok_or_else(|| format!("{part}: a number from {least} to {most} is needed"))
        };
        match key {
            "codec" => self.codec = value.to_owned(),
            "layout" => self.layout = value.to_owned(),
            "sizing" => self.sizing = value.to_owned(),
            "admission" => self.admission = value.to_owned(),
            "clean" => {
                self.write_out = WriteOut::Ahead {
                    clean_percent: number(0, 100)? as u8,
                }
            }
            "threshold" => {
                self.write_out = WriteOut::Buffers {
                    threshold_percent: number(1, 100)? as u8,
                }
            }
            // Pages that share blocks become free with their cluster.
            "fragment" => {
                self.fragment_bytes = fragment(number(1, 4096)?)?;
                self.unit = match self.fragment_bytes {
                    4096 => SwapUnit::Block,
                    _ => SwapUnit::Cluster,
                };
            }
            "cluster" => self.cluster_bytes = Some(number(4096, 16 << 20)?),
            "spans" => self.spans_blocks = number(0, 1)? == 1,
            "ahead" => self.ahead_max = number(1, 4096)?,
            "virtual" => self.virtual_percent = Some(number(100, 1600)?),
            "run" => self.run_max = number(1, 512)?,
            "victims" => self.victims = victims(value)?,
            "neighbours" => self.brings_neighbours = number(0, 1)? == 1,
            "copies" => self.keeps_copies = number(0, 1)? == 1,
            _ => return Err(wrong()),
        }
        Ok(())
    }

    /// Whether everything that it names exists.
    fn check(&self) -> Result<(), String> {
        let layouts = pleat_store::layout_names();
        if !layouts.contains(&self.layout.as_str()) {
            let known = layouts.join(", ");
            return Err(format!(
                "there is no layout '{}': choose from {known}",
                self.layout
            ));
        }
        let in_buffers = matches!(self.write_out, WriteOut::Buffers { .. });
        if in_buffers != (self.layout == "buffers") {
            return Err("buffers and a cleaning threshold need each other: write \
                        .../layout=buffers/threshold=50, or choose another layout"
                .to_owned());
        }
        pleat_policy::sizing_by_name(&self.sizing)?;
        pleat_policy::admission_by_name(&self.admission)?;
        pleat_codec::Choice::parse(&self.codec).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Builds what it names, for a compressed cache within this budget.
    ///
    /// # Errors
    /// A message that names the remedy, when the system refuses the address space.
    pub fn parts(&self, budget_bytes: u64) -> Result<Parts, String> {
        let layout = pleat_store::layout_by_name(&self.layout, budget_bytes)
            .ok_or("the system refuses address space of twice the budget: give a smaller --memory, or raise `ulimit -v`")?;
        Ok(Parts {
            layout,
            sizing: pleat_policy::sizing_by_name(&self.sizing)?,
            admission: pleat_policy::admission_by_name(&self.admission)?,
            victims: self.victims,
        })
    }

    /// Most bytes written to the swap file at once, beside memory of this budget.
    pub fn cluster_bytes(&self, budget_bytes: u64) -> u32 {
        let suits = || {
            let part = (budget_bytes / CLUSTER_PART).clamp(CLUSTER_MIN, CLUSTER_MAX);
            1 << part.ilog2()
        };
        self.cluster_bytes.unwrap_or_else(suits)
    }

    /// The swap file as it divides it beside memory of this budget, of at most `max_bytes`, where the driver adds
    /// `overhead_bytes` to each page.
    pub fn swap(
        &self,
        budget_bytes: u64,
        max_bytes: Option<u64>,
        overhead_bytes: u32,
    ) -> SwapSettings {
        SwapSettings {
            fragment_bytes: self.fragment_bytes,
            cluster_bytes: self.cluster_bytes(budget_bytes),
            unit: match self.write_out {
                WriteOut::Buffers { .. } => SwapUnit::Block,
                _ => self.unit,
            },
            spans_blocks: self.spans_blocks,
            overhead_bytes,
            ahead_max: self.ahead_max,
            virtual_percent: self.virtual_percent,
            slack_bytes: SLACK_BYTES,
            max_bytes,
        }
    }
}

fn fragment(bytes: u32) -> Result<u32, String> {
    let is_power = bytes.is_power_of_two();
    is_power.then_some(bytes).ok_or_else(|| {
        format!("fragment={bytes}: a power of two is needed, so that blocks hold whole fragments")
    })
}

fn victims(name: &str) -> Result<Victims, String> {
    match name {
        "fifo" => Ok(Victims::Fifo),
        "lives" => Ok(Victims::Lives),
        _ => Err(format!("victims={name}: choose fifo or lives")),
    }
}

/// The preset of that name, with the parts replaced that follow it: `NAME[/KEY=VALUE]...`.
///
/// # Errors
/// A message that names the remedy.
pub fn preset(text: &str) -> Result<Preset, String> {
    let mut words = text.split('/');
    let name = words.next().unwrap_or_default();
    let line = PRESETS.iter().find(|line| line.name == name);
    let known = || preset_names().join(", ");
    let line =
        line.ok_or_else(|| format!("there is no preset '{name}': choose from {}", known()))?;
    let mut preset = Preset::of(line);
    for part in words {
        preset.replace(part)?;
    }
    preset.name = text.to_owned();
    preset.check()?;
    Ok(preset)
}

/// Names of all presets, the default first.
pub fn preset_names() -> Vec<&'static str> {
    PRESETS.iter().map(|line| line.name).collect()
}

/// How presets are varied, for help texts.
pub fn preset_keys() -> &'static str {
    KEYS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_to_its_preset_and_its_parts_exist() {
        for name in preset_names() {
            let found = preset(name).unwrap();
            assert_eq!(found.name, name);
            assert!(found.run_max >= 1);
            found.parts(1 << 20).unwrap();
        }
    }

    #[test]
    fn parts_can_be_replaced() {
        let text = "castro03/layout=cells1/sizing=aggressive/admission=onlyswap/run=4";
        let found = preset(text).unwrap();
        let parts = [&found.layout, &found.sizing, &found.admission];
        assert_eq!(parts, ["cells1", "aggressive", "onlyswap"]);
        assert_eq!((found.run_max, found.name.as_str()), (4, text));
        assert_eq!(found.codec, preset("castro03").unwrap().codec);
    }

    #[test]
    fn clusters_suit_the_budget_where_nothing_else_is_said() {
        let sizes = |name: &str| {
            let preset = preset(name).unwrap();
            [8, 50, 100, 150, 4096].map(|mib| preset.cluster_bytes(mib << 20) >> 10)
        };
        assert_eq!(sizes("pleat"), [64, 64, 128, 256, 256]);
        assert_eq!(sizes("douglis93"), [32; 5], "section 4.3 of the paper");
        assert_eq!(sizes("pleat/cluster=1048576"), [1024; 5]);
    }

    #[test]
    fn mistakes_are_answered_with_what_there_is() {
        for (text, remedy) in [
            ("magic", "cervera99"),
            ("castro03/cells1", "layout"),
            ("castro03/colour=red", "admission"),
            ("castro03/run=0", "1 to"),
            ("castro03/layout=heap", "cells2"),
            ("castro03/layout=buffers", "threshold"),
            ("cervera99/layout=bins", "buffers"),
            ("castro03/admission=few", "onlyswap"),
            ("castro03/sizing=lazy", "kaplan99"),
            ("castro03/codec=zip", "lzo"),
            ("castro03/victims=oldest", "fifo"),
        ] {
            let error = preset(text).unwrap_err();
            assert!(error.contains(remedy), "{text}: {error}");
        }
    }
}
