//! Programs in namespaces of their own: of the network, where pleat's socket has no name, of mounts, users, processes and the rest.
//! Containers and sandboxes are made of these. The programs are managed, and notice nothing.

use pleat_e2e::{reaches_other_networks, skip, Job, Machine, Megabytes, Nobody, Outcome};
use std::path::{Path, PathBuf};

/// What needs nearly twice as much.
const BUDGET: Megabytes = Megabytes(40);
/// Looked at so often that it runs long enough to be met, whatever else runs.
const FILLED: [&str; 2] = ["68", "15"];
/// Four children one after the other, each with two threads, in what is shared and 24 MiB.
const CROWD: [&str; 4] = ["2", "12", "2", "2"];

/// All ways that need nothing but the kernel, and what sandboxes do.
const WAYS: [&[&str]; 9] = [
    &["unshare", "-n"],
    &["unshare", "-rn"],
    &["unshare", "-U"],
    &["unshare", "-m"],
    &["unshare", "-p", "--fork"],
    &["unshare", "-i"],
    &["unshare", "-C"],
    &["unshare", "-rmnpiuC", "--fork", "--mount-proc"],
    SANDBOX,
];
/// Those in which pleat's socket cannot be reached.
const SECLUDED: [&[&str]; 2] = [&["unshare", "-n"], SANDBOX];
const SANDBOX: &[&str] = &["bwrap", "--unshare-all", "--bind", "/", "/"];

fn ready() -> Option<Machine> {
    Machine::ready().filter(|_| reaches_other_networks())
}

fn counter(outcome: &Outcome, name: &str) -> u64 {
    of_stats(&outcome.stats(), name)
}

fn of_stats(stats: &serde_json::Value, name: &str) -> u64 {
    let value = &stats["report"]["pager"][name];
    value.as_u64().unwrap_or_else(|| panic!("no {name}"))
}

/// Every process that is large enough is managed, and nobody complains.
fn assert_managed(outcome: &Outcome, processes: u64) {
    outcome.expect_success().expect_folded();
    assert_eq!(outcome.stderr, "", "{}", outcome.describe());
    let managed = counter(outcome, "managed_processes");
    assert!(managed >= processes, "{managed}: {}", outcome.describe());
    assert_eq!(counter(outcome, "unmanaged_processes"), 0);
}

/// The program behind this way into namespaces; `None`, visibly, where there is none.
fn job<'m>(machine: &'m Machine, way: &[&str], program: &Path, args: &[&str]) -> Option<Job<'m>> {
    if !machine.installed(&way[..1]) {
        return None;
    }
    let works = machine.job(way[0]).args(&way[1..]).arg("true").run();
    if works.status.code() != Some(0) {
        skip(format!("{} does not work here", way.join(" ")));
        return None;
    }
    Some(machine.job(way[0]).args(&way[1..]).arg(program).args(args))
}

/// A program of C that loads the library, and one that loads nothing.
fn kinds(machine: &Machine, program: &str) -> Vec<PathBuf> {
    let options: [&[&str]; 2] = [&[], &["-static"]];
    let kinds = options.iter();
    kinds
        .filter_map(|options| machine.compiled_with("cc", program, options))
        .collect()
}

/// As without pleat, but managed.
fn fills(machine: &Machine, way: &[&str], program: &Path) {
    let Some(job) = job(machine, way, program, &FILLED) else {
        return;
    };
    let native = job.clone().run();
    let outcome = job.budget(BUDGET).timeout(100).run();
    assert_managed(&outcome, 1);
    outcome.expect_same_output(&native);
}

#[test]
fn programs_in_namespaces_of_their_own_are_managed() {
    let Some(machine) = ready() else {
        return;
    };
    let Some(program) = machine.compiled_with("cc", "fill", &[]) else {
        return;
    };
    for way in WAYS {
        fills(&machine, way, &program);
    }
}

#[test]
fn programs_that_load_nothing_are_managed_without_network() {
    let Some(machine) = ready() else {
        return;
    };
    let Some(program) = machine.compiled_with("cc", "fill", &["-static"]) else {
        return;
    };
    for way in SECLUDED {
        fills(&machine, way, &program);
    }
}

#[test]
fn a_hard_limit_holds_without_network() {
    let Some(machine) = ready() else {
        return;
    };
    let Some(program) = machine.grow() else {
        return;
    };
    for way in SECLUDED {
        let Some(job) = job(&machine, way, &program, &["100"]) else {
            continue;
        };
        let native = job.clone().run();
        let outcome = job.budget(Megabytes(60)).hard_limit().timeout(100).run();
        assert_managed(&outcome, 1);
        outcome.expect_same_output(&native);
    }
}

