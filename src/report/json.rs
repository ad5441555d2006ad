//! The JSON document of a run. Integers are bytes unless a name says otherwise.

use serde_json::{Map, Value, json};
use torchleak_protocol::Device;

use crate::cycles::Diagnosis;
use crate::environment::Environment;
use crate::run::{ArmOutcome, CaseOutcome, Outcome};

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
    let numbers = outcome.numbers();
    let predicted = numbers.and_then(|numbers| numbers.predicted);
    json!({
        "name": outcome.name,
        "verdict": verdict,
        "skipped": matches!(outcome.outcome, Outcome::Skipped { .. }),
        "interrupted": matches!(outcome.outcome, Outcome::Interrupted),
        "reason": outcome.reason(),
        "expected": outcome.expected.map(|verdict| verdict.word()),
        "ok": outcome.is_ok(),
        "predicted_bytes_per_step": predicted.map(|predicted| predicted.total),
        "predicted_garbage_bytes_per_step": predicted.map(|predicted| predicted.in_garbage),
        "garbage_bytes_per_step": numbers.map(|numbers| numbers.garbage.bytes),
        "garbage_objects_per_step": numbers.map(|numbers| numbers.garbage.objects),
        "growth_bytes_per_step": numbers.map(|numbers| numbers.growth.round() as i64),
        "growth_collected_bytes_per_step": numbers.map(|numbers| numbers.growth_collected.round() as i64),
        "freed_bytes_per_collect": numbers.map(|numbers| numbers.freed.round() as i64),
        "cycles": outcome.diagnosis.as_ref().map_or_else(Vec::new, cycles),
        "retained": outcome.retained,
        "native": outcome.native,
        "warmup": outcome.warmup,
        "prediction": outcome.prediction,
        "arms": outcome.arms.iter().map(|each| (each.name.clone(), arm(each))).collect::<Map<_, _>>(),
        "run_dir": outcome.folder,
    })
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

fn arm(arm: &ArmOutcome) -> Value {
    let recording = &arm.recording;
    let steps = if recording.garbage.is_empty() { json!(recording.steps) } else { json!(recording.garbage) };
    json!({
        "facts": recording.facts,
        "ended": arm.ending.as_ref().map(crate::worker::Ending::reason),
        "steps": steps,
    })
}
