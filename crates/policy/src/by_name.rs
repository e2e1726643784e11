//! The one list of sizing policies, from which the command line and its help choose.
//!
//! A new policy is one file and one line here.

use crate::{Balance, Castro03, Sizing, Static};

/// How each policy is written on the command line.
pub fn sizing_names() -> Vec<&'static str> {
    vec!["balance:SHARE%", "castro03", "static:SHARE%", "static:SIZE"]
}

/// The policy written as `name`, fresh.
///
/// # Errors
/// A message that names the remedy, when there is no such policy or its parameter is wrong.
pub fn sizing_by_name(name: &str) -> Result<Box<dyn Sizing>, String> {
    if let Some(parameter) = name.strip_prefix("static:") {
        return Ok(Box::new(Static::from_text(parameter)?));
    }
    if let Some(parameter) = name.strip_prefix("balance:") {
        return Ok(Box::new(Balance::from_text(parameter)?));
    }
    match name {
        "castro03" => Ok(Box::new(Castro03::default())),
        _ => Err(format!(
            "no sizing policy is called {name:?}; there are {}",
            sizing_names().join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_policy_can_be_made() {
        for name in sizing_names() {
            let name = name.replace("SHARE", "60").replace("SIZE", "64M");
            let policy = sizing_by_name(&name).unwrap();
            assert!(name.starts_with(policy.name()));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_list() {
        let error = sizing_by_name("adaptive").err().unwrap();
        assert!(
            error.contains("castro03") && error.contains("static:SIZE"),
            "{error}"
        );
    }
}
