//! Runs jobs on a host: starts each when there is room, watches deadlines, and notices every way in
//! which a worker can end.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use torchleak_protocol::{ArmEvent, ArmSpec, HostEvent, Start};

use super::host::{Host, kill_group};
use super::pipes::{Message, Tail, read_arm, read_output};
use super::{Ending, WorkerError};
use crate::environment::Environment;
use crate::interrupt;

/// How often the loop looks at deadlines and at Ctrl-C when nothing happens.
const PULSE: Duration = Duration::from_millis(50);

/// How long the pipes of a process that is gone are still read.
const DRAIN: Duration = Duration::from_secs(2);

/// How long a host may take to start a child, the import of torch included. An arm's own deadline
/// begins when its child runs.
const START_DEADLINE: Duration = Duration::from_secs(600);

/// How many hosts in a row may die before any of their arms is done, until the rest is given up. A host
/// that did something was sound, and what killed it is among the arms that ended with it.
const MOST_BARREN_HOSTS: u32 = 2;

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
    /// The child of a job runs. A job that is run again begins anew.
    fn started(&mut self, arm: u64, start: Start, reason: Option<&str>);

    /// A job reports something. An error stops the job: what cannot be kept must not be measured.
    fn event(&mut self, arm: u64, event: &ArmEvent) -> Result<(), String>;

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

/// A host with its running and waiting jobs.
pub struct Session<'a> {
    options: SessionOptions<'a>,
    observer: &'a mut dyn Observer,
    messages: Receiver<Message>,
    sender: Sender<Message>,
    host: Option<Host>,
    /// Whether there was a host before: the next one runs the jobs of every host again.
    had_host: bool,
    /// Whether any arm was done in the present host.
    is_fruitful: bool,
    barren_hosts: u32,
    waiting: VecDeque<Job>,
    per_host: Vec<Job>,
    running: BTreeMap<u64, Running>,
    import_failure: Option<torchleak_protocol::Failure>,
}

/// A job whose command was sent.
struct Running {
    job: Job,
    pid: Option<u32>,
    /// When it was sent, then when its child started.
    since: Instant,
    /// What is known of its end before its process is gone.
    ending: Option<Ending>,
    /// When the process was reported gone, and how.
    exited: Option<(Instant, Option<i32>, Option<i32>)>,
    closed: bool,
    is_stopped: bool,
    /// The half message with which it ended.
    cut: Option<String>,
    tail: Tail,
    reader: JoinHandle<()>,
}

