//! `pleat setup`: gives `pleat-helper` its capabilities and a group, or takes them back.
//!
//! Everything is shown as it is done. Nothing else on the machine changes, but for the group, which is made if it is
//! missing and stays.

use crate::args::SetupArgs;
use crate::exit::Exit;
use crate::{fail, helper_path};
use pleat_sys::capabilities;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{chown, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why the helper is as it was.
#[derive(Debug, thiserror::Error)]
enum SetupError {
    #[error("only root can do this: sudo pleat setup")]
    NotRoot,
    #[error("there is no pleat-helper beside pleat nor in ../lib/pleat: run 'make install'")]
    NoHelper,
    #[error("{} is writable for others than root, who could put another program there: install pleat as root ('sudo make install')", .0.display())]
    Writable(PathBuf),
    #[error("{0} is no name of a group")]
    GroupName(String),
    #[error("group {0} cannot be made: make it by hand (groupadd --system {0})")]
    NoGroup(String),
    #[error("cannot {0}: {1}")]
    Failed(&'static str, io::Error),
}

/// Does it, or says why not.
pub fn setup(args: &SetupArgs) -> Exit {
    let result = match args.undo {
        true => undo(),
        false => set_up(&args.group),
    };
    match result {
        Ok(()) => Exit::Program(0),
        Err(error) => fail(&error.to_string(), Exit::Failed),
    }
}

fn set_up(group: &str) -> Result<(), SetupError> {
    let path = helper()?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if group.is_empty() || group.starts_with('-') || !group.chars().all(is_name) {
        return Err(SetupError::GroupName(group.into()));
    }
    let gid = match group_id(group) {
        Some(gid) => gid,
        None => make_group(group)?,
    };
    // In this order: whoever may not execute it never sees it with capabilities, which chown would take off again.
    permit(&path, 0o700)?;
    chown(&path, Some(0), Some(gid)).map_err(failed("give the helper to the group"))?;
    capabilities::give_to_helper(&path).map_err(failed("set capabilities"))?;
    permit(&path, 0o750)?;
    println!(
        "{}: cap_dac_override,cap_sys_ptrace=ep, root:{group} 0750",
        path.display()
    );
    println!(
        "members of {group} can run programs as root can; to make one: usermod -aG {group} USER"
    );
    Ok(())
}

fn undo() -> Result<(), SetupError> {
    let path = helper()?;
    capabilities::take(&path).map_err(failed("take capabilities off"))?;
    chown(&path, Some(0), Some(0)).map_err(failed("give the helper to root"))?;
    permit(&path, 0o755)?;
    println!("{}: no capabilities, root:root 0755", path.display());
    Ok(())
}

/// The helper, where nobody but root can put another program in its place.
fn helper() -> Result<PathBuf, SetupError> {
    let own = fs::metadata("/proc/self").map_err(failed("look at /proc/self"))?;
    if own.uid() != 0 {
        return Err(SetupError::NotRoot);
    }
    let path = helper_path::find().ok_or(SetupError::NoHelper)?;
    for place in path.ancestors() {
        let status = fs::symlink_metadata(place).map_err(failed("look at the helper"))?;
        let is_sticky = status.is_dir() && status.mode() & 0o1000 != 0;
        let by_others = status.mode() & 0o022 != 0 && !is_sticky;
        if status.uid() != 0 || by_others {
            return Err(SetupError::Writable(place.into()));
        }
    }
    Ok(path)
}

fn permit(path: &Path, mode: u32) -> Result<(), SetupError> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed("set permissions"))
}

fn group_id(name: &str) -> Option<u32> {
    let text = fs::read_to_string("/etc/group").ok()?;
    let mut groups = text.lines().map(|line| line.split(':'));
    groups.find_map(|mut fields| {
        let is_it = fields.next() == Some(name);
        is_it.then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

fn make_group(name: &str) -> Result<u32, SetupError> {
    let mut command = Command::new("groupadd");
    let made = command.args(["--system", name]).status();
    let is_made = made.is_ok_and(|status| status.success());
    let made = is_made.then(|| group_id(name)).flatten();
    made.ok_or_else(|| SetupError::NoGroup(name.into()))
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> SetupError {
    move |error| SetupError::Failed(what, error)
}
