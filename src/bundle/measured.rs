//! What the arms of a run measured: as curves for pictures, and as rows for tables.

use torchleak_protocol::StepRecord;

use crate::bytes::human;
use crate::measure::{Place, Recording};
use crate::run::{Kept, judged_memory};

/// Memory over steps of one arm, in bytes above its level after the warm-up.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// Which memory a run is judged by.
pub fn place(run: &Kept) -> Place {
    judged_memory(run.resolved.prediction.as_ref(), run.resolved.device).0
}

/// The curves of the measured arms, and of the planted cycle that shows that a leak would be seen.
pub fn curves(run: &Kept) -> Vec<Curve> {
    let place = place(run);
    let arms = run.outcome.arms.iter().map(|arm| (arm.name.as_str(), &arm.recording));
    arms.chain([("control: planted cycle", &run.control)])
        .filter_map(|(name, recording)| curve(name, recording, place, run.outcome.warmup))
        .collect()
}

fn curve(name: &str, recording: &Recording, place: Place, warmup: u32) -> Option<Curve> {
    let base = recording.steps.iter().take_while(|record| record.step <= warmup).last();
    let base = level(base.or(recording.steps.first())?, place)?;
    let mut points = Vec::new();
    for record in &recording.steps {
        let step = f64::from(record.step);
        points.push((step, place.bytes(&record.memory)? as f64 - base));
        if record.collected.is_some() {
            // A collection is an edge straight down.
            points.push((step, level(record, place)? - base));
        }
    }
    Some(Curve { name: name.to_owned(), points })
}

/// The bytes after a step, and after its collection if it had one.
fn level(record: &StepRecord, place: Place) -> Option<f64> {
    let memory = record.collected.as_ref().map_or(&record.memory, |collected| &collected.memory);
    Some(place.bytes(memory)? as f64)
}

/// What each forced collection of the collected arm freed, by its step.
pub fn freed(run: &Kept) -> Vec<(f64, f64)> {
    let place = place(run);
    let steps = run.outcome.arm("collected").map_or(&[][..], |arm| &arm.recording.steps);
    steps.iter().filter_map(|record| Some((f64::from(record.step), freed_at(record, place)?))).collect()
}

fn freed_at(record: &StepRecord, place: Place) -> Option<f64> {
    let after = &record.collected.as_ref()?.memory;
    Some(place.bytes(&record.memory)? as f64 - place.bytes(after)? as f64)
}

/// A table of the steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steps {
    pub titles: Vec<String>,
    /// Each row with whether its step is part of the warm-up.
    pub rows: Vec<(bool, Vec<String>)>,
}

/// The steps of all measured arms side by side.
pub fn steps(run: &Kept) -> Steps {
    let place = place(run);
    let measured: Vec<_> = run.outcome.arms.iter().filter(|arm| !arm.recording.steps.is_empty()).collect();
    let garbage = run.outcome.arm("garbage").map_or(&[][..], |arm| &arm.recording.garbage);
    let names = measured.iter().map(|arm| arm.name.clone());
    let words = |words: [&str; 2]| words.map(str::to_owned);
    let titles: Vec<String> = words(["step", "loss"])
        .into_iter()
        .chain(names)
        .chain(words(["freed", "tensors in garbage"]))
        .collect();
    let missing = || "-".to_owned();
    let rows = (1..=run.outcome.steps).map(|step| {
        let at = |recording: &Recording| recording.steps.iter().find(|record| record.step == step).cloned();
        let records: Vec<Option<StepRecord>> = measured.iter().map(|arm| at(&arm.recording)).collect();
        let loss = records.iter().flatten().find_map(|record| record.loss);
        let levels = records.iter().map(|record| record.as_ref().and_then(|record| level(record, place)));
        let freed = run.outcome.arm("collected").and_then(|arm| freed_at(&at(&arm.recording)?, place));
        let found = garbage.iter().find(|record| record.step == step);
        let cells = [step.to_string(), loss.map_or_else(missing, |loss| format!("{loss:.5}"))]
            .into_iter()
            .chain(levels.map(|level| level.map_or_else(missing, human)))
            .chain([
                freed.map_or_else(missing, human),
                found.map_or_else(missing, |record| format!("{} bytes", place.census_bytes(&record.census))),
            ]);
        (step <= run.outcome.warmup, cells.collect())
    });
    Steps { titles, rows: rows.collect() }
}
