//! Watches a script that nobody changed: starts it so that its interpreters report, follows what they
//! report, and judges that when it has ended.
//!
//! `script` runs the process and passes signals and exit codes through, `witness` says which signals it has got
//! without us, `tail` reads the files that its processes write, `process` keeps what is needed of them, `numbers`
//! and `judge` reach a verdict on each rank, and `merge` makes one of them.
//!
//! Architecture invariant: nothing here prints; who uses it is told of events by a [`Follower`].

mod error;
mod folder;
mod judge;
mod merge;
mod numbers;
mod options;
mod process;
mod script;
mod tail;
mod witness;

use std::time::Duration;

use torchleak_protocol::WatchEvent;

pub use error::WatchError;
pub use judge::RankVerdict;
pub use merge::{FoundCycle, Summary};
pub use numbers::RankNumbers;
pub use options::{BoundaryError, WatchOptions, parse_boundary};
pub use process::Process;
pub use script::ScriptExit;

use crate::run::LostFiles;
use crate::worker::{WorkerError, startup_folder, unpack};
use folder::WatchFolder;
use script::Script;
use tail::Tail;

/// How often the events are looked at while the script runs.
const TICK: Duration = Duration::from_millis(50);

/// Is told what the script's processes report, while they run.
pub trait Follower {
    /// A process reports something; `process` has it already.
    fn event(&mut self, process: &Process, event: &WatchEvent);
}

/// A script that has ended, and what was seen of it.
#[derive(Debug)]
pub struct Watched {
    pub exit: ScriptExit,
    pub summary: Summary,
    /// Where everything is kept.
    pub folder: std::path::PathBuf,
    /// What of it could not be written.
    pub lost: LostFiles,
}

/// Runs a script to its end and says what was seen.
///
/// # Errors
/// The script cannot be started, or the run folder cannot be made. What goes wrong later is part of the
/// summary.
pub fn watch(options: &WatchOptions, follower: &mut dyn Follower) -> Result<Watched, WatchError> {
    std::fs::create_dir_all(&options.worker)
        .map_err(|source| WorkerError::Unpack { path: options.worker.clone(), source })?;
    let bundle = unpack(&options.worker)?;
    let folder = WatchFolder::create(options)?;
    let mut script = Script::start(&options.command, &startup_folder(&bundle), &folder.specification())?;
    let mut tail = Tail::new(folder.events());
    let exit = loop {
        let ended = script.wait(TICK);
        // Once more after the end: what was written last is read last.
        tail.read(follower);
        if let Some(exit) = ended {
            break exit;
        }
    };
    let mut lost = tail.lost();
    let (processes, unwatched) = tail.end();
    let summary = Summary::of(options, &processes, unwatched, exit);
    lost.extend(&folder.conclude(options, &processes, &summary, exit));
    Ok(Watched { exit, summary, folder: folder.path().to_owned(), lost })
}
