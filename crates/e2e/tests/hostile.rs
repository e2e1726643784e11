//! Hostile processes, of other users and in the job itself: none harms anybody but itself. Every attack runs beside
//! an honest program that checks its memory throughout, and the job ends with that program's status.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use pleat_e2e::{
    is_alive, reaches_other_networks, skip, Job, Machine, Megabytes, Outcome, Running,
};

const BUDGET: Megabytes = Megabytes(44);
const NOBODY: &str = "65534";

struct Scene {
    machine: Machine,
    torture: PathBuf,
    hostile: PathBuf,
    /// Everybody may go there.
    _open: tempfile::TempDir,
}

impl Scene {
    /// Only root can be another user as well.
    fn as_root() -> Option<Scene> {
        let machine = Machine::ready()?;
        let (torture, hostile) = (machine.torture()?, machine.hostile()?);
        if !machine.installed(&["setpriv", "sh", "env"]) {
            return None;
        }
        if !fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
            skip("only root can run programs of other users");
            return None;
        }
        let open = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(open.path(), Permissions::from_mode(0o755)).expect("it is ours");
        let copy = open.path().join("hostile");
        fs::copy(hostile, &copy).expect("there is room for a copy");
        Some(Scene {
            machine,
            torture,
            hostile: copy,
            _open: open,
        })
    }

    /// An honest program with more memory than its job may use; it checks every page again and again.
    fn honest(&self, passes: u32) -> Job<'_> {
        let walk = ["walk", "64", &passes.to_string(), "mixed"].map(String::from);
        self.machine.job(&self.torture).args(walk).budget(BUDGET)
    }

    /// The same beside whatever `attack` starts with `$HOSTILE`, in one job.
    fn honest_beside(&self, attack: &str, passes: u32) -> Job<'_> {
        let script = format!(
            r#"( {attack} ) & "$TORTURE" walk 64 {passes} mixed; status=$?; wait; exit $status"#
        );
        let shell = self.machine.job("sh").args(["-c", &script]).budget(BUDGET);
        let job = shell.env("TORTURE", &self.torture);
        job.env("HOSTILE", &self.hostile).timeout(100)
    }

    /// Attacks a running job as another user.
    fn attack(&self, running: &Running, args: &[&str]) -> Output {
        let mut command = self.nobody(&args[..1], &socket_of(running));
        command
            .args(&args[1..])
            .output()
            .expect("setpriv is installed")
    }

    fn nobody(&self, mode: &[&str], socket: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
        command.arg(&self.hostile).args(mode).arg(socket);
        command
    }
}

/// The name of its job's socket, as everybody can find it out.
fn socket_of(running: &Running) -> String {
    let of_job = |pid: &i32| {
        let text = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let mut variables = text.split('\0');
        let name = variables.find_map(|entry| entry.strip_prefix("PLEAT_SOCKET="))?;
        Some(name.to_owned())
    };
    let name = running.descendants().iter().find_map(of_job);
    let name = name.expect("a process of the job knows its socket");
    let all = fs::read_to_string("/proc/net/unix").expect("the list of sockets");
    assert!(all.contains(&format!("@{name}")), "it is no secret");
    name
}

fn counter(outcome: &Outcome, name: &str) -> u64 {
    let value = outcome.stats()["report"]["pager"][name].as_u64();
    value.unwrap_or_else(|| panic!("no counter {name}"))
}

fn unharmed(outcome: &Outcome) {
    outcome.expect_success();
    let printed = outcome.stdout_text();
    let is_whole = printed.contains("ok walk") && !printed.contains("FAIL");
    assert!(is_whole, "{printed}\n{}", outcome.describe());
}

#[test]
fn another_user_cannot_end_a_job() {
    let Some(scene) = Scene::as_root() else {
        return;
    };
    let running = scene.honest(8).spawn();
    running.wait_for_output("pass 1");
    for _ in 0..20 {
        let output = scene.attack(&running, &["end"]);
        let heard = String::from_utf8_lossy(&output.stdout).into_owned();
        // Told that it is not served, or nothing; never to get ready.
        assert!(
            ["heard 6\n", "heard 0\n"].contains(&heard.as_str()),
            "{heard}"
        );
    }
    let outcome = running.wait();
    unharmed(&outcome);
    assert!(counter(&outcome, "refused_peers") >= 20);
    assert_eq!(
        outcome.stderr.matches("does not belong to the job").count(),
        1
    );
}

