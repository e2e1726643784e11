//! The flags of `pleat mount`.

use super::{codec_help, preset_help, ConfigArgs};
use std::path::PathBuf;

/// Shown after the help.
pub const EXAMPLES: &str = "\
Examples:
  Show a directory again, with at most 1 GiB of its files in memory, most of that compressed:
      pleat mount --memory 1G /srv/www /mnt/www
  In the background, and an end to it:
      pleat mount --daemon --memory 1G /srv/www /mnt/www
      umount /mnt/www
  So that nobody changes anything through it:
      pleat mount --read-only --memory 512M ~/datasets ~/fast

Programs use MOUNTPOINT instead of SOURCE. What they read lies in the kernel's page cache, as with any
file system, until memory is short; what was not read for long is compressed then, and comes back from
there instead of the disk. What they write goes through to SOURCE at once. Changes made in SOURCE
directly are seen within two seconds.

Exit status:
  0 when it was unmounted (SIGTERM, SIGINT, umount); 2 for a mistake on the command line; 125 when
  it could not be mounted or unmounted, or had to end.";

/// The flags of `pleat mount`, unchecked.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct MountArgs {
    /// Budget for the files' pages in memory, uncompressed and compressed, and pleat itself: 340M, 2G,
    /// or a percentage of the memory cgroup's limit, else of the memory that is available. Default: 90%
    /// of that limit if there is one, else 80% of what is available
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub memory: Option<String>,

    /// Nothing can be changed through MOUNTPOINT
    #[arg(long)]
    pub read_only: bool,

    #[arg(long, value_name = "NAME", help = preset_help())]
    pub preset: Option<String>,

    #[arg(long, value_name = "NAME", help = codec_help())]
    pub codec: Option<String>,

    /// Keep a checksum of every compressed page in memory, and end when one is not what it was: for
    /// machines whose memory is in doubt
    #[arg(long)]
    pub paranoid: bool,

    /// Let other users use MOUNTPOINT too, each with their own rights. Always so when root mounts; others
    /// need 'user_allow_other' in /etc/fuse.conf
    #[arg(long)]
    pub allow_other: bool,

    /// Let the kernel collect writes, and write them a few seconds later, at fsync, or when unmounting:
    /// faster for many small writes. What was not fsynced is lost when pleat is killed
    #[arg(long)]
    pub write_back: bool,

    /// Go on in the background once it is mounted
    #[arg(long)]
    pub daemon: bool,

    /// Write every counter as JSON to FILE at the end
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,

    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,

    #[command(flatten)]
    pub config: ConfigArgs,

    /// The directory to show
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,

    /// Where to show it: an empty directory, as a rule
    #[arg(value_name = "MOUNTPOINT")]
    pub mountpoint: PathBuf,
}
