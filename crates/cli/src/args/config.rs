//! The flags that say where further settings come from; `pleat run`, `attach` and `mount` have them.

use crate::config::Given;
use std::path::PathBuf;

/// Flags that no file and no profile can hold.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ConfigArgs {
    /// Take what is not given here from FILE. Default: pleat/pleat.toml in $XDG_CONFIG_HOME, else in ~/.config,
    /// if there is one. Every flag has a variable, too: PLEAT_SWAP_DIR for --swap-dir. A flag is worth more
    /// than a variable, that more than the file. docs/config.md
    #[arg(long, value_name = "FILE", help_heading = "Settings")]
    pub config: Option<PathBuf>,

    /// Read no file of settings
    #[arg(long, conflicts_with = "config", help_heading = "Settings")]
    pub no_config: bool,

    /// Take the settings of the table [profile.NAME] of that file, before those at its top
    #[arg(long = "use", value_name = "NAME", help_heading = "Settings")]
    pub chosen: Option<String>,

    /// What came from elsewhere than the command line
    #[arg(skip)]
    pub given: Given,
}
