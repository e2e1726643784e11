//! The one list of sizing policies, from which the command line and its help choose.
//!
//! A new policy is one file and one line here.

use crate::{Balance, Castro03, Cervera99, Cpc08, Douglis93, Kaplan99, Pleat, Sizing, Static};

/// Makes a policy from its parameter, `None` where there is none.
type Make = fn(Option<&str>) -> Result<Box<dyn Sizing>, String>;

/// A policy as the command line knows it.
struct Entry {
    name: &'static str,
    /// How the parameter is written, each way once; empty: there must be none.
    parameters: &'static [&'static str],
    /// Whether the parameter can be left out.
    bare: bool,
    make: Make,
}

/// Every policy, in alphabetical order.
const POLICIES: [Entry; 10] = [
    bare("aggressive", |_| boxed(Ok(Castro03::aggressive()))),
    Entry {
        name: "balance",
        parameters: &["SHARE%"],
        bare: false,
        make: |text| boxed(Balance::from_text(text.unwrap_or_default())),
    },
    bare("castro03", |_| boxed(Ok(Castro03::reference()))),
    optional("cervera99", &["SIZE"], |text| {
        boxed(text.map_or(Ok(Cervera99::default()), Cervera99::from_text))
    }),
    optional("cpc08", &["SHARE%"], |text| {
        boxed(text.map_or(Ok(Cpc08::default()), Cpc08::from_text))
    }),
    optional("douglis93", &["COMPRESSED%:FILE%"], |text| {
        boxed(text.map_or(Ok(Douglis93::default()), Douglis93::from_text))
    }),
    bare("kaplan99", |_| boxed(Ok(Kaplan99::default()))),
    optional("pleat", &["LEAST%:MOST%"], |text| {
        boxed(text.map_or(Ok(Pleat::default()), Pleat::from_text))
    }),
    bare("sluggish", |_| boxed(Ok(Castro03::sluggish()))),
    Entry {
        name: "static",
        parameters: &["SHARE%", "SIZE"],
        bare: false,
        make: |text| boxed(Static::from_text(text.unwrap_or_default())),
    },
];

const fn bare(name: &'static str, make: Make) -> Entry {
    Entry {
        name,
        parameters: &[],
        bare: true,
        make,
    }
}

const fn optional(name: &'static str, parameters: &'static [&'static str], make: Make) -> Entry {
    Entry {
        name,
        parameters,
        bare: true,
        make,
    }
}

fn boxed<P: Sizing + 'static>(policy: Result<P, String>) -> Result<Box<dyn Sizing>, String> {
    policy.map(|policy| Box::new(policy) as Box<dyn Sizing>)
}

/// How each policy is written on the command line; what stands in brackets may be left out.
pub fn sizing_names() -> Vec<String> {
    let written = |entry: &Entry| -> Vec<String> {
        let name = entry.name;
        if entry.parameters.is_empty() {
            return vec![name.to_owned()];
        }
        let with = |parameter: &&str| match entry.bare {
            true => format!("{name}[:{parameter}]"),
            false => format!("{name}:{parameter}"),
        };
        entry.parameters.iter().map(with).collect()
    };
    POLICIES.iter().flat_map(written).collect()
}

/// The policy written as `name`, fresh.
///
/// # Errors
/// A message that names the remedy, when there is no such policy or its parameter is wrong.
pub fn sizing_by_name(name: &str) -> Result<Box<dyn Sizing>, String> {
    let (bare, parameter) = match name.split_once(':') {
        Some((bare, parameter)) => (bare, Some(parameter)),
        None => (name, None),
    };
    let fits = |entry: &&Entry| match parameter {
        Some(_) => !entry.parameters.is_empty(),
        None => entry.bare,
    };
    let found = POLICIES.iter().find(|entry| entry.name == bare);
    match found.filter(fits) {
        Some(entry) => (entry.make)(parameter),
        None => Err(format!(
            "no sizing policy is called {name:?}; there are {}",
            sizing_names().join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(name: &str) -> String {
        let shares = ["SHARE", "COMPRESSED", "FILE", "LEAST"];
        let name = name.replace("SIZE", "64M").replace("MOST", "80");
        shares
            .iter()
            .fold(name, |name, share| name.replace(share, "20"))
    }

    #[test]
    fn every_listed_policy_can_be_made_with_and_without_what_is_in_brackets() {
        for name in sizing_names() {
            let bare = name.split('[').next().unwrap();
            for name in [filled(bare), filled(&name).replace(['[', ']'], "")] {
                let policy = sizing_by_name(&name).unwrap();
                assert_eq!(name.split(':').next(), Some(policy.name()));
            }
        }
    }

    #[test]
    fn the_list_is_in_order() {
        assert!(POLICIES.is_sorted_by(|one, next| one.name < next.name));
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_list() {
        for name in ["adaptive", "", "static", "castro03:", "castro03:5%"] {
            let error = sizing_by_name(name).err().unwrap();
            assert!(
                error.contains("castro03") && error.contains("static:SIZE"),
                "{name}: {error}"
            );
        }
    }
}
