//! What the numbers of a rank mean, in sentences.

use super::judge::{Exhaustion, Judged, JudgedPart, JudgedRank, label};
use super::layers::factorised;
use super::track::Facts;
use super::trend::{RESOLUTION, Trend};
use crate::bytes::human;

/// From so much of the device on, in percent, a plateau can be the end of memory.
const FULL: f64 = 90.0;

impl Judged<'_> {
    /// The verdict on the whole log in one sentence.
    pub fn reason(&self) -> String {
        let Some(worst) = self.worst().filter(|worst| worst.part().is_some()) else {
            return "there is no readable step line of torchtitan in it".to_owned();
        };
        let others = self.ranks.iter().filter(|rank| rank.part().is_some()).count() - 1;
        let headline = headline(worst);
        let name = worst.track.rank.as_ref().map_or_else(|| "memory".to_owned(), ToString::to_string);
        if others == 0 {
            return format!("{name} {headline}");
        }
        let growing: Vec<f64> = self.ranks.iter().filter_map(JudgedRank::growth).collect();
        if growing.is_empty() {
            return format!("{name} {headline}; no rank grows");
        }
        let least = growing.iter().copied().fold(f64::INFINITY, f64::min);
        format!(
            "{name} {headline}; {} of {} ranks grow, by at least {} per step",
            growing.len(),
            others + 1,
            human(least)
        )
    }
}

/// What is to be said of a rank, the most important first.
pub fn sentences(rank: &JudgedRank<'_>, facts: &Facts) -> Vec<String> {
    let mut all = vec![headline(rank)];
    all.extend(restarts(rank));
    all.extend(holder(rank, facts));
    all.extend(limits(rank));
    all.extend(rank.exhaustion.as_ref().map(|exhaustion| when(exhaustion, rank)));
    all
}

fn headline(rank: &JudgedRank<'_>) -> String {
    let Some(part) = rank.part() else { return "has no readable step line".to_owned() };
    let Some(fit) = part.fit else {
        return format!("has {}, none of them after the warm-up", lines(part.lines));
    };
    let over = format!("from step {} to step {} ({})", fit.from, fit.to, lines(fit.lines as u64));
    match part.trend {
        Trend::Grows { slope, since } if since == fit.from => {
            format!("grows by {} per step {over}", human(slope))
        }
        Trend::Grows { slope, since } => {
            format!("grows by {} per step since about step {since}, of what was logged {over}", human(slope))
        }
        Trend::Levelled { rise, since } => {
            format!("rose by {} until step {since} and is flat since, of what was logged {over}", human(rise))
        }
        Trend::Flat { within } => {
            // Levels that the log shows as equal can differ by as much as it rounds.
            format!("is flat within {} {over}", human(within.max(RESOLUTION)))
        }
        Trend::TooFew { rise } if fit.lines > 1 => {
            format!("changed by {} {over}, which are too few to tell growth from a single step", human(rise))
        }
        Trend::TooFew { .. } => {
            format!("has {}, one of them after the warm-up: too few to tell", lines(part.lines))
        }
    }
}

fn lines(count: u64) -> String {
    if count == 1 { "1 line".to_owned() } else { format!("{count} lines") }
}

fn restarts(rank: &JudgedRank<'_>) -> Option<String> {
    let all = rank.parts.len() as u64 + rank.track.parts_left_out;
    let part = rank.part().filter(|_| all > 1)?;
    Some(format!(
        "the steps went back {}, as after a restart; this is of the part with the steps {} to {}, the last of \
         which something can be said",
        if all == 2 { "once".to_owned() } else { format!("{} times", all - 1) },
        part.first.step,
        part.last.step
    ))
}

