//! Table 1, column `onlyswap`: what it is worth to compress pages of files, too (section 2.3.1).

use super::{case, claim_of_all, Case, COMPILE_1, COMPILE_2, COMPILE_4, MUMMER, OSDB};
use crate::papers::{Claim, Figure, Findings, Line};

pub(super) const FIGURE: Figure = Figure {
    name: "castro03-table1-onlyswap",
    about: "Compressing file pages too, against only pages backed by swap",
    axes: ("case", "time saved against no compressed cache, %"),
    make,
    work: 49,
};

const PRESETS: [&str; 2] = ["castro03", "castro03/admission=onlyswap"];
/// With many pages of files.
const FILES: [Case; 5] = [
    case("compile j1", COMPILE_1, 21.0),
    case("compile j1", COMPILE_1, 20.0),
    case("compile j2", COMPILE_2, 24.0),
    case("compile j4", COMPILE_4, 28.75),
    case("OSDB", OSDB, 24.0),
];
/// With next to none.
const ANONYMOUS: [Case; 2] = [case("MUMmer", MUMMER, 50.0), case("MUMmer", MUMMER, 43.0)];

type Gains = (Case, [f64; 2]);

fn make() -> Findings {
    let gains = |case: Case| (case, case.gains(PRESETS));
    let (files, anonymous) = (FILES.map(gains), ANONYMOUS.map(gains));
    let all = [&files[..], &anonymous].concat();
    let line = |name: &str, which: usize| Line {
        name: name.to_owned(),
        points: all
            .iter()
            .enumerate()
            .map(|(nth, gains)| (nth as f64 + 1.0, gains.1[which]))
            .collect(),
    };
    Findings {
        lines: vec![line("castro03", 0), line("onlyswap", 1)],
        claims: vec![loses(&files), nullified(&files), no_difference(&anonymous)],
    }
}

fn text((case, [both, only]): &Gains) -> String {
    format!(
        "{}: castro03 {both:.1} %, onlyswap {only:.1} %",
        case.name()
    )
}

fn loses(files: &[Gains]) -> Claim {
    claim_of_all(
        "compressing only pages backed by swap loses where there are many file pages (kernel \
         compilation by up to 35 points, OSDB by 32)",
        "at least 5 points less in each case",
        files
            .iter()
            .map(|gains| (text(gains), gains.1[0] >= gains.1[1] + 5.0)),
    )
}

fn nullified(files: &[Gains]) -> Claim {
    claim_of_all(
        "it slows most kernel compilations down, and nullifies the gain of OSDB (table 1: -5.4 % to \
         +3.9 %, and -1.3 %)",
        "a gain of at most 4 % in each case",
        files.iter().map(|gains| (text(gains), gains.1[1] <= 4.0)),
    )
}

fn no_difference(anonymous: &[Gains]) -> Claim {
    claim_of_all(
        "it makes no great difference where few pages belong to files (MUMmer)",
        "within 5 points, as all of the paper's but the degenerate case of 330 MB",
        anonymous.iter().map(|gains| {
            let [both, only] = gains.1;
            (text(gains), (both - only).abs() <= 5.0)
        }),
    )
}
