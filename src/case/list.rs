//! `torchleak list`.

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::{Value, json};
use torchleak_protocol::Device;

use super::{Case, Catalog, expect::Expectation, spec::When};

/// The cases as a table for people, `width` columns wide at most.
pub fn list(catalog: &Catalog, width: u16) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width)
        .set_header(["case", "what is held", "expected", "runs"]);
    for case in catalog.cases() {
        let expected: Vec<String> = case.spec.expect.iter().map(line).collect();
        table.add_row([case.name().to_owned(), held(case), expected.join("\n"), when(case).to_owned()]);
    }
    // Padding up to the right edge would only show up in copies of the text.
    format!("{}\n", table.trim_fmt())
}

/// The same for programs: an array of objects.
pub fn list_json(catalog: &Catalog) -> Value {
    let cases = catalog.cases().iter().map(|case| {
        let spec = &case.spec;
        let expect = spec.expect.iter().map(|line| {
            json!({
                "torch": line.torch.as_ref().map(ToString::to_string),
                "python": line.python.as_ref().map(ToString::to_string),
                "device": line.device,
                "verdict": line.verdict,
            })
        });
        let predicted = |device| {
            spec.device
                .allows(device)
                .then(|| case.prediction(device))
                .flatten()
                .map(|held| held.total_bytes())
        };
        json!({
            "name": spec.name,
            "summary": spec.summary.trim(),
            "upstream": spec.upstream.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "when": when(case),
            "predicted_bytes_per_step": {"cpu": predicted(Device::Cpu), "cuda": predicted(Device::Cuda)},
            "expect": expect.collect::<Vec<_>>(),
        })
    });
    cases.collect()
}

fn line(line: &Expectation) -> String {
    format!("{}: {}", line.conditions(), line.verdict)
}

/// The word of `when:`.
pub(super) fn when(case: &Case) -> &'static str {
    match case.spec.when {
        When::Always => "always",
        When::Slow => "slow",
        When::Named => "named",
    }
}

/// What is held by what, in the summary's first sentence.
pub(super) fn first_sentence(case: &Case) -> String {
    let summary = case.spec.summary.split_whitespace().collect::<Vec<_>>().join(" ");
    summary.split_inclusive(". ").next().unwrap_or_default().trim().to_owned()
}

/// The summary's first sentence and the predicted bytes.
fn held(case: &Case) -> String {
    let first = first_sentence(case);
    let device = case.spec.device.devices().next().unwrap_or(Device::Cpu);
    match case.prediction(device) {
        Some(held) => format!("{first}\n{} bytes per step", held.total_bytes()),
        None => first,
    }
}
