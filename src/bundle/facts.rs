//! What issue and page both tell of a run, in words.

use crate::bytes::human;
use crate::case::Verdict;
use crate::run::Kept;

/// The case in one line.
pub fn title(run: &Kept) -> String {
    let first = run.case.spec.summary.split(". ").next().unwrap_or_default().trim_end_matches('.');
    let kind = match run.outcome.verdict() {
        Some(Verdict::Reproduced | Verdict::Uncollectable | Verdict::OneOff) => "Memory leak",
        Some(Verdict::Fixed) => "No memory leak",
        Some(Verdict::Inconclusive | Verdict::Error) | None => "Memory",
    };
    format!("{kind}: {first}")
}

/// The verdict's word.
pub fn verdict(run: &Kept) -> &'static str {
    run.outcome.verdict().map_or("-", Verdict::word)
}

/// The verdict's reason as a sentence of its own.
pub fn reason(run: &Kept) -> String {
    let mut letters = run.outcome.reason().chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).chain(['.']).collect()
}

/// What the native control says, as a sentence of its own.
pub fn native(run: &Kept) -> Option<String> {
    run.outcome.native.as_ref().map(|native| format!("Native control: {}.", native.reason))
}

/// What was to be seen in place of what was.
pub const EXPECTED: &str = "After a step nothing of it stays alive: the bytes in use are the same after every step, with \
     and without a collection, and a collection frees nothing.";

/// The findings in sentences, each with what to change; without cycles, what holds the tensors.
pub fn findings(run: &Kept) -> Vec<(String, Option<String>)> {
    let diagnosis = run.outcome.diagnosis.iter().flat_map(|diagnosis| diagnosis.findings());
    let cycles = diagnosis.map(|(_, explanation)| (explanation.sentence.clone(), explanation.repair.clone()));
    let retained = run.outcome.retained.iter().flat_map(|retained| &retained.sentences);
    cycles.chain(retained.map(|sentence| (sentence.clone(), None))).collect()
}

/// The bytes behind the verdict, each with its name.
pub fn numbers(run: &Kept) -> Vec<(&'static str, String)> {
    let Some(numbers) = run.outcome.numbers() else { return Vec::new() };
    let exact = |bytes: f64| format!("{} ({bytes:.0} bytes)", human(bytes));
    let mut rows = vec![
        ("growth per step without collection", exact(numbers.growth)),
        ("growth per step with a collection after each", exact(numbers.growth_collected)),
        ("freed by each collection", exact(numbers.freed)),
        ("tensors in garbage per step", exact(numbers.garbage.bytes as f64)),
        ("objects in garbage per step", numbers.garbage.objects.to_string()),
    ];
    if let Some(predicted) = numbers.predicted {
        rows.push(("predicted per step", exact(predicted.total as f64)));
    }
    rows
}

/// What the numbers depend on, each with its name.
pub fn environment(run: &Kept) -> Vec<(&'static str, String)> {
    let environment = &run.environment;
    let facts = &environment.facts;
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
    let mut rows = vec![
        ("torch", facts.torch.clone()),
        ("commit of torch", or_none(&facts.torch_commit)),
        ("CUDA of torch", or_none(&facts.cuda)),
        ("Python", format!("{} {}", facts.implementation, facts.python)),
        ("platform", facts.platform.clone()),
        ("glibc", or_none(&facts.glibc)),
        ("numpy", or_none(&facts.numpy)),
    ];
    if let Some(arm) = run.outcome.arms.iter().find_map(|arm| arm.recording.facts.as_ref()) {
        rows.push(("trained on", arm.device_name.clone()));
        rows.push(("threads", arm.threads.to_string()));
    }
    rows.extend(environment.devices.iter().map(|gpu| {
        (
            "GPU",
            format!(
                "{}, {}, compute capability {}",
                gpu.name,
                human(gpu.memory_bytes as f64),
                gpu.capability
            ),
        )
    }));
    if let Some(overlay) = &environment.overlay {
        rows.push(("laid over torch", format!("{} of commit {}", overlay.paths.join(", "), overlay.commit)));
    }
    rows.extend(environment.environment_variables.iter().map(|variable| ("variable", variable.clone())));
    rows.push(("torchleak", environment.torchleak.clone()));
    rows
}
