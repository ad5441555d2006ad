//! The JSON document of a run. Integers are bytes unless a name says otherwise.

use serde_json::{Map, Value, json};
use torchleak_protocol::Device;

use crate::cycles::Diagnosis;
use crate::environment::Environment;
use crate::measure::Recording;
use crate::run::{ArmOutcome, CaseOutcome, Outcome, RankOutcome};
use crate::verdict::Numbers;

/// The one document that `--format json` prints.
pub fn document(environment: &Environment, device: Device, outcomes: &[CaseOutcome]) -> Value {
    let facts = &environment.facts;
    json!({
        "schema": 1,
        "environment": {
            "torch": facts.torch,
            "torch_commit": facts.torch_commit,
            "overlay": environment.overlay(),
            "python": facts.python,
            "device": device,
            "platform": facts.platform,
        },
        "cases": outcomes.iter().map(case).collect::<Vec<_>>(),
    })
}

fn case(outcome: &CaseOutcome) -> Value {
    let verdict = match &outcome.outcome {
        Outcome::Judged(judgement) => Some(judgement.verdict.word()),
        Outcome::Skipped { .. } | Outcome::Interrupted => None,
    };
    let mut document = json!({
        "name": outcome.name,
        "verdict": verdict,
        "skipped": matches!(outcome.outcome, Outcome::Skipped { .. }),
        "interrupted": matches!(outcome.outcome, Outcome::Interrupted),
        "reason": outcome.reason(),
        "expected": outcome.expected.map(|verdict| verdict.word()),
        "ok": outcome.is_ok(),
        "cycles": outcome.diagnosis.as_ref().map_or_else(Vec::new, cycles),
        "retained": outcome.retained,
        "native": outcome.native,
        "warmup": outcome.warmup,
        "prediction": outcome.prediction,
        "arms": arms(outcome, 0),
        "ranks": outcome.ranks.iter().enumerate().map(|(rank, each)| of_rank(outcome, rank, each)).collect::<Vec<_>>(),
        "run_dir": outcome.folder,
    });
    add_numbers(&mut document, outcome.numbers());
    document
}

/// One of several ranks, with the keys of a case.
fn of_rank(outcome: &CaseOutcome, rank: usize, of_rank: &RankOutcome) -> Value {
    let RankOutcome { judgement, diagnosis } = of_rank;
    let mut document = json!({
        "rank": rank,
        "verdict": judgement.verdict.word(),
        "reason": judgement.reason,
        "cycles": diagnosis.as_ref().map_or_else(Vec::new, cycles),
        "arms": arms(outcome, rank),
    });
    add_numbers(&mut document, judgement.numbers.as_ref());
    document
}

fn add_numbers(document: &mut Value, numbers: Option<&Numbers>) {
    let predicted = numbers.and_then(|numbers| numbers.predicted);
    document["predicted_bytes_per_step"] = json!(predicted.map(|predicted| predicted.total));
    document["predicted_garbage_bytes_per_step"] = json!(predicted.map(|predicted| predicted.in_garbage));
    document["garbage_bytes_per_step"] = json!(numbers.map(|numbers| numbers.garbage.bytes));
    document["garbage_objects_per_step"] = json!(numbers.map(|numbers| numbers.garbage.objects));
    document["growth_bytes_per_step"] = json!(numbers.map(|numbers| numbers.growth.round() as i64));
    document["growth_collected_bytes_per_step"] =
        json!(numbers.map(|numbers| numbers.growth_collected.round() as i64));
    document["freed_bytes_per_collect"] = json!(numbers.map(|numbers| numbers.freed.round() as i64));
}

/// Each finding with its words.
fn cycles(diagnosis: &Diagnosis) -> Vec<Value> {
    let findings = diagnosis.findings();
    findings
        .map(|(finding, explanation)| {
            json!({"sentence": explanation.sentence, "repair": explanation.repair, "finding": finding})
        })
        .collect()
}

fn arms(outcome: &CaseOutcome, rank: usize) -> Map<String, Value> {
    let recordings = outcome.arms.iter().filter_map(|each| Some((each, each.recordings().nth(rank)?)));
    recordings.map(|(each, recording)| (each.name.clone(), arm(each, recording))).collect()
}

fn arm(arm: &ArmOutcome, recording: &Recording) -> Value {
    let steps = if recording.garbage.is_empty() { json!(recording.steps) } else { json!(recording.garbage) };
    json!({
        "facts": recording.facts,
        "ended": arm.ending.as_ref().map(crate::worker::Ending::reason),
        "steps": steps,
    })
}
