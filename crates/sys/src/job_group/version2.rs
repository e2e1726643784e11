//! Groups in cgroup v2, where no group has both processes and others below that it gives a controller.

use super::{fresh_dir, members, random_name, sweep, JobGroup, Place, Version, OF_SUPERVISORS};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Makes the job's group in `home`, this process's own, and moves this process into one beside it where that has to be.
pub(super) fn make_in(home: &Path) -> Result<JobGroup, String> {
    let controllers = fs::read_to_string(home.join("cgroup.controllers")).unwrap_or_default();
    if !has_memory(&controllers) {
        return Err(format!(
            "the memory controller is not enabled in {}",
            home.display()
        ));
    }
    sweep(home, Version::V2);
    let given = fs::read_to_string(home.join("cgroup.subtree_control")).unwrap_or_default();
    // The root of the hierarchy may have both, and has no type.
    let is_root = !home.join("cgroup.type").exists();
    let supervisor = match is_root || has_memory(&given) {
        true => None,
        false => Some(step_aside(home)?),
    };
    let place = |dir| Place {
        version: Version::V2,
        dir,
        home: home.to_owned(),
        supervisor: supervisor.clone(),
    };
    let made = give_memory(home, has_memory(&given)).and_then(|()| fresh_dir(home));
    let (dir, lock) = made.inspect_err(|_| {
        if let Some(supervisor) = &supervisor {
            step_back(home, supervisor);
        }
    })?;
    JobGroup::open(place(dir), lock)
}

fn has_memory(controllers: &str) -> bool {
    controllers.split_whitespace().any(|name| name == "memory")
}

fn give_memory(home: &Path, is_given: bool) -> Result<(), String> {
    if is_given {
        return Ok(());
    }
    let file = home.join("cgroup.subtree_control");
    fs::write(&file, "+memory").map_err(|error| format!("{}: {error}", file.display()))
}

/// Moves this process into a group below its own, so that its own may have groups with limits.
fn step_aside(home: &Path) -> Result<PathBuf, String> {
    let own = std::process::id() as i32;
    if members(home).iter().any(|pid| *pid != own) {
        return Err(format!(
            "{} holds other processes, too, and cgroup v2 allows no limits below such a group; start pleat in one of its own ({})",
            home.display(),
            group_of_its_own(home, Starter::of_this())
        ));
    }
    let dir = home.join(format!("{OF_SUPERVISORS}{}", random_name()));
    let entered = fs::create_dir(&dir).and_then(|()| enter(&dir));
    entered.map_err(|error| {
        let _ = fs::remove_dir(&dir);
        format!("{} may not be written to ({error})", home.display())
    })?;
    Ok(dir)
}

/// Who makes a group for pleat alone.
#[derive(Clone, Copy)]
enum Starter {
    /// systemd, for a user or for root.
    UserManager,
    SystemManager,
    /// A shell, as root.
    Shell,
}

impl Starter {
    fn of_this() -> Starter {
        let is_root = crate::procfs::real_uid(std::process::id() as i32).is_ok_and(|uid| uid == 0);
        match (is_root, Path::new("/run/systemd/system").exists()) {
            (false, _) => Starter::UserManager,
            (true, true) => Starter::SystemManager,
            (true, false) => Starter::Shell,
        }
    }
}

/// Commands that start pleat in a group of its own, where `home` has others.
fn group_of_its_own(home: &Path, starter: Starter) -> String {
    let beside = home
        .parent()
        .filter(|above| above.join("cgroup.subtree_control").exists());
    let enter = |above: &Path| {
        let group = above.join("pleat");
        let group = group.display();
        format!("sh -c 'echo $$ >{group}/cgroup.procs; exec pleat run ...'")
    };
    match (starter, beside) {
        (Starter::UserManager, _) => "systemd-run --user --scope -p Delegate=yes pleat run ...".into(),
        (Starter::SystemManager, _) => "systemd-run --scope -p Delegate=yes pleat run ...".into(),
        (Starter::Shell, Some(above)) => format!("mkdir {}/pleat; {}", above.display(), enter(above)),
        // The topmost that is seen, as in a container: it gives the controller on once it holds no process.
        (Starter::Shell, None) => format!(
            "cd {}; mkdir others pleat; for pid in $(cat cgroup.procs); do echo $pid >others/cgroup.procs; done; \
             echo +memory >cgroup.subtree_control; {}",
            home.display(),
            enter(home)
        ),
    }
}

fn step_back(home: &Path, supervisor: &Path) {
    let _ = fs::write(home.join("cgroup.subtree_control"), "-memory");
    let _ = enter(home);
    let _ = fs::remove_dir(supervisor);
}

fn enter(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("cgroup.procs"), "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_without_systemd_is_told_how_to_make_a_group_by_hand() {
        let top = std::env::temp_dir().join(format!("pleat-group-{}", random_name()));
        let home = top.join("session");
        fs::create_dir_all(&home).unwrap();
        let alone = group_of_its_own(&home, Starter::Shell);
        assert!(
            alone.starts_with(&format!("cd {}; mkdir others pleat;", home.display())),
            "{alone}"
        );
        fs::write(top.join("cgroup.subtree_control"), "memory").unwrap();
        let beside = group_of_its_own(&home, Starter::Shell);
        let top_name = top.display();
        let expected = format!(
            "mkdir {top_name}/pleat; sh -c 'echo $$ >{top_name}/pleat/cgroup.procs; exec pleat run ...'"
        );
        assert_eq!(beside, expected);
        assert!(!group_of_its_own(&home, Starter::SystemManager).contains("--user"));
        fs::remove_dir_all(&top).unwrap();
    }
}
