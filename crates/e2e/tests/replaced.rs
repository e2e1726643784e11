//! The agent's library calls nothing that a program can put something of its own in the place of.

use object::{Object, ObjectSymbol};
use pleat_e2e::{Machine, Megabytes};

/// What the library is not itself, each with the reason. Both are variables of the dynamic linker, that of the GNU C
/// library or of musl: by them it finds the list of what is loaded. They are read, and whichever is missing is 0.
const FOREIGN: &[&str] = &["_r_debug", "_dl_debug_addr"];

#[test]
fn the_agent_refers_to_no_function_of_others() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let bytes = std::fs::read(machine.agent()).expect("the agent library is readable");
    let library = object::File::parse(&*bytes).expect("the agent library is an object file");
    let undefined = library
        .dynamic_symbols()
        .filter(|symbol| symbol.is_undefined());
    let mut names: Vec<&str> = undefined.filter_map(|symbol| symbol.name().ok()).collect();
    names.retain(|name| !name.is_empty() && !FOREIGN.contains(name));
    assert_eq!(names, [""; 0], "symbols that a program can replace");
    assert!(
        library.section_by_name(".tbss").is_none() && library.section_by_name(".tdata").is_none()
    );
}

/// What it does define is what it stands in front of: by any other name it would itself be in a program's way.
#[test]
fn the_agent_defines_only_what_it_stands_in_front_of() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let bytes = std::fs::read(machine.agent()).expect("the agent library is readable");
    let library = object::File::parse(&*bytes).expect("the agent library is an object file");
    let defined = library
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition());
    let names: Vec<&str> = defined.filter_map(|symbol| symbol.name().ok()).collect();
    assert!(names.contains(&"mmap"), "{names:?}");
    for name in ["memcpy", "memmove", "memset", "memcmp", "bcmp", "strlen"] {
        assert!(!names.contains(&name), "{name} would replace the program's");
    }
}

#[test]
fn a_program_with_a_memset_of_its_own_runs_as_ever() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(program) = machine.compiled_with("cc", "own_memset", &[]) else {
        return;
    };
    let job = machine.job(program).arg("150").timeout(30);
    let native = job.clone().run();
    let outcome = job.budget(Megabytes(100)).run();
    outcome.expect_success().expect_same_output(&native);
    outcome.expect_folded();
}
