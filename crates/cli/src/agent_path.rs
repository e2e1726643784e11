//! Where the agent is: the library that `LD_PRELOAD` puts into every process of a job.
//!
//! It is looked for beside the executable (a build tree), then in `../lib/pleat` (an installation);
//! `$PLEAT_AGENT` overrides both.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const LIBRARY: &str = "libpleat_agent.so";

/// Why there is no agent to load.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// `$PLEAT_AGENT` leads nowhere.
    #[error("$PLEAT_AGENT is {} but there is no such file: unset it, or point it at {LIBRARY}", .0.display())]
    Override(PathBuf),
    /// Neither place has it.
    #[error("{LIBRARY} is neither in {} nor in {}: run 'make install', or set $PLEAT_AGENT to the library", .0.display(), .1.display())]
    Missing(PathBuf, PathBuf),
    /// The dynamic linker splits `LD_PRELOAD` at spaces and colons and cannot quote them.
    #[error("the dynamic linker cannot load {}, because the path has a space or a colon: install pleat elsewhere", .0.display())]
    Unloadable(PathBuf),
    /// `/proc/self/exe` cannot be read.
    #[error("cannot tell where pleat itself is ({0}): set $PLEAT_AGENT to {LIBRARY}")]
    Lost(io::Error),
}

/// The agent's absolute path.
///
/// # Errors
/// See [`AgentError`]; each message says what to do.
pub fn find() -> Result<PathBuf, AgentError> {
    let executable = std::env::current_exe().map_err(AgentError::Lost)?;
    find_for(&executable, std::env::var_os("PLEAT_AGENT"))
}

fn find_for(executable: &Path, given: Option<OsString>) -> Result<PathBuf, AgentError> {
    let found = match given.filter(|path| !path.is_empty()) {
        Some(path) => existing(Path::new(&path)).ok_or(AgentError::Override(path.into()))?,
        None => find_beside(executable)?,
    };
    if found
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|b| b": \t\n".contains(b))
    {
        return Err(AgentError::Unloadable(found));
    }
    Ok(found)
}

fn find_beside(executable: &Path) -> Result<PathBuf, AgentError> {
    let dir = executable.parent().unwrap_or(Path::new("/"));
    let installed = dir.parent().unwrap_or(dir).join("lib/pleat");
    existing(&dir.join(LIBRARY))
        .or_else(|| existing(&installed.join(LIBRARY)))
        .ok_or_else(|| AgentError::Missing(dir.to_owned(), installed))
}

fn existing(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().filter(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn with(files: &[&str]) -> Tree {
            let dir = tempfile::tempdir().unwrap();
            for file in files {
                let path = dir.path().join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "").unwrap();
            }
            Tree(dir)
        }

        fn path(&self, file: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(file)
        }
    }

    #[test]
    fn a_build_tree_and_an_installation_both_work() {
        let built = Tree::with(&["pleat", LIBRARY]);
        assert_eq!(
            find_for(&built.path("pleat"), None).unwrap(),
            built.path(LIBRARY)
        );
        let installed = Tree::with(&["bin/pleat", "lib/pleat/libpleat_agent.so"]);
        assert_eq!(
            find_for(&installed.path("bin/pleat"), None).unwrap(),
            installed.path("lib/pleat/libpleat_agent.so")
        );
    }

    #[test]
    fn the_environment_overrides_and_may_not_lead_nowhere() {
        let tree = Tree::with(&["pleat", LIBRARY, "other.so"]);
        let other = tree.path("other.so");
        let found = find_for(&tree.path("pleat"), Some(other.clone().into()));
        assert_eq!(found.unwrap(), other);
        let nowhere = find_for(&tree.path("pleat"), Some("/nowhere.so".into()));
        assert!(matches!(nowhere, Err(AgentError::Override(_))));
    }

    #[test]
    fn a_missing_agent_names_both_places_and_the_remedy() {
        let tree = Tree::with(&["bin/pleat"]);
        let message = find_for(&tree.path("bin/pleat"), None)
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("/bin nor in") && message.contains("lib/pleat: run 'make install'")
        );
    }

    #[test]
    fn a_path_that_ld_preload_would_split_is_refused() {
        let tree = Tree::with(&["my programs/pleat", "my programs/libpleat_agent.so"]);
        let found = find_for(&tree.path("my programs/pleat"), None);
        assert!(matches!(found, Err(AgentError::Unloadable(_))));
    }
}
