//! What a run has from elsewhere than its command line: shown with `-v`, and named where a value turns out to be wrong.

use super::setting::Setting;
use crate::pager::RunError;
use crate::settings::SettingsError;
use std::path::PathBuf;

/// Settings that were not typed.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// The profile that was asked for.
    pub profile: Option<String>,
    /// What counts of file, profile and environment.
    pub settings: Vec<Setting>,
}

impl Given {
    /// What is told with `-v`, a line each.
    pub fn lines(&self) -> Vec<String> {
        let profile = self.profile.as_ref();
        let profile = profile.map_or(String::new(), |name| format!(", profile {name}"));
        let file = self.file.iter();
        let file = file.map(|path| format!("settings of {}{profile}", path.display()));
        let settings = self.settings.iter().map(|one| {
            let (flag, value, origin) = (&one.flag, &one.value, &one.origin);
            format!("{flag} = {value} ({origin})")
        });
        file.chain(settings).collect()
    }

    /// Where the first of `flags` is set that was not typed.
    fn place_of(&self, flags: &[&str]) -> Option<String> {
        let at = |flag: &&str| self.settings.iter().find(|one| one.flag == *flag);
        flags.iter().find_map(at).map(|one| one.origin.to_string())
    }

    /// A message about one of `flags`, with its place where it was not typed.
    pub fn blame(&self, flags: &[&str], message: impl ToString) -> String {
        match self.place_of(flags) {
            Some(place) => format!("{place}: {}", message.to_string()),
            None => message.to_string(),
        }
    }

    /// The same for what is wrong with a command line as a whole.
    pub fn blame_settings(&self, error: &SettingsError) -> String {
        let flags: &[&str] = match error {
            SettingsError::HardWithoutCgroup => &["hard", "cgroup"],
            SettingsError::Name(_) => &["name"],
            SettingsError::NoShare { .. } => &[],
            SettingsError::Size { flag, .. } => &[flag.trim_start_matches('-')],
            SettingsError::TooLarge { .. } => &["memory"],
            SettingsError::NoSwapMeant(_) => &["swap-max"],
            SettingsError::Preset(_) => &["preset"],
            SettingsError::Resident { .. } => &["record-resident"],
            SettingsError::Codec(_) => &["codec", "preset"],
            SettingsError::Mount(_) => &["mount"],
            SettingsError::SwapDir(_) => &["swap-dir"],
        };
        self.blame(flags, error)
    }

    /// The same for what only the pager finds.
    pub fn blame_run(&self, error: &RunError) -> String {
        let flags: &[&str] = match error {
            RunError::TooSmall { .. } => &["memory"],
            RunError::Swap(_) => &["swap-dir", "swap-max"],
            _ => &[],
        };
        self.blame(flags, error)
    }
}