impl std::fmt::Debug for Session<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Session").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<'a> Session<'a> {
    /// Runs all jobs, in order as far as there is room, and returns when each has ended. Ctrl-C ends
    /// the rest as [`Ending::Interrupted`].
    ///
    /// # Errors
    /// The host cannot be started at all. What happens to an arm is told to the observer.
    pub fn run(
        options: SessionOptions<'a>,
        jobs: Vec<Job>,
        observer: &'a mut dyn Observer,
    ) -> Result<(), WorkerError> {
        let (sender, messages) = channel();
        let per_host: Vec<Job> = jobs.iter().filter(|job| job.once_per_host).cloned().collect();
        let mut session = Session {
            options,
            observer,
            messages,
            sender,
            host: None,
            had_host: false,
            is_fruitful: false,
            barren_hosts: 0,
            waiting: jobs.into(),
            per_host,
            running: BTreeMap::new(),
            import_failure: None,
        };
        session.serve()
    }

    fn serve(&mut self) -> Result<(), WorkerError> {
        loop {
            if interrupt::requested() {
                self.interrupt();
                return Ok(());
            }
            self.start_what_fits()?;
            if self.running.is_empty() && self.waiting.is_empty() {
                return Ok(());
            }
            if let Ok(message) = self.messages.recv_timeout(PULSE) {
                self.handle(message);
                while let Ok(message) = self.messages.try_recv() {
                    self.handle(message);
                }
            }
            self.enforce_deadlines();
            self.finish_what_is_over();
        }
    }

    fn interrupt(&mut self) {
        for (arm, running) in std::mem::take(&mut self.running) {
            if let Some(pid) = running.pid {
                kill_group(pid);
            }
            self.observer.ended(arm, Ending::Interrupted);
        }
        for job in std::mem::take(&mut self.waiting) {
            self.observer.ended(job.spec.arm, Ending::Interrupted);
        }
        self.host = None;
    }

    fn start_what_fits(&mut self) -> Result<(), WorkerError> {
        while let Some(job) = self.waiting.front() {
            if let (Some(failure), Start::Fork) = (&self.import_failure, job.spec.start) {
                let ending = Ending::ImportFailed(failure.clone());
                let arm = job.spec.arm;
                self.waiting.pop_front();
                self.observer.ended(arm, ending);
                continue;
            }
            if !self.fits(job) {
                return Ok(());
            }
            if self.host.is_none() {
                self.start_host()?;
            }
            if let Some(job) = self.waiting.pop_front() {
                self.start(job);
            }
        }
        Ok(())
    }

    fn fits(&self, job: &Job) -> bool {
        let slots: usize = self.running.values().map(|running| running.job.slots).sum();
        let memory: u64 = self.running.values().map(|running| running.job.memory).sum();
        // Alone, a job always fits: what is too large for the machine is refused before the session.
        self.running.is_empty()
            || (slots + job.slots <= self.options.slots && memory + job.memory <= self.options.memory)
    }

    fn start_host(&mut self) -> Result<(), WorkerError> {
        let SessionOptions { environment, bundle, .. } = &self.options;
        let python = &environment.python;
        let mut host = Host::start(environment, bundle, self.sender.clone())?;
        // The first word comes before anything slow, so that an interpreter that cannot load the
        // probe is told apart from one in which torch is broken.
        let limit = Instant::now() + START_DEADLINE;
        loop {
            match self.messages.recv_timeout(PULSE) {
                Ok(Message::Host(event @ HostEvent::Ready { .. })) => {
                    self.observer.host(&event);
                    break;
                }
                Ok(Message::HostGone) => {
                    let status = host.end();
                    let tail = super::tail(&host.output(), 8);
                    return Err(WorkerError::Died { python: python.clone(), status, tail });
                }
                _ if Instant::now() > limit || interrupt::requested() => {
                    host.kill();
                    let status = host.end();
                    return Err(WorkerError::Died { python: python.clone(), status, tail: String::new() });
                }
                // Late messages of an earlier host's arms.
                _ => {}
            }
        }
        self.host = Some(host);
        if self.had_host {
            for job in self.per_host.iter().rev() {
                if !self.waiting.iter().any(|waiting| waiting.spec.arm == job.spec.arm) {
                    self.waiting.push_front(job.clone());
                }
            }
        }
        self.had_host = true;
        self.is_fruitful = false;
        Ok(())
    }

    fn start(&mut self, job: Job) {
        let arm = job.spec.arm;
        match self.send(&job) {
            Ok((tail, reader)) => {
                let running = Running {
                    job,
                    pid: None,
                    since: Instant::now(),
                    ending: None,
                    exited: None,
                    closed: false,
                    is_stopped: false,
                    cut: None,
                    tail,
                    reader,
                };
                self.running.insert(arm, running);
            }
            // The socket fails only when the host is gone, which is a message of its own; the job is
            // then among those that died with it.
            Err(error) => {
                self.observer.ended(arm, Ending::HostDied { output: vec![error.to_string()] });
            }
        }
    }

    fn send(&self, job: &Job) -> io::Result<(Tail, JoinHandle<()>)> {
        let host = self.host.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let (events, events_end) = io::pipe()?;
        let (output, output_end) = io::pipe()?;
        host.run(&job.spec, &OwnedFd::from(events_end), &OwnedFd::from(output_end))?;
        read_arm(job.spec.arm, events, self.sender.clone());
        Ok(read_output(output, Some(Arc::clone(&job.log))))
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Host(event) => self.handle_host(event),
            Message::HostGarbage(line) => {
                tracing::warn!(line, "the worker host wrote a line that is no event");
                self.lose_host();
            }
            Message::HostGone => self.lose_host(),
            Message::Arm(arm, event) => self.handle_arm(arm, &event),
            Message::ArmGarbage(arm, line) => self.stop(arm, Ending::Garbage { line }),
            Message::ArmCut(arm, line) => {
                if let Some(running) = self.running.get_mut(&arm) {
                    running.cut = Some(line);
                }
            }
            Message::ArmClosed(arm) => {
                if let Some(running) = self.running.get_mut(&arm) {
                    running.closed = true;
                }
            }
        }
    }

    fn handle_host(&mut self, event: HostEvent) {
        self.observer.host(&event);
        match event {
            HostEvent::Started { arm, pid, start, reason } => {
                if let Some(running) = self.running.get_mut(&arm) {
                    running.pid = Some(pid);
                    running.since = Instant::now();
                    self.observer.started(arm, start, reason.as_deref());
                }
            }
            HostEvent::Exited { arm, code, signal } => {
                if let Some(running) = self.running.get_mut(&arm) {
                    running.exited = Some((Instant::now(), code, signal));
                }
            }
            HostEvent::ImportFailed(failure) => self.import_failure = Some(failure),
            HostEvent::Ready { .. } | HostEvent::Imported { .. } => {}
        }
    }

    fn handle_arm(&mut self, arm: u64, event: &ArmEvent) {
        let Some(running) = self.running.get_mut(&arm) else { return };
        match event {
            ArmEvent::Ended { .. } => running.ending = Some(Ending::Done),
            ArmEvent::Failed(failure) => running.ending = Some(Ending::Failed(failure.clone())),
            _ => {}
        }
        if let Err(reason) = self.observer.event(arm, event) {
            self.stop(arm, Ending::NotRecorded { reason });
        }
    }

    /// Kills a job for a reason of ours, which outweighs what its exit status will say.
    fn stop(&mut self, arm: u64, ending: Ending) {
        let Some(running) = self.running.get_mut(&arm) else { return };
        // What comes after the last step is an extra, whose failure takes nothing back.
        if running.ending != Some(Ending::Done) || matches!(ending, Ending::NotRecorded { .. }) {
            running.ending = Some(ending);
        }
        running.is_stopped = true;
        if let Some(pid) = running.pid {
            kill_group(pid);
        }
    }

    fn enforce_deadlines(&mut self) {
        let deadline = self.options.deadline;
        let late: Vec<(u64, bool)> = self
            .running
            .iter()
            .filter(|(_, running)| running.exited.is_none())
            .filter(|(_, running)| {
                running.since.elapsed() > if running.pid.is_some() { deadline } else { START_DEADLINE }
            })
            .filter(|(_, running)| !running.is_stopped)
            .map(|(arm, running)| (*arm, running.pid.is_some()))
            .collect();
        for (arm, has_child) in late {
            let after = if has_child { deadline } else { START_DEADLINE };
            self.stop(arm, Ending::TimedOut { after });
            if !has_child && let Some(host) = &mut self.host {
                // The host itself hangs, most likely in the import of torch.
                host.kill();
            }
        }
    }

    fn finish_what_is_over(&mut self) {
        let over: Vec<u64> = self
            .running
            .iter()
            .filter(|(_, running)| {
                running.exited.is_some_and(|(when, ..)| running.closed || when.elapsed() > DRAIN)
            })
            .map(|(arm, _)| *arm)
            .collect();
        for arm in over {
            if let Some(running) = self.running.remove(&arm) {
                let ending = running.conclude();
                self.is_fruitful |= ending == Ending::Done;
                self.observer.ended(arm, ending);
            }
        }
    }

    /// Ends every running job as lost with its host; waiting jobs get a new one, a few times.
    fn lose_host(&mut self) {
        let Some(mut host) = self.host.take() else { return };
        for running in self.running.values() {
            if let Some(pid) = running.pid {
                kill_group(pid);
            }
        }
        host.kill();
        host.end();
        let output = host.output();
        for (arm, running) in std::mem::take(&mut self.running) {
            let ending = match (running.ending, &self.import_failure) {
                (Some(ending), _) => ending,
                (None, Some(failure)) => Ending::ImportFailed(failure.clone()),
                (None, None) => Ending::HostDied { output: output.clone() },
            };
            self.observer.ended(arm, ending);
        }
        self.barren_hosts = if self.is_fruitful { 0 } else { self.barren_hosts + 1 };
        if self.barren_hosts >= MOST_BARREN_HOSTS {
            for job in std::mem::take(&mut self.waiting) {
                self.observer.ended(job.spec.arm, Ending::HostDied { output: output.clone() });
            }
        }
    }
}

impl Running {
    /// Says how the job ended, once its process is gone and its pipes are read.
    fn conclude(self) -> Ending {
        let limit = Instant::now() + DRAIN;
        while !self.reader.is_finished() && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut output = self.tail.lines();
        output.extend(self.cut.map(|line| format!("its last message breaks off: {line}")));
        match (self.ending, self.exited) {
            (Some(ending), _) => ending,
            (None, Some((_, _, Some(signal)))) => Ending::Killed { signal, output },
            (None, Some((_, Some(code), _))) => Ending::Exited { code, output },
            (None, _) => Ending::HostDied { output },
        }
    }
}