#[test]
fn a_program_below_another_root_and_without_network_is_managed() {
    let Some(machine) = ready() else {
        return;
    };
    let Some(program) = machine.compiled_with("cc", "fill", &["-static"]) else {
        return;
    };
    if !machine.installed(&["unshare", "chroot"]) {
        return;
    }
    let root = machine.scratch().join("root");
    std::fs::create_dir_all(&root).expect("made");
    std::fs::copy(&program, root.join("fill")).expect("copied");
    let job = machine.job("unshare").args(["-mn", "chroot"]).arg(&root);
    let job = job.arg("/fill").args(FILLED);
    let native = job.clone().run();
    if native.status.code() != Some(0) {
        return skip("chroot does not work here");
    }
    let outcome = job.budget(BUDGET).timeout(100).run();
    assert_managed(&outcome, 1);
    outcome.expect_same_output(&native);
}

/// Their children claim what they have inherited, and have agents that cannot connect either.
#[test]
fn children_of_programs_without_network_find_what_they_have_inherited() {
    let Some(machine) = ready() else {
        return;
    };
    for program in kinds(&machine, "crowd") {
        for way in SECLUDED {
            let Some(job) = job(&machine, way, &program, &CROWD) else {
                continue;
            };
            let outcome = job.budget(Megabytes(28)).timeout(100).run();
            assert_managed(&outcome, 2);
            assert_eq!(outcome.stdout_text(), "ok\n");
            assert!(counter(&outcome, "forks") >= 4);
        }
    }
}

/// An agent that is connected stays so, wherever its program goes. Its children, and what it executes, are there from the start.
#[test]
fn a_managed_program_moves_to_other_namespaces_and_forks_and_executes_there() {
    let Some(machine) = ready() else {
        return;
    };
    for program in kinds(&machine, "emigrant") {
        let job = machine.job(&program).arg("64");
        let native = job.clone().run();
        if native.status.code() != Some(0) {
            return skip("namespaces cannot be made here");
        }
        let outcome = job.budget(BUDGET).timeout(100).run();
        assert_managed(&outcome, 2);
        // For itself, and for what it executes, which is another memory.
        assert!(counter(&outcome, "injected_agents") >= 2);
        outcome.expect_same_output(&native);
        assert_eq!(counter(&outcome, "forks"), 3);
    }
}

/// Its agent must be there from the start, for it would be bound by the filter later; and it cannot connect.
#[test]
fn a_program_without_network_that_shuts_itself_in_is_managed() {
    let Some(machine) = ready() else {
        return;
    };
    let Some(program) = machine.shut_in() else {
        return;
    };
    for way in SECLUDED {
        for how in ["none", "kill"] {
            let Some(job) = job(&machine, way, &program, &[how, "80"]) else {
                continue;
            };
            let outcome = job.budget(Megabytes(44)).timeout(60).run();
            assert_managed(&outcome, 1);
            assert_eq!(outcome.stdout_text(), "ok 0\n");
        }
    }
}

/// The program's descriptors are not in the agent's way: it has a table of its own.
#[test]
fn a_program_without_network_and_without_a_free_descriptor_is_managed() {
    let Some(machine) = ready() else {
        return;
    };
    // Static: a loader would need one.
    let Some(program) = machine.compiled_with("cc", "fill", &["-static"]) else {
        return;
    };
    let script = r#"ulimit -n 6; exec 3</dev/null 4</dev/null 5</dev/null; exec "$0" 68 15"#;
    let Some(job) = job(&machine, SECLUDED[0], Path::new("sh"), &["-c", script]) else {
        return;
    };
    let outcome = job.arg(&program).budget(BUDGET).timeout(60).run();
    assert_managed(&outcome, 1);
    assert_eq!(outcome.stdout_text(), "ok\n");
}

#[test]
fn programs_of_an_ordinary_user_in_namespaces_of_their_own_are_managed() {
    let Some(machine) = ready() else {
        return;
    };
    let (Some(fill), Some(shut_in)) = (machine.compiled_with("cc", "fill", &[]), machine.shut_in())
    else {
        return;
    };
    let file_name = |path: &Path| path.file_name()?.to_str().map(|name| format!("./{name}"));
    let names = [&fill, &shut_in].map(|path| file_name(path).expect("a name"));
    let Some(nobody) = Nobody::with(&machine, &[fill, shut_in]) else {
        return;
    };
    let jobs = [[&names[0], "80", "15"], [&names[1], "single", "80"]];
    let ways: [&[&str]; 4] = [
        &["unshare", "-rn"],
        &["unshare", "-U"],
        &["unshare", "-rmnp", "--fork"],
        SANDBOX,
    ];
    for way in ways {
        if !machine.installed(&way[..1]) {
            continue;
        }
        for job in jobs {
            let run = ["--memory", "44M", "--"];
            let ran = nobody.run(&[&run[..], way, &job].concat());
            let said = String::from_utf8_lossy(&ran.output.stderr).into_owned();
            let printed = String::from_utf8_lossy(&ran.output.stdout).into_owned();
            let what = format!("{way:?} {job:?}: {printed}{said}");
            assert!(ran.output.status.success(), "{what}");
            assert!(printed.starts_with("ok"), "{what}");
            assert_eq!(said, "", "{what}");
            assert_eq!(of_stats(&ran.stats, "managed_processes"), 1, "{what}");
            assert_eq!(of_stats(&ran.stats, "unmanaged_processes"), 0, "{what}");
        }
    }
}
