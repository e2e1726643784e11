//! What an ordinary user of a machine may: with `pleat setup`, without it, with the sysctl, in a user namespace.
//!
//! An installation of its own, in a directory of root's; the group is one that every machine has.

use pleat_e2e::{skip, Machine};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const GROUP: &str = "users";
const NOBODY: &str = "65534";
const SYSCTL: &str = "/proc/sys/vm/unprivileged_userfaultfd";

/// pleat as `make install` installs it.
struct Installation {
    dir: tempfile::TempDir,
    program: PathBuf,
    group_id: String,
    _machine: Machine,
}

impl Installation {
    fn make() -> Option<Installation> {
        let machine = Machine::ready()?;
        let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        let groups = fs::read_to_string("/etc/group").unwrap_or_default();
        let line = groups.lines().find(|line| line.starts_with("users:"));
        let (true, Some(line)) = (is_root, line) else {
            skip("only root can set pleat up, and only for a group");
            return None;
        };
        if !machine.installed(&["setpriv", "unshare"]) {
            return None;
        }
        let built = machine.pleat().parent()?.to_owned();
        let dir = tempfile::tempdir_in("/var/tmp").expect("root may write there");
        let open = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
        };
        open(dir.path(), 0o755);
        for (from, to) in [
            (built.join("pleat"), "bin/pleat"),
            (machine.agent(), "lib/pleat/libpleat_agent.so"),
            (built.join("pleat-helper"), "lib/pleat/pleat-helper"),
            (machine.shut_in()?, "bin/shut_in"),
            (machine.waiters()?, "bin/waiters"),
        ] {
            let to = dir.path().join(to);
            fs::create_dir_all(to.parent()?).expect("it is ours");
            fs::copy(from, &to).expect("there is room for a copy");
            open(&to, 0o755);
        }
        fs::create_dir(dir.path().join("swap")).expect("it is ours");
        open(&dir.path().join("swap"), 0o1777);
        Some(Installation {
            program: dir.path().join("bin/shut_in"),
            group_id: line.split(':').nth(2)?.to_owned(),
            dir,
            _machine: machine,
        })
    }

    fn pleat(&self) -> PathBuf {
        self.dir.path().join("bin/pleat")
    }

    fn setup(&self, flags: &[&str]) {
        let done = Command::new(self.pleat()).arg("setup").args(flags).output();
        let done = done.expect("it is installed");
        assert!(done.status.success(), "{}", text(&done));
    }

    /// Runs pleat as nobody, with this group or none.
    fn as_nobody(&self, group: Option<&str>, arguments: &[&str]) -> Output {
        self.run_as_nobody(group, &self.pleat(), arguments)
    }

    fn run_as_nobody(&self, group: Option<&str>, program: &Path, arguments: &[&str]) -> Output {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--inh-caps=-all"]);
        match group {
            Some(id) => command.args(["--groups", id]),
            None => command.arg("--clear-groups"),
        };
        let command = command.arg(program).args(arguments);
        command
            .current_dir(self.dir.path())
            .output()
            .expect("setpriv is installed")
    }

    fn run(&self, group: Option<&str>, how: &str) -> Output {
        let swap = self.dir.path().join("swap");
        let (swap, program) = (swap.to_string_lossy(), self.program.to_string_lossy());
        let memory = [
            "run",
            "--memory",
            "44M",
            "--swap-dir",
            &swap,
            "--",
            &program,
        ];
        self.as_nobody(group, &[&memory[..], &[how, "80"]].concat())
    }
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

#[test]
fn who_is_in_the_group_runs_programs_that_fork() {
    let Some(installed) = Installation::make() else {
        return;
    };
    installed.setup(&["--group", GROUP]);
    let group = Some(installed.group_id.as_str());
    assert_eq!(text(&installed.run(group, "none")), "ok 0\n");
    let doctor = installed.as_nobody(group, &["doctor"]);
    assert!(
        text(&doctor).contains("allowed through pleat-helper"),
        "{}",
        text(&doctor)
    );
    assert!(
        !text(&doctor).contains("note     fork"),
        "{}",
        text(&doctor)
    );
}

