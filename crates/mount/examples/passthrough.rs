//! Mounts a directory without any cache of pleat's: the baselines of benchmarks.
//!
//! ```text
//! passthrough direct SOURCE MOUNTPOINT     pleat's tree, contents straight from the source
//! passthrough library SOURCE MOUNTPOINT    the file system that comes with fuse-backend-rs
//! ```
//!
//! Ends when it is unmounted (`umount MOUNTPOINT`).
#![forbid(unsafe_code)]

use fuse_backend_rs::api::server::Server;
use fuse_backend_rs::passthrough::{Config, PassthroughFs};
use fuse_backend_rs::transport::FuseSession;
use pleat_mount::{clear_umask, Direct, Mount, MountOptions};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::thread;

const USAGE: &str = "usage: passthrough direct|library SOURCE MOUNTPOINT";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, source, mountpoint] = &arguments[..] else {
        return Err(USAGE.into());
    };
    clear_umask();
    match kind.as_str() {
        "direct" => {
            let options = MountOptions::new(source, mountpoint);
            Mount::start(options, Arc::new(Direct))?.wait();
            Ok(())
        }
        "library" => library(source, mountpoint),
        _ => Err(USAGE.into()),
    }
}

fn library(source: &str, mountpoint: &str) -> Result<(), Box<dyn Error>> {
    let config = Config {
        root_dir: source.to_owned(),
        do_import: true,
        no_open: true,
        xattr: true,
        ..Config::default()
    };
    let files = PassthroughFs::<()>::new(config)?;
    files.import()?;
    let server = Arc::new(Server::new(Arc::new(files)));
    let mut session = FuseSession::new(Path::new(mountpoint), source, "passthrough", false)?;
    session.mount()?;
    let mut workers = Vec::new();
    let threads = MountOptions::new(source, mountpoint).threads;
    for _ in 0..threads {
        let mut channel = session.new_channel()?;
        let server = Arc::clone(&server);
        workers.push(thread::spawn(move || {
            while let Ok(Some((reader, writer))) = channel.get_request() {
                // A request whose caller is gone cannot be answered.
                let _ = server.handle_message(reader, writer.into(), None, None);
            }
        }));
    }
    for worker in workers {
        // A panic has been told already.
        let _ = worker.join();
    }
    Ok(())
}
