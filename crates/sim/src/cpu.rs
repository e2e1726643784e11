//! What things cost on a CPU, as figures: named ones, of the papers' machines and of one of today.
//!
//! Codecs were measured on one machine of today (docs/benchmarks.md). On an older one, those that its
//! paper measured cost what the paper says, and all others in proportion to one of them.

/// Who does the paging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The kernel: compresses in the process that needs memory.
    Kernel,
    /// Another process, as pleat's supervisor: faults and evictions are dearer; where there is more than
    /// one CPU, it compresses beside the program.
    Pager,
    /// As a pager that is not told of uses of memory, only of faults: `pleat run`.
    Run,
}

impl Host {
    /// Whether it is a process beside.
    pub fn is_beside(self) -> bool {
        self != Host::Kernel
    }
}

/// What compressing with one codec costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CodecCost {
    /// Per page.
    pub compress_ns: u64,
    /// Per page.
    pub decompress_ns: u64,
    /// Size of what is left, in hundredths of what the source of references says.
    pub size_percent: u64,
}

/// What everything but codecs costs, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paging {
    /// A fault, without putting anything in place.
    pub fault_ns: u64,
    /// Putting a page in place.
    pub map_ns: u64,
    /// Choosing a page and taking it away.
    pub evict_ns: u64,
}

/// The figures of a CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Cpu {
    kernel: Paging,
    pager: Paging,
    /// Copying, clearing or comparing a page.
    pub copy_ns: u64,
    /// Submitting a request to a device, its completion included.
    pub submit_ns: u64,
    /// Going from one process to another.
    pub switch_ns: u64,
    /// What a paper says: codec, compress and decompress, per page. The first is what others are in
    /// proportion to.
    measured: &'static [(&'static str, u64, u64)],
}

/// A named CPU and what it is.
struct Named {
    name: &'static str,
    about: &'static str,
    cpu: Cpu,
}

/// Compress and decompress on the machine of docs/benchmarks.md in ns, and size in hundredths of
/// LZ4's. Byte-wise Lempel-Ziv methods leave within 6 % of each other and count as the same: what a
/// source says of its pages then holds for every preset that uses one of them.
const CODECS: [(&str, u64, u64, u64); 12] = [
    ("lz4", 5230, 1120, 100),
    ("lz4:8", 3870, 970, 117),
    ("lzo", 5480, 2210, 100),
    ("lzrw1", 10_700, 3140, 100),
    ("wkdm", 2710, 1770, 130),
    ("lzowkdm", 2710, 1770, 130),
    ("fold", 2880, 1690, 100),
    ("auto", 4160, 1650, 100),
    ("zstd", 14_510, 5570, 74),
    ("zstd:6", 45_580, 5000, 71),
    ("zstd:3+dict", 17_320, 5180, 70),
    ("raw", 0, 0, 100),
];

/// Kernel figures of a CPU, and several times as much for a pager outside: two switches and a system
/// call or two for each (measured: 4.7 us a fault, 1.1 us a page in runs of 16).
const fn paging(fault_ns: u64, map_ns: u64, evict_ns: u64) -> [Paging; 2] {
    let kernel = Paging {
        fault_ns,
        map_ns,
        evict_ns,
    };
    let pager = Paging {
        fault_ns: 5 * fault_ns,
        map_ns: 3 * map_ns,
        evict_ns: 2 * evict_ns,
    };
    [kernel, pager]
}

const fn cpu(
    [kernel, pager]: [Paging; 2],
    [copy_ns, submit_ns, switch_ns]: [u64; 3],
    measured: &'static [(&'static str, u64, u64)],
) -> Cpu {
    Cpu {
        kernel,
        pager,
        copy_ns,
        submit_ns,
        switch_ns,
        measured,
    }
}

const CPUS: [Named; 5] = [
    Named {
        name: "modern",
        about: "virtual CPU of 2026: LZ4 compresses a page in 5.2 us",
        cpu: cpu(
            paging(800, 350, 500),
            [250, 4000, 1500],
            &[("lz4", 5230, 1120)],
        ),
    },
    Named {
        name: "p3",
        about: "castro03's: Pentium III, 1 GHz; LZO 90 us, WKdm 50 us",
        cpu: cpu(
            paging(1500, 500, 1500),
            [8000, 20_000, 3000],
            &[("lzo", 90_000, 40_000), ("wkdm", 50_000, 30_000)],
        ),
    },
    Named {
        name: "p2",
        about: "cervera99's: Pentium II, 350 MHz; LZO 300 us",
        cpu: cpu(
            paging(4000, 1500, 4000),
            [20_000, 50_000, 8000],
            &[("lzo", 300_000, 50_000)],
        ),
    },
    Named {
        name: "decstation",
        about: "douglis93's: DECstation 5000/200, 25 MHz; LZRW1 4.1 ms",
        cpu: cpu(
            paging(100_000, 20_000, 50_000),
            [200_000, 500_000, 100_000],
            &[("lzrw1", 4_096_000, 2_048_000)],
        ),
    },
    Named {
        name: "ppc970",
        about: "cpc08's: PowerPC 970 of a blade of 2006; LZO about 25 us",
        cpu: cpu(
            paging(1000, 400, 800),
            [1200, 8000, 2500],
            &[("lzo", 25_000, 10_000)],
        ),
    },
];