/// Nobody's program has its memory taken, is left, and finds all of it again.
const ATTACH: &str = r#"
bin/waiters 60 4 swap/end >swap/out & program=$!
while ! grep -q filled swap/out; do sleep 0.1; done
bin/pleat attach --memory 50M --swap-dir swap $program & pleat=$!
wait_until() { for i in $(seq 300); do "$@" && return; kill -0 $pleat || return; sleep 0.1; done; echo "never: $*"; }
is_away() { bin/pleat list --json | grep -Eq '"pages_away": ?[0-9]{4,}'; }
wait_until is_away
bin/pleat detach $program
wait $pleat; echo "attach $?"
touch swap/end
wait $program; echo "program $? $(tail -n 1 swap/out)"
"#;

#[test]
fn who_is_in_the_group_attaches_to_programs_of_its_own() {
    let Some(installed) = Installation::make() else {
        return;
    };
    installed.setup(&["--group", GROUP]);
    let attach = |group| {
        let arguments = ["120", "sh", "-c", ATTACH];
        let output = installed.run_as_nobody(group, Path::new("timeout"), &arguments);
        let _ = fs::remove_file(installed.dir.path().join("swap/end"));
        let _ = fs::remove_file(installed.dir.path().join("swap/out"));
        text(&output)
    };
    let done = attach(Some(installed.group_id.as_str()));
    let (went_well, end) = (
        ": left\nattach 0\nprogram 0 ok\n",
        "pleat: detached: the processes go on, with all their memory\n",
    );
    assert!(done.ends_with(&format!("{went_well}{end}")), "{done}");
    let refused = attach(None);
    assert!(refused.contains("sudo usermod -aG users"), "{refused}");
    assert!(refused.contains("program 0 ok\n"), "{refused}");
}

#[test]
fn who_is_not_in_the_group_is_told_how_to_get_there() {
    let Some(installed) = Installation::make() else {
        return;
    };
    installed.setup(&["--group", GROUP]);
    let refused = installed.run(None, "none");
    assert_eq!(refused.status.code(), Some(125), "{}", text(&refused));
    assert!(
        text(&refused).contains("sudo usermod -aG users"),
        "{}",
        text(&refused)
    );
}

#[test]
fn what_was_undone_is_recommended_again() {
    let Some(installed) = Installation::make() else {
        return;
    };
    installed.setup(&["--group", GROUP]);
    installed.setup(&["--undo"]);
    let refused = installed.run(Some(&installed.group_id), "none");
    assert_eq!(refused.status.code(), Some(125), "{}", text(&refused));
    assert!(
        text(&refused).contains("sudo pleat setup"),
        "{}",
        text(&refused)
    );
}

/// The machine's setting, put back at the end.
struct Sysctl(String);

impl Sysctl {
    fn allow() -> Option<Sysctl> {
        let before = fs::read_to_string(SYSCTL).ok()?;
        fs::write(SYSCTL, "1").ok()?;
        Some(Sysctl(before))
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        fs::write(SYSCTL, self.0.trim()).expect("it was written before");
    }
}

#[test]
fn with_the_sysctl_everything_works_but_forks() {
    let Some(installed) = Installation::make() else {
        return;
    };
    let Some(_sysctl) = Sysctl::allow() else {
        return skip("the sysctl cannot be set here");
    };
    assert_eq!(text(&installed.run(None, "single")), "ok 0\n");
    let forked = installed.run(None, "none");
    assert!(text(&forked).contains("fork refused"), "{}", text(&forked));
}

#[test]
fn the_helper_serves_nobody_whose_socket_it_is_not() {
    let Some(installed) = Installation::make() else {
        return;
    };
    installed.setup(&["--group", GROUP]);
    let helper = installed.dir.path().join("lib/pleat/pleat-helper");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--groups"]);
    let ended = command.arg(&installed.group_id).arg(helper).output();
    let ended = ended.expect("setpriv is installed");
    assert_eq!(ended.status.code(), Some(1), "{}", text(&ended));
    assert_eq!(text(&ended), "");
}

/// Root of a user namespace: the device is root's, whom it still is; forks are not reported.
#[test]
fn in_a_user_namespace_everything_works_but_forks() {
    let Some(installed) = Installation::make() else {
        return;
    };
    let run = |how: &str| {
        let mut command = Command::new("unshare");
        command.arg("-Ur").arg(installed.pleat());
        command.args(["run", "--memory", "44M", "--swap-dir", "/var/tmp", "--"]);
        let output = command.arg(&installed.program).args([how, "80"]).output();
        text(&output.expect("unshare is installed"))
    };
    let single = run("single");
    if single.contains("unshare") {
        return skip("no user namespaces here");
    }
    assert_eq!(single, "ok 0\n");
    assert!(run("none").contains("fork refused"));
}
