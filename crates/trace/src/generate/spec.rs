//! Generators by name: the table of all of them, and the text that chooses one and sets its
//! parameters: `name:parameter=value,...`, with `+` between several that run side by side.

use super::mix::Mix;
use super::{
    Common, Compile, Generator, Hash, Iozone, Parameter, Parameters, Quicksort, Scan, Sort, Stack,
    Thrasher, Zipf,
};
use crate::Source;
use thiserror::Error;

/// Why a text describes no trace.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SpecError {
    /// No generator is called that.
    #[error("there is no generator '{name}': choose one of {}", names())]
    UnknownGenerator {
        /// What was written.
        name: String,
    },
    /// The generator exists, its parameter does not.
    #[error("{generator} has no parameter '{name}': it has {known}")]
    UnknownParameter {
        /// The generator.
        generator: String,
        /// What was written.
        name: String,
        /// All that there are, with their defaults.
        known: String,
    },
    /// A parameter without a value.
    #[error(
        "'{text}' of {generator} sets nothing: write parameter=value, with commas between them"
    )]
    NoValue {
        /// The generator.
        generator: String,
        /// What was written.
        text: String,
    },
    /// A value that the parameter cannot have.
    #[error("{generator}: {name}={value} cannot be: give {expected}")]
    BadValue {
        /// The generator.
        generator: String,
        /// The parameter.
        name: String,
        /// What was written.
        value: String,
        /// What can be.
        expected: String,
    },
    /// No distribution has this mean and these shares.
    #[error(
        "pages cannot compress to {ratio} of their size when {raw} of them are raw and {same} are \
         one repeated word: choose ratio from raw to 1 - same, with raw + same up to 1"
    )]
    Ratio {
        /// Mean compressed share.
        ratio: f64,
        /// Share of pages that do not compress.
        raw: f64,
        /// Share of pages of one repeated word.
        same: f64,
    },
}

/// What a generator is, for help texts.
#[derive(Clone, Debug)]
pub struct Help {
    /// As it is written in a specification.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// Its own parameters and then those that every generator has.
    pub parameters: Vec<Parameter>,
}

type Made = Result<Box<dyn Source + Send>, SpecError>;

/// A name, and settings that it stands for on top of the generator's defaults.
struct Entry {
    name: &'static str,
    about: &'static str,
    settings: &'static str,
    make: fn(&str, &[(&str, &str)]) -> Made,
    list: fn(&str, &str) -> Vec<Parameter>,
}

impl Entry {
    const fn new<G: Generator>(
        name: &'static str,
        about: &'static str,
        settings: &'static str,
    ) -> Entry {
        Entry {
            name,
            about,
            settings,
            make: make::<G>,
            list: list::<G>,
        }
    }
}

const ENTRIES: &[Entry] = &[
    Entry::new::<Thrasher>(
        "thrasher",
        "cycles linearly through anonymous memory, the worst case of LRU",
        "",
    ),
    Entry::new::<Scan>("scan", "reads a file from beginning to end", ""),
    Entry::new::<Zipf>("zipf", "touches memory at random, few pages often", ""),
    Entry::new::<Iozone>(
        "iozone",
        "writes and reads a file, again and again, beside memory that is idle",
        "",
    ),
    Entry::new::<Stack>(
        "stack",
        "touches recent pages more often, by the LRU stack model",
        "",
    ),
    Entry::new::<Sort>("sort", "merge sort of a file in memory", ""),
    Entry::new::<Quicksort>("quicksort", "quicksort of a file in memory", ""),
    Entry::new::<Hash>("hash", "builds a hash table and probes it at random", ""),
    Entry::new::<Compile>(
        "compile",
        "several compilers that share headers, each with a heap",
        "",
    ),
    Entry::new::<Zipf>(
        "web",
        "serves files, few of them often, and writes nothing",
        "pages=131072,file=1,write=0,alpha=0.9,ratio=0.5,raw=0.2,think_ns=2000",
    ),
    Entry::new::<Stack>(
        "matlab",
        "computes on large matrices, one part after the other",
        "pages=196608,working_set=65536,alpha=0.6,drift=0.02,write=0.4,ratio=0.45,spread=0.3",
    ),
    // Compresses to 35.5 % on average (`castro03`, table 2).
    Entry::new::<Stack>(
        "mummer",
        "aligns genomes: a large, well compressible working set",
        "pages=131072,working_set=98304,alpha=0.7,drift=0.001,write=0.2,ratio=0.355",
    ),
    Entry::new::<Thrasher>(
        "memload",
        "goes through memory in order and computes next to nothing",
        "pages=131072,passes=2,think_ns=50",
    ),
];

