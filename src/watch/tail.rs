//! Reads the files of events while they are written.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;

use torchleak_protocol::WatchEvent;

use super::Follower;
use super::process::Process;
use crate::run::LostFiles;

/// All files of a run.
#[derive(Debug)]
pub struct Tail {
    folder: PathBuf,
    files: BTreeMap<OsString, Followed>,
    unwatched: Vec<Unwatched>,
    /// The processes that could not write all of their events.
    cut_off: BTreeSet<u32>,
}

/// A process that could not be watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwatched {
    pub pid: u32,
    pub python: String,
    pub reason: String,
}

#[derive(Debug)]
struct Followed {
    file: BufReader<File>,
    /// The beginning of a line whose end is not written yet.
    line: Vec<u8>,
    process: Process,
}

impl Tail {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, files: BTreeMap::new(), unwatched: Vec::new(), cut_off: BTreeSet::new() }
    }

    /// Reads what was written since the last time.
    pub fn read(&mut self, follower: &mut dyn Follower) {
        // A folder that cannot be read now may be readable the next time, and at the end it is told that
        // nothing was seen.
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            // An empty file is left where the disk holds no more words.
            if let Some(pid) = name.to_str().and_then(|name| name.strip_prefix("failed-")) {
                self.cut_off.extend(pid.parse::<u32>());
                continue;
            }
            if !self.files.contains_key(&name)
                && let Ok(file) = File::open(entry.path())
            {
                let file = BufReader::new(file);
                self.files.insert(name, Followed { file, line: Vec::new(), process: Process::default() });
            }
        }
        for followed in self.files.values_mut() {
            followed.read(&mut self.unwatched, follower);
        }
    }

    /// The files of events that are not whole, because their processes could not write on.
    pub fn lost(&self) -> LostFiles {
        let mut lost = LostFiles::default();
        for pid in &self.cut_off {
            let file = self.folder.join(format!("process-{pid}.jsonl"));
            lost.note(file, &io::Error::other("its process could not write all of it"));
        }
        lost
    }

    /// The processes, in the order of their ranks, and those that could not be watched.
    pub fn end(self) -> (Vec<Process>, Vec<Unwatched>) {
        let mut processes: Vec<Process> = self.files.into_values().map(|followed| followed.process).collect();
        processes.retain(|process| process.facts.is_some() || process.began.is_some());
        for process in &mut processes {
            if process.facts.as_ref().is_some_and(|facts| self.cut_off.contains(&facts.pid)) {
                process.notes.push("watching ended early, because events could not be written".to_owned());
            }
        }
        processes.sort_by_key(|process| {
            process.began.as_ref().map_or((u32::MAX, None, 0), |began| (began.rank, began.worker, began.pid))
        });
        (processes, self.unwatched)
    }
}

impl Followed {
    fn read(&mut self, unwatched: &mut Vec<Unwatched>, follower: &mut dyn Follower) {
        while self.file.read_until(b'\n', &mut self.line).is_ok_and(|read| read > 0) {
            if !self.line.ends_with(b"\n") {
                // The rest comes later, or never if its writer was killed.
                return;
            }
            let line = std::mem::take(&mut self.line);
            match serde_json::from_slice(&line) {
                Ok(WatchEvent::Unwatched { pid, python, reason }) => {
                    unwatched.push(Unwatched { pid, python, reason });
                }
                Ok(event) => {
                    self.process.push(WatchEvent::clone(&event));
                    follower.event(&self.process, &event);
                }
                Err(error) => tracing::warn!(%error, "a line of events is no event"),
            }
        }
    }
}
