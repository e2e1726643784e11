//! Where `pleat-helper` is: beside the executable (a build tree), in `../lib/pleat` (an installation), or where an
//! installation is by default.

use std::path::{Path, PathBuf};

const NAME: &str = "pleat-helper";
const DEFAULT: &str = "/usr/local/lib/pleat";

/// Its path, if it is installed. Whether it may be executed, and what it may, trying tells.
pub fn find() -> Option<PathBuf> {
    find_for(&std::env::current_exe().ok()?)
}

fn find_for(executable: &Path) -> Option<PathBuf> {
    let dir = executable.parent()?;
    let installed = dir.parent().unwrap_or(dir).join("lib/pleat");
    let mut places = [dir, &installed, Path::new(DEFAULT)].into_iter();
    places.find_map(|place| {
        let path = place.join(NAME).canonicalize().ok()?;
        path.is_file().then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_tree_and_an_installation_both_have_a_helper() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for file in ["build/pleat-helper", "usr/lib/pleat/pleat-helper"] {
            std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            std::fs::write(root.join(file), "").unwrap();
        }
        let found = |pleat: &str| find_for(&root.join(pleat));
        assert_eq!(found("build/pleat"), Some(root.join("build/pleat-helper")));
        assert_eq!(
            found("usr/bin/pleat"),
            Some(root.join("usr/lib/pleat/pleat-helper"))
        );
    }
}