/// What holds what grows, as far as the log says.
fn holder(rank: &JudgedRank<'_>, facts: &Facts) -> Vec<String> {
    let growth = rank.growth();
    let mut all = Vec::new();
    match rank.reporter.and_then(|reporter| Some((reporter, reporter.freed.typical()?))) {
        Some((reporter, typical)) => {
            let of = if reporter.rank == rank.track.rank {
                String::new()
            } else {
                format!(" of {}, which alone reports it,", label(reporter.rank.as_ref()))
            };
            let count = reporter.freed.count();
            let amount = match u64::try_from(typical) {
                Ok(bytes) => match factorised(bytes, facts) {
                    Some(parts) => format!("{typical} bytes, which is {parts}"),
                    None => format!("{typical} bytes ({})", human(typical as f64)),
                },
                Err(_) => format!("{typical} bytes"),
            };
            let each = match (reporter.freed.is_constant(), count) {
                (_, 1) => format!("the one collect{of} that freed any memory freed"),
                (true, _) => format!("each of the {count} collects{of} that freed memory freed"),
                (false, _) => format!("a typical collect{of} of the {count} that freed memory freed"),
            };
            if typical > 0 {
                all.push(format!("{each} {amount}, so reference cycles hold that much until a full collect"));
            }
            all.extend(growth.and_then(|growth| compared(rank, growth, typical)));
        }
        None if growth.is_none() => {}
        None if rank.part().is_some_and(|part| part.outlived >= 2) => all.push(
            "it grew on through collections, which would have freed young reference cycles: something else holds it, or \
             they are older than the collected generations"
                .to_owned(),
        ),
        None => all.push(
            "nothing in the log says what holds it; torchtitan's `gc_debug` makes the log say what each collect frees, and \
             `torchleak watch --mode compare -- COMMAND` names the cycles that keep tensors, without a change to the code"
                .to_owned(),
        ),
    }
    all
}

/// Growth beside what collects freed.
fn compared(rank: &JudgedRank<'_>, growth: f64, typical: i64) -> Option<String> {
    let freed = rank.freed_per_step?;
    if freed >= 0.5 * growth {
        return Some(format!(
            "collects freed {} per step and memory grew all the same: what a collect frees is used again, so either the \
             two are of different runs, or what grows is not what the collects freed",
            human(freed)
        ));
    }
    (typical as f64 * 10.0 < growth)
        .then(|| "that is less than a tenth of a step's growth: something else holds most of it".to_owned())
}

/// What the log cannot show.
fn limits(rank: &JudgedRank<'_>) -> Vec<String> {
    let mut all = Vec::new();
    let Some(part) = rank.part() else { return all };
    if let Some(step) = rank.track.out_of_memory {
        let after =
            step.map_or_else(|| "before the first step line".to_owned(), |step| format!("after step {step}"));
        all.push(format!("an out-of-memory error was raised {after}"));
    }
    if rank.track.retries > 0 {
        all.push(format!(
            "the allocator gave its cache back {} times to go on: the device's memory was used up",
            rank.track.retries
        ));
    }
    let is_full = rank.track.retries > 0 || part.last.percent.is_some_and(|percent| percent >= FULL);
    if matches!(part.trend, Trend::Flat { .. } | Trend::Levelled { .. }) {
        all.push(if is_full {
            "memory is full, so that it cannot rise: flat says nothing here".to_owned()
        } else {
            "the log tells peak reserved memory, which the allocator keeps: a leak that fits into what was reserved before, \
             or that periodic collects empty, does not show"
                .to_owned()
        });
    }
    if rank.track.repeated > 0 {
        all.push(format!(
            "{} further lines tell of steps that were there: the highest counts{}",
            rank.track.repeated,
            if rank.track.rank.is_none() { ", because lines of several processes have no rank" } else { "" }
        ));
    }
    all
}

fn when(exhaustion: &Exhaustion, rank: &JudgedRank<'_>) -> String {
    let last = rank.part().map_or(0, |part: &JudgedPart| part.last.step);
    let at = u64::from(last).saturating_add(exhaustion.steps);
    let time = exhaustion.seconds.map_or_else(String::new, |time| {
        let by = if time.by_tps { " by tps, if nothing but data is parallel" } else { "" };
        format!(", {}{by}", duration(time.seconds))
    });
    let end = match exhaustion.after_the_end {
        Some(true) => "; the run ends before that",
        Some(false) => "; the run goes on for longer than that",
        None => "",
    };
    if exhaustion.steps == 0 {
        return format!(
            "likely out of memory at the next step: {} of {} are left",
            human(exhaustion.left),
            human(exhaustion.capacity)
        );
    }
    format!(
        "likely out of memory in {} steps at most, at step {at}{time}: {} of {} are left, and what is not reserved by \
         PyTorch needs some{end}",
        exhaustion.steps,
        human(exhaustion.left),
        human(exhaustion.capacity)
    )
}

/// Seconds for a person.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}