/// All names, with commas between them.
fn names() -> String {
    let names: Vec<&str> = ENTRIES.iter().map(|entry| entry.name).collect();
    names.join(", ")
}

/// All generators, with their parameters and the defaults of these.
pub fn generators() -> Vec<Help> {
    let help = |entry: &Entry| Help {
        name: entry.name,
        about: entry.about,
        parameters: (entry.list)(entry.name, entry.settings),
    };
    ENTRIES.iter().map(help).collect()
}

/// The trace that `spec` describes: `thrasher:pages=65536,passes=4`, or several with `+` between
/// them, each as a process of its own.
///
/// ```
/// use pleat_trace::{generator, ProcessNo};
///
/// let mut source = generator("thrasher:pages=100,passes=2+zipf:pages=50,alpha=1.1").unwrap();
/// assert_eq!(source.processes(), 2);
/// let first = source.next(ProcessNo(0)).expect("a reference");
/// assert_eq!(first.page.0, 0);
/// ```
pub fn generator(spec: &str) -> Result<Box<dyn Source + Send>, SpecError> {
    let mut sources = spec
        .split('+')
        .map(one)
        .collect::<Result<Vec<_>, SpecError>>()?;
    match sources.len() {
        1 => Ok(sources.remove(0)),
        _ => Ok(Box::new(Mix::new(sources))),
    }
}

fn one(spec: &str) -> Made {
    let (name, text) = spec.trim().split_once(':').unwrap_or((spec.trim(), ""));
    let entry = ENTRIES.iter().find(|entry| entry.name == name);
    let entry = entry.ok_or_else(|| SpecError::UnknownGenerator { name: name.into() })?;
    let mut settings = split(name, entry.settings)?;
    settings.extend(split(name, text)?);
    (entry.make)(name, &settings)
}

/// The pairs of `a=1,b=2`.
fn split<'a>(generator: &str, text: &'a str) -> Result<Vec<(&'a str, &'a str)>, SpecError> {
    let words = text
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty());
    words
        .map(|word| {
            word.split_once('=').ok_or_else(|| SpecError::NoValue {
                generator: generator.into(),
                text: word.into(),
            })
        })
        .collect()
}

fn make<G: Generator>(name: &str, settings: &[(&str, &str)]) -> Made {
    let (own, common) = settle::<G>(name, settings)?;
    own.source(&common)
}

fn list<G: Generator>(name: &str, settings: &str) -> Vec<Parameter> {
    let settings = split(name, settings).expect("written above");
    let (own, common) = settle::<G>(name, &settings).expect("written above");
    let mut list = own.list();
    list.extend(common.list());
    list
}

/// The parameters after these settings; the last of several settings of one parameter counts.
fn settle<G: Generator>(
    generator: &str,
    settings: &[(&str, &str)],
) -> Result<(G, Common), SpecError> {
    let (mut own, mut common) = (G::default(), Common::default());
    for &(name, value) in settings {
        let set = own.set(name, value).or_else(|| common.set(name, value));
        let Some(set) = set else {
            return Err(unknown(generator, name, &own, &common));
        };
        set.map_err(|expected| SpecError::BadValue {
            generator: generator.into(),
            name: name.into(),
            value: value.into(),
            expected,
        })?;
    }
    Ok((own, common))
}

