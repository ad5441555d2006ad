//! `report.html`: everything about the run on one page that needs no network.

use askama::Template;

use super::Content;
use super::facts;
use super::measured::{self, Steps};
use crate::cycles::{DRAWING_STYLE, drawing, with_code};

const STYLE: &str = include_str!("page.css");
/// How many findings are drawn; the evidence has all.
const MOST_DRAWN: usize = 20;

/// The page's template. What is marked safe in it comes from the functions below and from the drawings, which escape.
#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    content: &'a Content<'a>,
    style: String,
    title: String,
    verdict: &'static str,
    warning: Option<String>,
    reason: String,
    native: Option<String>,
    verified: String,
    steps: Steps,
    findings: Vec<Finding>,
    /// Findings that are not drawn.
    left_out: usize,
    /// What holds tensors that no collect frees.
    holders: Vec<String>,
    memory: &'a str,
    freed: Option<&'a str>,
}

/// A finding: a sentence, what to change, and its drawing.
struct Finding {
    sentence: String,
    repair: Option<String>,
    drawing: String,
}

/// The page. `memory` and `freed` are the pictures, as SVG.
///
/// # Errors
/// The template fails, which would be a mistake of torchleak's.
pub fn page(content: &Content<'_>, memory: &str, freed: Option<&str>) -> askama::Result<String> {
    let run = content.run;
    let outcome = &run.outcome;
    let findings = outcome.diagnosis.iter().flat_map(|diagnosis| diagnosis.findings());
    let drawn = findings.take(MOST_DRAWN).enumerate().map(|(number, (finding, explanation))| Finding {
        sentence: with_code(&explanation.sentence),
        repair: explanation.repair.as_deref().map(with_code),
        drawing: drawing(finding, number),
    });
    let all = outcome
        .diagnosis
        .as_ref()
        .map_or(0, |diagnosis| diagnosis.report.findings.len() + diagnosis.report.findings_left_out as usize);
    let holders = outcome.retained.iter().flat_map(|retained| &retained.sentences);
    Page {
        content,
        style: format!("{DRAWING_STYLE}{STYLE}"),
        title: facts::title(run),
        verdict: facts::verdict(run),
        warning: content.verified.verification.warning(facts::verdict(run)).map(|text| with_code(&text)),
        reason: with_code(&facts::reason(run)),
        native: facts::native(run).map(|sentence| with_code(&sentence)),
        verified: with_code(&content.verified_sentence()),
        steps: measured::steps(run),
        findings: drawn.collect(),
        left_out: all.saturating_sub(MOST_DRAWN),
        holders: holders.map(|sentence| with_code(sentence)).collect(),
        memory: in_page(memory),
        freed: freed.map(in_page),
    }
    .render()
}

/// A picture without what belongs to a file of its own.
fn in_page(svg: &str) -> &str {
    svg.find("<svg").map_or(svg, |start| &svg[start..])
}
