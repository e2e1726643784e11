//! pleat as an ordinary user of the machine runs it, who may open /dev/userfaultfd and has no capability.
//!
//! In a mount namespace of its own, so that nothing of the machine changes.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::machine::Machine;
use pleat_testing::skip;

const NOBODY: &str = "65534";
const SCRIPT: &str = r#"
set -e
dir="$1" user="$2"
shift 2
mknod "$dir/userfaultfd" c 0x$(stat -c %t /dev/userfaultfd) 0x$(stat -c %T /dev/userfaultfd)
chmod 666 "$dir/userfaultfd"
mount --bind "$dir/userfaultfd" /dev/userfaultfd
cd "$dir"
exec setpriv --reuid "$user" --regid "$user" --clear-groups --inh-caps=-all \
    timeout 60 ./pleat run --swap-dir "$dir" --stats stats.json "$@"
"#;

/// What came of it.
pub struct Ordinary {
    /// Exit status, and what was printed.
    pub output: Output,
    /// What `pleat run --stats` has written.
    pub stats: serde_json::Value,
}

/// A directory of an ordinary user's with pleat and programs.
pub struct Nobody {
    dir: tempfile::TempDir,
}

impl Nobody {
    /// With these programs; `None`, visibly, where that cannot be arranged.
    pub fn with(machine: &Machine, programs: &[PathBuf]) -> Option<Nobody> {
        if !machine.installed(&["unshare", "setpriv", "mknod", "stat"]) {
            return None;
        }
        let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        if !is_root || !Path::new("/dev/userfaultfd").exists() {
            skip("only root can arrange what an ordinary user may do here");
            return None;
        }
        // Where nobody may look: the target directory need not be such a place.
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).expect("it is ours");
        let own = [machine.pleat().to_owned(), machine.agent()];
        for file in own.iter().chain(programs) {
            let name = file.file_name().expect("a file has a name");
            fs::copy(file, dir.path().join(name)).expect("there is room for a copy");
        }
        Some(Nobody { dir })
    }

    /// Runs pleat, whose working directory has the programs: `arguments` follow `pleat run`.
    pub fn run(&self, arguments: &[&str]) -> Ordinary {
        let dir = self.dir.path();
        for left in ["stats.json", "userfaultfd"] {
            let _ = fs::remove_file(dir.join(left));
        }
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", SCRIPT, "sh"])
            .arg(dir)
            .arg(NOBODY)
            .args(arguments)
            .output()
            .expect("unshare is installed");
        let stats = fs::read(dir.join("stats.json")).unwrap_or_default();
        Ordinary {
            output,
            stats: serde_json::from_slice(&stats).unwrap_or_default(),
        }
    }
}
