//! `--hint`: programs that manage their own memory are told the budget, in the environment variables that their runtimes read.
//!
//! A collector that knows nothing of the budget lets garbage grow until its own limit, and what pleat compresses is garbage then. What each
//! gains is in `docs/hints.md`.

use std::ffi::OsString;
use std::str::FromStr;

/// The part of the budget that a heap may have: the rest is the runtime itself, its stacks, its code, and pleat.
const HEAP_PERCENT: u64 = 75;

/// Whom to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Go's runtime: GOMEMLIMIT.
    Go,
    /// Java's virtual machine: JAVA_TOOL_OPTIONS.
    Java,
    /// Node.js, and V8 in it: NODE_OPTIONS.
    Node,
}

/// Every one of them, as in `--hint` without a value.
pub const ALL: &str = "all";
/// What can be given.
const REMEDY: &str = "give all, or some of go,java,node with commas between them";

impl Hint {
    /// As in `--hint`.
    pub fn name(self) -> &'static str {
        match self {
            Hint::Go => "go",
            Hint::Java => "java",
            Hint::Node => "node",
        }
    }
}

/// Several of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints(pub Vec<Hint>);

impl FromStr for Hints {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Hints, &'static str> {
        let all = [Hint::Go, Hint::Java, Hint::Node];
        if text == ALL {
            return Ok(Hints(all.into()));
        }
        let named = |name: &str| all.into_iter().find(|hint| hint.name() == name);
        let found: Option<Vec<Hint>> = text.split(',').map(named).collect();
        found.map(Hints).ok_or(REMEDY)
    }
}

impl Hint {
    /// The variable with its new value, when it had this one before; `None`: whoever set it knows better.
    fn variable(
        self,
        budget_bytes: u64,
        before: &dyn Fn(&str) -> Option<OsString>,
    ) -> Option<(OsString, OsString)> {
        let heap = budget_bytes * HEAP_PERCENT / 100;
        let (name, option, is_told) = match self {
            Hint::Go => ("GOMEMLIMIT", heap.to_string(), &[""][..]),
            Hint::Java => (
                "JAVA_TOOL_OPTIONS",
                format!("-XX:MaxRAM={budget_bytes} -XX:MaxRAMPercentage={HEAP_PERCENT}"),
                &["-XX:MaxRAM", "-Xmx"][..],
            ),
            Hint::Node => (
                "NODE_OPTIONS",
                format!("--max-old-space-size={}", (heap >> 20).max(1)),
                &["--max-old-space-size", "--max_old_space_size"][..],
            ),
        };
        let value = match before(name).filter(|value| !value.is_empty()) {
            None => option.into(),
            Some(value) => {
                let text = value.to_string_lossy();
                if is_told.iter().any(|known| text.contains(known)) {
                    return None;
                }
                let mut both = value;
                both.push(" ");
                both.push(option);
                both
            }
        };
        Some((name.into(), value))
    }
}

/// What is set in the program's environment, where this is its own now.
pub fn variables(
    hints: &[Hint],
    budget_bytes: u64,
    before: &dyn Fn(&str) -> Option<OsString>,
) -> Vec<(OsString, Option<OsString>)> {
    let set = hints
        .iter()
        .filter_map(|hint| hint.variable(budget_bytes, before));
    set.map(|(name, value)| (name, Some(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(hint: &str, before: Option<&str>) -> Option<String> {
        let hints: Hints = hint.parse().unwrap();
        let before = |_: &str| before.map(OsString::from);
        let all = variables(&hints.0, 1000 << 20, &before);
        let (name, value) = all.into_iter().next()?;
        Some(format!("{}={}", name.to_str()?, value?.to_str()?))
    }

    #[test]
    fn each_runtime_is_told_in_its_own_words() {
        assert_eq!(set("go", None), Some("GOMEMLIMIT=786432000".into()));
        let java = "JAVA_TOOL_OPTIONS=-XX:MaxRAM=1048576000 -XX:MaxRAMPercentage=75";
        assert_eq!(set("java", Some("")), Some(java.into()));
        assert_eq!(
            set("node", None),
            Some("NODE_OPTIONS=--max-old-space-size=750".into())
        );
        let count = |text: &str| text.parse::<Hints>().map(|hints| hints.0.len());
        assert_eq!((count("all"), count("node,go")), (Ok(3), Ok(2)));
        for wrong in ["", "python", "go,", "all,go"] {
            assert_eq!(count(wrong), Err(REMEDY), "{wrong}");
        }
    }

    #[test]
    fn who_has_set_a_limit_knows_better_and_other_options_stay() {
        assert_eq!(set("go", Some("50MiB")), None);
        assert_eq!(set("java", Some("-ea -Xmx1g")), None);
        assert_eq!(set("node", Some("--max_old_space_size=99")), None);
        let both = "NODE_OPTIONS=--enable-source-maps --max-old-space-size=750";
        assert_eq!(set("node", Some("--enable-source-maps")), Some(both.into()));
    }
}
