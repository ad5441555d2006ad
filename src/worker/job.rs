//! What a session is given: jobs, whom it tells of them, and what it runs them in.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use torchleak_protocol::{ArmEvent, ArmSpec, HostEvent, Start};

use super::Ending;
use crate::environment::Environment;

/// Takes one line that an arm printed.
pub type LogSink = Arc<dyn Fn(&str) + Send + Sync>;

/// One arm to run.
#[derive(Clone)]
pub struct Job {
    /// Its `arm` number names the job to the [`Observer`].
    pub spec: ArmSpec,
    /// How many of the session's slots it takes.
    pub slots: usize,
    /// Memory that it needs at its peak, in bytes, where known.
    pub memory: u64,
    /// Whether each new host runs it again: the positive control vouches for one host.
    pub once_per_host: bool,
    pub log: LogSink,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Job").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// Is told what happens to the jobs, in order.
pub trait Observer {
    /// The child of a job runs. A job that lost its host may be run again, and then begins anew.
    fn started(&mut self, arm: u64, start: Start, reason: Option<&str>);

    /// A rank of a job reports something, or the launcher does of it. A job without ranks is rank 0. An
    /// error stops the job: what cannot be kept must not be measured.
    fn event(&mut self, arm: u64, rank: u32, event: &ArmEvent) -> Result<(), String>;

    /// A job is over; nothing more comes from it.
    fn ended(&mut self, arm: u64, ending: Ending);

    /// The host reports something about itself.
    fn host(&mut self, event: &HostEvent);
}

/// What a session runs in.
#[derive(Debug)]
pub struct SessionOptions<'a> {
    pub environment: &'a Environment,
    /// The unpacked worker, from [`super::unpack`].
    pub bundle: PathBuf,
    /// How long one arm may run.
    pub deadline: Duration,
    /// How many slots run at once.
    pub slots: usize,
    /// Memory for all arms that run at once, in bytes.
    pub memory: u64,
}