#[test]
fn ten_thousand_idle_connections_of_another_user_leave_a_job_unharmed() {
    let Some(scene) = Scene::as_root() else {
        return;
    };
    let running = scene.honest(8).spawn();
    running.wait_for_output("pass 1");
    let output = scene.attack(&running, &["idle", "10000", "15"]);
    assert!(output.status.success(), "{output:?}");
    let outcome = running.wait();
    unharmed(&outcome);
    assert!(counter(&outcome, "refused_peers") > 900);
}

/// What an agent would have the supervisor take from its process's descriptors: files, sockets of other kinds, connections of other processes,
/// and such as nothing, or nonsense, is said over.
#[test]
fn what_a_process_offers_that_is_no_conversation_of_its_own_harms_nobody() {
    let Some(scene) = Scene::as_root() else {
        return;
    };
    if !reaches_other_networks() {
        return;
    }
    let Some(offers) = scene.machine.compiled_with("cc", "offers", &[]) else {
        return;
    };
    let attack = r#"for kind in 0 1 2 3 4 5 6 7 8 9 10; do "$OFFERS" $kind 6 & done; wait"#;
    let job = scene.honest_beside(attack, 6).env("OFFERS", &offers);
    let outcome = job.run();
    unharmed(&outcome);
    // That the same process goes on is all that is promised to it.
    let printed = outcome.stdout_text();
    assert_eq!(
        printed.matches("offered ").count(),
        11,
        "{printed}\n{}",
        outcome.describe()
    );
    assert!(
        counter(&outcome, "unmanaged_processes") > 4,
        "{} are unmanaged\n{}",
        counter(&outcome, "unmanaged_processes"),
        outcome.describe()
    );
    assert!(
        counter(&outcome, "dropped_peers") > 0,
        "{}",
        outcome.describe()
    );
}

/// The name of pleat's socket is anybody's in another network namespace.
#[test]
fn who_listens_by_the_name_of_the_socket_in_another_network_is_told_nothing() {
    let Some(scene) = Scene::as_root() else {
        return;
    };
    if !reaches_other_networks() {
        return;
    }
    let Some(impostor) = scene.machine.compiled_with("cc", "impostor", &[]) else {
        return;
    };
    let job = scene.machine.job(impostor).arg("60").budget(BUDGET);
    let outcome = job.run();
    outcome.expect_success().expect_folded();
    assert_eq!(outcome.stdout_text(), "heard 0\n");
    assert_eq!(outcome.stderr, "", "{}", outcome.describe());
    // It, and three children.
    assert!(counter(&outcome, "managed_processes") >= 4);
}

/// A number that is given to the next process: only root may say so.
fn next_pid(pid: i32) -> bool {
    fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).is_ok()
}

#[test]
fn a_connection_of_the_dead_speaks_for_nobody() {
    let Some(scene) = Scene::as_root() else {
        return;
    };
    let running = scene.honest(8).spawn();
    running.wait_for_output("pass 1");
    let mut command = scene.nobody(&["dead"], &socket_of(&running));
    let mut attacker = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("setpriv is installed");
    let mut line = String::new();
    let stdout = attacker.stdout.take().expect("piped");
    BufReader::new(stdout)
        .read_line(&mut line)
        .expect("it says the number");
    let number: i32 = line.trim().parse().expect("a number");
    let Some(mut bystander) = process_with_number(number) else {
        attacker.kill().expect("it is our child");
        attacker.wait().expect("it is our child");
        return skip("no process gets the number that is wanted");
    };
    let mut stdin = attacker.stdin.take().expect("piped");
    stdin.write_all(b"go\n").expect("it listens");
    attacker.wait().expect("it is our child");
    let outcome = running.wait();
    let ended = bystander.try_wait().expect("it is our child");
    bystander.kill().expect("it is our child");
    bystander.wait().expect("it is our child");
    assert!(
        ended.is_none(),
        "a process that has nothing to do with it was ended"
    );
    unharmed(&outcome);
}

/// A process that has nothing to do with the job, with that number. The caller waits for it.
fn process_with_number(number: i32) -> Option<Child> {
    for _ in 0..200 {
        if !next_pid(number) {
            return None;
        }
        let mut sleeper = Command::new("sleep").arg("600").spawn().ok()?;
        if sleeper.id() as i32 == number {
            return Some(sleeper);
        }
        sleeper.kill().ok()?;
        sleeper.wait().ok()?;
    }
    None
}

