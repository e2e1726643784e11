//! An ordinary user who may open /dev/userfaultfd and has no capability: the program is folded like
//! root's, and a fork that its child could not survive fails with a message.
//!
//! In a mount namespace of its own, so that nothing of the machine changes.

use pleat_e2e::{skip, Machine};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const NOBODY: &str = "65534";
const SCRIPT: &str = r#"
set -e
mknod "$1/userfaultfd" c 0x$(stat -c %t /dev/userfaultfd) 0x$(stat -c %T /dev/userfaultfd)
chmod 666 "$1/userfaultfd"
mount --bind "$1/userfaultfd" /dev/userfaultfd
cd "$1"
exec setpriv --reuid "$2" --regid "$2" --clear-groups --inh-caps=-all \
    timeout 60 ./pleat run --memory 44M --swap-dir "$1" -- ./torture "$3" 64
"#;

/// Runs a torture test as nobody; `None`, visibly, where that cannot be arranged.
fn as_nobody(test: &str) -> Option<Output> {
    let machine = Machine::ready()?;
    let torture = machine.torture()?;
    if !machine.installed(&["unshare", "setpriv", "mknod", "stat"]) {
        return None;
    }
    let device = Path::new("/dev/userfaultfd");
    if !is_root() || !device.exists() {
        skip("only root can arrange what an ordinary user may do here");
        return None;
    }
    // Where nobody may look: the target directory need not be such a place.
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).expect("it is ours");
    let agent = machine.pleat().with_file_name("libpleat_agent.so");
    for file in [machine.pleat(), &torture, &agent] {
        let name = file.file_name().expect("a file has a name");
        fs::copy(file, dir.path().join(name)).expect("there is room for a copy");
    }
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", SCRIPT, "sh"])
        .arg(dir.path())
        .args([NOBODY, test])
        .output()
        .expect("unshare is installed");
    Some(output)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_ordinary_user_reads_what_was_written() {
    let Some(output) = as_nobody("read") else {
        return;
    };
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("ok read"), "{out}\n{err}");
}

#[test]
fn threads_of_an_ordinary_user_fault_at_once() {
    let Some(output) = as_nobody("threads") else {
        return;
    };
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
}

#[test]
fn a_fork_of_an_ordinary_user_fails_with_a_message_and_no_wrong_byte() {
    let Some(output) = as_nobody("fork") else {
        return;
    };
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(!output.status.success(), "{out}\n{err}");
    assert!(err.contains("fork refused"), "{out}\n{err}");
    assert!(!out.contains("differs"), "{out}\n{err}");
}
