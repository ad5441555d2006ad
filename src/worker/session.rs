//! Runs jobs on a host: starts each when there is room, watches deadlines, and notices every way in
//! which a worker can end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use torchleak_protocol::{ArmEvent, HostEvent, Start};

use super::host::{Host, kill_group};
use super::job::{Job, Observer, SessionOptions};
use super::last_words::LastWords;
use super::pipes::{Message, Tail, read_arm, read_output};
use super::running::{DRAIN, Running};
use super::{Ending, WorkerError};
use crate::interrupt;

/// How often the loop looks at deadlines and at Ctrl-C when nothing happens.
const PULSE: Duration = Duration::from_millis(50);

/// How long a host may take to start a child, the import of torch included. An arm's own deadline
/// begins when its child runs.
const START_DEADLINE: Duration = Duration::from_secs(600);

/// How long a host may take to report the end of a child that was killed. One that takes longer does
/// not answer any more.
const REPORT_DEADLINE: Duration = Duration::from_secs(5);

/// How many hosts in a row may die before any of their arms is done, until the rest is given up. A host
/// that did something was sound, and what killed it is among the arms that ended with it.
const MOST_BARREN_HOSTS: u32 = 2;

/// A host with its running and waiting jobs.
pub struct Session<'a> {
    options: SessionOptions<'a>,
    observer: &'a mut dyn Observer,
    /// The present host and its children write to a channel of their own, so that what comes late
    /// from those of an earlier host is not taken for theirs.
    messages: Receiver<Message>,
    sender: Sender<Message>,
    host: Option<Host>,
    /// Hosts until now. Each after the first runs the jobs of every host again.
    hosts: usize,
    most_hosts: usize,
    /// Whether any arm was done in the present host.
    is_fruitful: bool,
    barren_hosts: u32,
    waiting: VecDeque<Job>,
    per_host: Vec<Job>,
    running: BTreeMap<u64, Running>,
    /// Arms that lost a host which they shared. Any of those arms can have killed it, so each runs
    /// again by itself: then only the culprit loses its host.
    alone: BTreeSet<u64>,
    import_failure: Option<torchleak_protocol::Failure>,
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
        // Each lost host ends an arm or is the last that at least two arms share, so it is never
        // more than 1.5 a job; the limit is there for what is not thought of here.
        let most_hosts = 2 * jobs.len() + 3;
        let mut session = Session {
            options,
            observer,
            messages,
            sender,
            host: None,
            hosts: 0,
            most_hosts,
            is_fruitful: false,
            barren_hosts: 0,
            waiting: jobs.into(),
            per_host,
            running: BTreeMap::new(),
            alone: BTreeSet::new(),
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
                if self.hosts >= self.most_hosts {
                    self.give_up(&["too many worker hosts died".to_owned()]);
                    return Ok(());
                }
                match self.start_host() {
                    Ok(()) => {}
                    Err(_) if interrupt::requested() => return Ok(()),
                    // What an earlier host measured is kept.
                    Err(error) if self.hosts > 0 => {
                        let lines: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
                        self.give_up(&lines);
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                }
                // The jobs of every host are now first.
                continue;
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
        let needs_all = |arm: &u64| self.alone.contains(arm);
        // Alone, a job always fits: what is too large for the machine is refused before the session.
        self.running.is_empty()
            || (slots + job.slots <= self.options.slots
                && memory + job.memory <= self.options.memory
                && !needs_all(&job.spec.arm)
                && !self.running.keys().any(needs_all))
    }

    fn start_host(&mut self) -> Result<(), WorkerError> {
        let SessionOptions { environment, bundle, .. } = &self.options;
        let python = &environment.python;
        let (sender, messages) = channel();
        let mut host = Host::start(environment, bundle, sender.clone())?;
        // The first word comes before anything slow, so that an interpreter that cannot load the
        // probe is told apart from one in which torch is broken.
        let limit = Instant::now() + START_DEADLINE;
        loop {
            match messages.recv_timeout(PULSE) {
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
                _ => {}
            }
        }
        (self.sender, self.messages, self.host) = (sender, messages, Some(host));
        if self.hosts > 0 {
            for job in self.per_host.iter().rev() {
                if !self.waiting.iter().any(|waiting| waiting.spec.arm == job.spec.arm) {
                    self.waiting.push_front(job.clone());
                }
            }
        }
        self.hosts += 1;
        self.is_fruitful = false;
        Ok(())
    }

    fn start(&mut self, job: Job) {
        let arm = job.spec.arm;
        match self.send(&job) {
            Ok((tail, reader)) => {
                let running = Running {
                    words: LastWords::new(job.spec.ranks),
                    open_pipes: job.spec.event_pipes(),
                    job,
                    pid: None,
                    early: Vec::new(),
                    since: Instant::now(),
                    exited: None,
                    stopped: None,
                    reason: None,
                    cut: None,
                    tail,
                    reader,
                };
                self.running.insert(arm, running);
            }
            // The socket fails when the host is gone. The job was not in it yet, and waits for the next.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) =>
            {
                self.waiting.push_front(job);
                self.lose_host();
            }
            // Making the pipes fails when this process has too many open files.
            Err(error) => self.observer.ended(arm, Ending::NotStarted { reason: error.to_string() }),
        }
    }

    fn send(&self, job: &Job) -> io::Result<(Tail, JoinHandle<()>)> {
        let host = self.host.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let (events, output) = host.run(&job.spec)?;
        for (pipe, events) in (0..).zip(events) {
            read_arm(job.spec.arm, pipe, events, self.sender.clone());
        }
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
            Message::Arm(arm, pipe, event) => self.handle_arm(arm, pipe, event),
            Message::ArmGarbage(arm, pipe, line) => {
                if let Some(running) = self.running.get(&arm) {
                    let reason = running.words.on_rank(pipe, Ending::Garbage { line });
                    self.stop(arm, reason);
                }
            }
            Message::ArmCut(arm, line) => {
                if let Some(running) = self.running.get_mut(&arm) {
                    running.cut = Some(line);
                }
            }
            Message::ArmClosed(arm) => {
                if let Some(running) = self.running.get_mut(&arm) {
                    running.open_pipes -= 1;
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
                    if running.stopped.is_some() {
                        // Its first words came before its pid, and were garbage.
                        kill_group(pid);
                    }
                    let early = std::mem::take(&mut running.early);
                    self.observer.started(arm, start, reason.as_deref());
                    for (rank, event) in early {
                        self.tell(arm, rank, &event);
                    }
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

    fn handle_arm(&mut self, arm: u64, pipe: u32, event: ArmEvent) {
        let Some(running) = self.running.get_mut(&arm) else { return };
        // A rank has the pipe of its number; the launcher says of which it speaks.
        let rank = if let ArmEvent::Lost { rank, .. } = event { rank } else { pipe };
        running.words.hear(rank, &event);
        if running.pid.is_none() {
            running.early.push((rank, event));
        } else {
            self.tell(arm, rank, &event);
        }
    }

    fn tell(&mut self, arm: u64, rank: u32, event: &ArmEvent) {
        if let Err(reason) = self.observer.event(arm, rank, event) {
            self.stop(arm, Ending::NotRecorded { reason });
        }
    }

    /// Kills a job for a reason of ours, which outweighs what its exit status will say.
    fn stop(&mut self, arm: u64, reason: Ending) {
        let Some(running) = self.running.get_mut(&arm) else { return };
        // What comes after the last step is an extra, whose failure takes nothing back.
        if !running.words.is_done() || matches!(reason, Ending::NotRecorded { .. }) {
            running.reason = Some(reason);
        }
        running.stopped.get_or_insert_with(Instant::now);
        if let Some(pid) = running.pid {
            kill_group(pid);
        }
    }

    fn enforce_deadlines(&mut self) {
        let mut host_hangs = false;
        let mut late = Vec::new();
        for (arm, running) in self.running.iter().filter(|(_, running)| running.exited.is_none()) {
            let limit = if running.pid.is_some() { self.options.deadline } else { START_DEADLINE };
            if let Some(when) = running.stopped {
                host_hangs |= when.elapsed() > REPORT_DEADLINE;
            } else if running.since.elapsed() > limit {
                // Without a child the host itself hangs, most likely in the import of torch.
                host_hangs |= running.pid.is_none();
                late.push((*arm, limit));
            }
        }
        for (arm, after) in late {
            self.stop(arm, Ending::TimedOut { after });
        }
        if host_hangs {
            tracing::warn!("the worker host does not answer and is replaced");
            self.lose_host();
        }
    }

    fn finish_what_is_over(&mut self) {
        let over: Vec<u64> = self
            .running
            .iter()
            .filter(|(_, running)| {
                running.exited.is_some_and(|(when, ..)| running.open_pipes == 0 || when.elapsed() > DRAIN)
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

    /// Ends the host. Jobs that shared it and are not over run again, each alone; a job that had it
    /// for itself has lost it for good. Waiting jobs get a new host, a few times.
    fn lose_host(&mut self) {
        let Some(mut host) = self.host.take() else { return };
        for running in self.running.values() {
            if let Some(pid) = running.pid {
                kill_group(pid);
            }
        }
        host.kill();
        host.end();
        self.drain();
        let output = host.output();
        let is_alone = self.running.len() == 1;
        let mut again = Vec::new();
        for (arm, running) in std::mem::take(&mut self.running) {
            let starts_warm = running.job.spec.start == Start::Fork;
            let ending = match &self.import_failure {
                _ if running.is_over() => running.conclude(),
                Some(failure) if starts_warm => Ending::ImportFailed(failure.clone()),
                _ if is_alone => Ending::HostDied { output: output.clone() },
                _ => {
                    again.push(running.job);
                    continue;
                }
            };
            self.is_fruitful |= ending == Ending::Done;
            self.observer.ended(arm, ending);
        }
        for job in again.into_iter().rev() {
            // The jobs of every host are our own and harm none.
            if !job.once_per_host {
                self.alone.insert(job.spec.arm);
            }
            self.waiting.push_front(job);
        }
        self.barren_hosts = if self.is_fruitful { 0 } else { self.barren_hosts + 1 };
        if self.barren_hosts >= MOST_BARREN_HOSTS {
            self.give_up(&output);
        }
    }

    /// Hears what the children of a lost host said before they died.
    fn drain(&mut self) {
        let limit = Instant::now() + DRAIN;
        let is_open = |running: &Running| running.pid.is_some() && running.open_pipes > 0;
        while self.running.values().any(is_open) && Instant::now() < limit {
            if let Ok(message) = self.messages.recv_timeout(PULSE) {
                self.handle(message);
            }
        }
    }

    fn give_up(&mut self, output: &[String]) {
        for job in std::mem::take(&mut self.waiting) {
            self.observer.ended(job.spec.arm, Ending::HostDied { output: output.to_vec() });
        }
    }
}