#[test]
fn nobody_is_sent_the_userfaultfd_of_another_process() {
    let Some(scene) = Scene::as_root() else {
        return;
    };
    let victim = scene.machine.job(&scene.hostile).args(["victim", "-", "9"]);
    let running = victim.budget(Megabytes(40)).spawn();
    std::thread::sleep(std::time::Duration::from_secs(1));
    let output = scene.attack(&running, &["steal", "5"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && printed.contains("tries"),
        "{printed}"
    );
    let outcome = running.wait();
    outcome.expect_success();
    assert!(
        outcome.stdout_text().contains("unharmed"),
        "{}",
        outcome.describe()
    );
    assert!(counter(&outcome, "refused_peers") > 10);
}

/// A process of the job, of another user than the one whose children it says it is.
#[test]
fn a_process_of_the_job_cannot_claim_the_memory_of_another_user() {
    let Some(scene) = Scene::as_root() else {
        return;
    };
    let script = format!(
        r#"( setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups env -u LD_PRELOAD PLEAT_SOCKET= "$HOSTILE" steal "$PLEAT_SOCKET" 5 ) &
        "$HOSTILE" victim - 8; status=$?; wait; exit $status"#
    );
    let job = scene.machine.job("sh").args(["-c", &script]);
    let job = job.budget(Megabytes(40)).env("HOSTILE", &scene.hostile);
    let outcome = job.run();
    outcome.expect_success();
    let printed = outcome.stdout_text();
    assert!(
        printed.contains("unharmed") && printed.contains("tries"),
        "{printed}"
    );
    assert!(
        counter(&outcome, "dropped_peers") > 10,
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_process_of_the_job_cannot_end_it() {
    let Some(scene) = Scene::as_root() else {
        return;
    };
    let attack = r#"for n in 1 2 3 4 5; do env -u LD_PRELOAD PLEAT_SOCKET= "$HOSTILE" end "$PLEAT_SOCKET"; done"#;
    let outcome = scene.honest_beside(attack, 4).run();
    unharmed(&outcome);
}

/// It sends a pipe as its userfaultfd, in which it has written that forks have happened, and that their userfaultfds
/// are the supervisor's own descriptors.
#[test]
fn forged_messages_of_the_kernel_are_not_read() {
    let Some(scene) = Scene::as_root() else {
        return;
    };
    let attack = r#"env -u LD_PRELOAD PLEAT_SOCKET= "$HOSTILE" forge "$PLEAT_SOCKET" 8"#;
    let outcome = scene.honest_beside(attack, 6).run();
    unharmed(&outcome);
    assert!(
        outcome.stdout_text().contains("forged"),
        "{}",
        outcome.stdout_text()
    );
    assert!(counter(&outcome, "dropped_peers") > 0);
}

/// It sends the mere name of a file (O_PATH), which the supervisor, as root, could open.
#[test]
fn a_process_that_has_given_up_root_is_not_shown_files_of_roots() {
    let Some(scene) = Scene::as_root() else {
        return;
    };
    // Beside the swap file: on a disk, where files are taken from.
    let secret = scene.machine.scratch().join("secret");
    fs::write(&secret, "s3cr3t ".repeat(8 << 17)).expect("the scratch directory is writable");
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("it is ours");
    let attack = format!(r#""$HOSTILE" secret - {} {}"#, secret.display(), BUDGET.0);
    let outcome = scene.honest_beside(&attack, 4).run();
    unharmed(&outcome);
    let printed = outcome.stdout_text();
    assert!(
        printed.contains("yes 0") && !printed.contains("READ"),
        "{printed}"
    );
}

#[test]
fn idle_connections_of_a_process_of_the_job_leave_it_unharmed() {
    let Some(scene) = Scene::as_root() else {
        return;
    };
    let attack = r#"env -u LD_PRELOAD PLEAT_SOCKET= "$HOSTILE" idle "$PLEAT_SOCKET" 10000 10"#;
    let outcome = scene.honest_beside(attack, 6).run();
    unharmed(&outcome);
    assert!(
        counter(&outcome, "dropped_peers") > 900,
        "{}",
        outcome.describe()
    );
}

/// Whatever may come, by a seed, from processes with and without an agent, of root and of another user.
fn survives_anything(seed: u64) {
    let Some(scene) = Scene::as_root() else {
        return;
    };
    let attack = format!(
        r#"env -u LD_PRELOAD PLEAT_SOCKET= "$HOSTILE" fuzz "$PLEAT_SOCKET" {seed} 12 & "$HOSTILE" fuzz - {}1 11 &
        setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups env -u LD_PRELOAD PLEAT_SOCKET= "$HOSTILE" fuzz "$PLEAT_SOCKET" {}2 12 & wait"#,
        seed, seed
    );
    let running = scene.honest_beside(&attack, 10).spawn();
    let supervisor = running.pid();
    let outcome = running.wait();
    unharmed(&outcome);
    assert!(!is_alive(supervisor));
    let said = outcome.stdout_text();
    assert_eq!(
        said.matches("said ").count(),
        3,
        "{said}\n{}",
        outcome.describe()
    );
    assert!(outcome.stderr.lines().count() < 60, "{}", outcome.stderr);
    assert!(counter(&outcome, "dropped_peers") > 100);
    assert!(
        counter(&outcome, "ended_processes") > 0,
        "none got so far as to be managed"
    );
}

#[test]
fn a_job_survives_anything_that_a_process_says() {
    survives_anything(seed().unwrap_or(1));
}

#[test]
fn a_job_survives_anything_else_that_a_process_says() {
    survives_anything(seed().map_or(7, |seed| seed + 1));
}

/// `PLEAT_FUZZ_SEED`, to try others.
fn seed() -> Option<u64> {
    std::env::var("PLEAT_FUZZ_SEED").ok()?.parse().ok()
}

#[test]
fn who_keeps_its_own_lock_is_ended_and_holds_up_nobody() {
    let Some(scene) = Scene::as_root() else {
        return;
    };
    let start = std::time::Instant::now();
    let outcome = scene
        .honest_beside(
            r#"env -u LD_PRELOAD PLEAT_SOCKET= "$HOSTILE" lock "$PLEAT_SOCKET" 90"#,
            6,
        )
        .run();
    unharmed(&outcome);
    let stderr = &outcome.stderr;
    assert!(stderr.contains("lock is not let go"), "{stderr}");
    // It, and its child, whose memory nobody can vouch for, if that is not gone with it.
    let ended = counter(&outcome, "ended_processes");
    assert!((1..=2).contains(&ended), "{ended}: {stderr}");
    let took = start.elapsed().as_secs();
    assert!(took < 60, "its job took {took} s");
}

/// Lines of this name in the status of every thread of a process, the agent's last.
fn of_threads(pid: i32, name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let text = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let line = line
            .unwrap_or_default()
            .trim_start_matches(':')
            .trim()
            .to_owned();
        match text.starts_with("Name:\tpleat-agent\n") {
            true => lines.push(line),
            false => lines.insert(0, line),
        }
    }
    lines
}

#[test]
fn a_program_that_gives_up_root_keeps_no_thread_that_has_not() {
    let Some(scene) = Scene::as_root() else {
        return;
    };
    // With 64 MiB it is managed before, with one it never is, and pleat has no thread there.
    for (mib, threads) in [("64", 2), ("1", 1)] {
        let job = scene.machine.job(&scene.hostile).budget(BUDGET);
        let running = job.args(["drop", "-", mib, "4"]).spawn();
        running.wait_for_output("filled");
        let is_it = |pid: &i32| {
            of_threads(*pid, "Name")
                .first()
                .is_some_and(|name| name == "hostile")
        };
        let program = running
            .descendants()
            .into_iter()
            .find(is_it)
            .expect("it runs");
        let effective = of_threads(program, "CapEff");
        assert_eq!(effective.len(), threads, "the program and its agent");
        if threads == 1 {
            running.wait().expect_success();
            continue;
        }
        assert_eq!(effective[1], "0000000000000000", "while it waits");
        running.wait_for_output("dropped");
        std::thread::sleep(std::time::Duration::from_millis(800));
        let nobody = [NOBODY; 4].join("\t");
        assert_eq!(of_threads(program, "Uid"), [nobody.clone(), nobody.clone()]);
        assert_eq!(of_threads(program, "Gid"), [nobody.clone(), nobody]);
        assert_eq!(of_threads(program, "Groups"), ["", ""]);
        assert_eq!(of_threads(program, "CapPrm")[1], "0000000000000000");
        running.wait().expect_success();
    }
}
