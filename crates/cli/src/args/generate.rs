//! The flags of `pleat completions` and `pleat generate`.

use clap_complete::Shell;
use std::path::PathBuf;

pub const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  For bash, for this user:
      pleat completions bash > ~/.local/share/bash-completion/completions/pleat
  For zsh, in a directory of $fpath:
      pleat completions zsh > ~/.zfunc/_pleat
  For fish:
      pleat completions fish > ~/.config/fish/completions/pleat.fish

`make install` has installed them for all users already.";

/// The flags of `pleat completions`.
#[derive(Debug, Clone, clap::Args)]
pub struct CompletionsArgs {
    /// For which shell: bash, zsh or fish
    #[arg(value_name = "SHELL", value_parser = shell)]
    pub shell: Shell,
}

/// The flags of `pleat generate`.
#[derive(Debug, Clone, clap::Args)]
pub struct GenerateAllArgs {
    /// The directory, such as /usr/local/share
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

fn shell(text: &str) -> Result<Shell, String> {
    match text {
        "bash" => Ok(Shell::Bash),
        "zsh" => Ok(Shell::Zsh),
        "fish" => Ok(Shell::Fish),
        _ => Err("choose bash, zsh or fish".into()),
    }
}