/// Name and description of every CPU.
pub fn cpus() -> impl Iterator<Item = (&'static str, &'static str)> {
    CPUS.iter().map(|named| (named.name, named.about))
}

/// Names of the codecs whose costs are known.
pub fn codecs() -> impl Iterator<Item = &'static str> {
    CODECS.iter().map(|codec| codec.0)
}

impl Cpu {
    /// The CPU of that name.
    ///
    /// # Errors
    /// A message that lists the names.
    pub fn named(name: &str) -> Result<Cpu, String> {
        let found = CPUS.iter().find(|named| named.name == name);
        found.map(|named| named.cpu.clone()).ok_or_else(|| {
            let names: Vec<&str> = cpus().map(|(name, _)| name).collect();
            format!("there is no CPU '{name}': choose from {}", names.join(", "))
        })
    }

    /// What paging costs there.
    pub fn paging(&self, host: Host) -> Paging {
        match host {
            Host::Kernel => self.kernel,
            Host::Pager | Host::Run => self.pager,
        }
    }

    /// What a codec costs there.
    ///
    /// # Errors
    /// A message that lists the codecs.
    pub fn codec(&self, name: &str) -> Result<CodecCost, String> {
        let (compress, decompress, size_percent) = today(name)?;
        let measured = self.measured.iter().find(|measured| measured.0 == name);
        let (compress_ns, decompress_ns) = match measured {
            Some(&(_, compress_ns, decompress_ns)) => (compress_ns, decompress_ns),
            None => {
                let (anchor, slow, slow_back) = self.measured[0];
                let (fast, fast_back, _) = today(anchor)?;
                (compress * slow / fast, decompress * slow_back / fast_back)
            }
        };
        Ok(CodecCost {
            compress_ns,
            decompress_ns,
            size_percent,
        })
    }
}

fn today(name: &str) -> Result<(u64, u64, u64), String> {
    let found = CODECS.iter().find(|codec| codec.0 == name);
    found
        .map(|&(_, compress, decompress, size)| (compress, decompress, size))
        .ok_or_else(|| {
            let names: Vec<&str> = codecs().collect();
            let names = names.join(", ");
            format!("the costs of codec '{name}' are not known: choose from {names}")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_cpu_can_run_every_listed_codec() {
        for (name, about) in cpus() {
            let cpu = Cpu::named(name).unwrap();
            assert!(!about.is_empty());
            for codec in codecs().filter(|&codec| codec != "raw") {
                let cost = cpu.codec(codec).unwrap();
                assert!(cost.compress_ns > 0, "{name} {codec}");
                assert!(cost.decompress_ns > 0, "{name} {codec}");
            }
        }
    }

    #[test]
    fn what_a_paper_measured_is_taken_and_the_rest_is_in_proportion() {
        let cpu = Cpu::named("p3").unwrap();
        assert_eq!(cpu.codec("lzo").unwrap().compress_ns, 90_000);
        assert_eq!(cpu.codec("wkdm").unwrap().compress_ns, 50_000);
        assert_eq!(cpu.codec("lz4").unwrap().compress_ns, 90_000 * 5230 / 5480);
    }

    #[test]
    fn unknown_names_are_answered_with_the_list() {
        let error = Cpu::named("z80").unwrap_err();
        assert!(error.contains("modern") && error.contains("p3"), "{error}");
        let cpu = Cpu::named("modern").unwrap();
        let error = cpu.codec("rot13").unwrap_err();
        assert!(error.contains("lzo") && error.contains("rot13"), "{error}");
    }

    #[test]
    fn a_pager_outside_the_kernel_is_dearer() {
        for (name, _) in cpus() {
            let cpu = Cpu::named(name).unwrap();
            let (kernel, pager) = (cpu.paging(Host::Kernel), cpu.paging(Host::Pager));
            assert!(kernel.fault_ns < pager.fault_ns, "{name}");
            assert!(kernel.evict_ns < pager.evict_ns, "{name}");
        }
    }
}
