//! `cases/README.md`: the shipped cases, for whoever browses the folder.

use std::fmt::Write;

use pep440_rs::Version;
use torchleak_protocol::Device;

use super::{Case, Catalog, Reference, list};

/// The releases on which every case that needs no large machine was measured, on the CPU with Python 3.11.
const MEASURED: [&str; 8] = ["2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.13.0", "2.15.0"];

const PYTHON: &str = "3.11";

const BEFORE: &str = "\
# The shipped cases

One leak per YAML file; [the format](../docs/case-format.md) and [how a verdict is reached](../docs/verdict.md).
This page is made from the case files; `TORCHLEAK_BLESS=1 cargo test --test case_files` writes it anew.

## What is held by what

";

const BETWEEN: &str = "
## What is expected for which torch

On the CPU, with Python 3.11. `fixed` is shown as `.`: the release does not have the leak.

";

/// The page.
pub fn index(catalog: &Catalog) -> String {
    let mut page = BEFORE.to_owned();
    row(&mut page, ["case", "what is held by what", "runs", "upstream"].map(str::to_owned));
    row(&mut page, ["---"; 4].map(str::to_owned));
    for case in catalog.cases() {
        let upstream: Vec<String> = case.spec.upstream.iter().map(link).collect();
        let file = format!("[{0}]({0}.yaml)", case.name());
        row(&mut page, [file, list::first_sentence(case), list::when(case).to_owned(), upstream.join(", ")]);
    }
    page.push_str(BETWEEN);
    row(&mut page, std::iter::once("case").chain(MEASURED).map(str::to_owned));
    row(&mut page, ["---"; 1 + MEASURED.len()].map(str::to_owned));
    for case in catalog.cases() {
        let verdicts = MEASURED.map(|torch| expected(case, torch));
        row(&mut page, std::iter::once(case.name().to_owned()).chain(verdicts));
    }
    page
}

fn row(page: &mut String, cells: impl IntoIterator<Item = String>) {
    let cells: Vec<String> = cells.into_iter().collect();
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

fn link(reference: &Reference) -> String {
    format!("[{reference}]({})", reference.url())
}

/// The word that a case expects for a release; empty where it expects nothing.
fn expected(case: &Case, torch: &str) -> String {
    let version = |text: &str| text.parse::<Version>().ok();
    let device = case.spec.device.devices().next().unwrap_or(Device::Cpu);
    let verdict = version(torch)
        .zip(version(PYTHON))
        .and_then(|(torch, python)| case.resolved(device).expected(&torch, &python));
    match verdict {
        Some(super::Verdict::Fixed) => ".".to_owned(),
        Some(verdict) => verdict.word().to_owned(),
        None => String::new(),
    }
}