fn unknown<G: Generator>(generator: &str, name: &str, own: &G, common: &Common) -> SpecError {
    let parameters = own.list().into_iter().chain(common.list());
    let known: Vec<String> = parameters
        .map(|parameter| format!("{}={}", parameter.name, parameter.default))
        .collect();
    SpecError::UnknownParameter {
        generator: generator.into(),
        name: name.into(),
        known: known.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::testing::references;
    use crate::{ProcessNo, RegionKind, RegionNo};
    use pleat_types::PageNo;

    fn error(spec: &str) -> String {
        generator(spec).err().expect(spec).to_string()
    }

    #[test]
    fn every_generator_runs_with_its_defaults_and_repeats_with_its_seed() {
        for help in generators() {
            let start = |spec: &str| {
                let mut source = generator(spec).unwrap();
                let processes = source.processes();
                let mut all = Vec::new();
                for process in (0..processes).map(ProcessNo) {
                    for _ in 0..3000 {
                        let Some(reference) = source.next(process) else {
                            break;
                        };
                        assert!((reference.region.0 as usize) < source.regions().len());
                        let bytes = source.compressed_bytes(reference.region, reference.page);
                        assert!(bytes <= 4096);
                        all.push((reference, bytes));
                    }
                }
                all
            };
            let name = help.name;
            assert!(start(name).len() >= 3000, "{name}");
            assert!(start(name) == start(name), "{name} repeats");
            let other = format!("{name}:seed=2");
            assert!(start(name) != start(&other), "{name} follows its seed");
            assert!(
                help.parameters.iter().all(|p| p.help.ends_with('.')),
                "{name}"
            );
        }
    }

    #[test]
    fn every_generator_is_in_the_documentation() {
        let document = include_str!("../../../../docs/traces.md");
        for help in generators() {
            let name = format!("`{}`", help.name);
            assert!(document.contains(&name), "docs/traces.md lacks {name}");
        }
    }

    #[test]
    fn the_largest_values_do_not_overflow() {
        for help in generators() {
            // Those that take memory for each of their pages are left at their defaults.
            let keeps = ["stack", "matlab", "mummer"].contains(&help.name);
            let own = help
                .parameters
                .iter()
                .filter(|p| !["write", "file", "alpha"].contains(&p.name));
            let largest = own.filter_map(|p| {
                let text =
                    SpecError::to_string(&generator(&format!("{}:{}=x", help.name, p.name)).err()?);
                let most = text.split(" to ").last()?.to_owned();
                (most != "1").then(|| format!("{}={most}", p.name))
            });
            let largest: Vec<String> = largest.filter(|_| !keeps).collect();
            let mut source = generator(&format!("{}:{}", help.name, largest.join(","))).unwrap();
            for _ in 0..1000 {
                let reference = source.next(ProcessNo(0)).expect(help.name);
                assert!(reference.page.0 < 1 << 52, "{}", help.name);
            }
        }
    }

    #[test]
    fn mistakes_name_what_there_is() {
        assert!(error("trasher").contains("thrasher, scan, zipf"));
        assert!(error("thrasher:page=3").contains("it has pages=65536, passes=4"));
        assert!(error("thrasher:pages").contains("parameter=value"));
        let range = error("thrasher:pages=0");
        assert!(
            range.contains("pages=0") && range.contains("from 1 to"),
            "{range}"
        );
        assert!(error("zipf:alpha=NaN").contains("from 0 to 8"));
        assert!(error("zipf:ratio=0.1,raw=0.5").contains("raw"));
        for nothing in ["", "+", "thrasher+", ":pages=1"] {
            assert!(error(nothing).contains("choose one of"), "{nothing}");
        }
    }

    #[test]
    fn a_later_setting_replaces_an_earlier_one_and_the_names_own() {
        assert_eq!(references("memload:pages=3,pages=2,think_ns=7").len(), 4);
        assert_eq!(references("memload:pages=2")[0].think_ns, 50);
    }

    #[test]
    fn a_mix_is_its_parts_as_processes_of_their_own() {
        let (a, b) = (
            "thrasher:pages=3,ratio=0.1",
            "scan:pages=2,ratio=0.9,seed=5",
        );
        let mut mix = generator(&format!("{a} + {b} + {a}")).unwrap();
        use RegionKind::{Anonymous, File};
        assert_eq!(mix.regions(), [Anonymous, File, Anonymous]);
        for (process, spec) in [(0, a), (1, b), (2, a)] {
            for mut expected in references(spec) {
                expected.region = RegionNo(process);
                assert_eq!(mix.next(ProcessNo(process)), Some(expected));
            }
            assert_eq!(mix.next(ProcessNo(process)), None);
        }
        assert_eq!(mix.next(ProcessNo(3)), None);
        let alone = generator(b).unwrap();
        let bytes = |n| mix.compressed_bytes(RegionNo(n), PageNo(1));
        assert_eq!(bytes(1), alone.compressed_bytes(RegionNo(0), PageNo(1)));
        assert!(bytes(0) < 1000 && bytes(1) > 3000);
    }
}
