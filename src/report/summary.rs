//! A matrix as the summary of a job's step, which GitHub limits in size.

use std::fmt::Write;

use super::markdown::escaped;
use super::{MatrixReport, matrix_markdown};
use crate::versions::Standing;

/// What GitHub takes for one step, in bytes.
pub const SUMMARY_LIMIT: usize = 1 << 20;

/// A heading that says it all, the table, and where the evidence of what is not as expected is kept; in at most so many
/// bytes.
pub fn summary(report: &MatrixReport, room: usize) -> String {
    let mut text = format!("## torchleak: {}\n\n{}", headline(report), matrix_markdown(report));
    let bad = report.cells().iter().filter(|cell| cell.standing() > Standing::Skipped);
    let kept: Vec<_> = bad.filter_map(|cell| Some((cell, cell.run_dir.as_ref()?))).collect();
    if !kept.is_empty() {
        text.push_str("\nEvidence:\n\n");
    }
    for (cell, folder) in kept {
        let folder = escaped(&folder.display().to_string());
        let _ = writeln!(text, "- {}, {}: {folder}", escaped(&cell.case), escaped(&cell.label));
    }
    within(text, room)
}

fn headline(report: &MatrixReport) -> String {
    let cells = report.cells();
    let count = |standing| cells.iter().filter(|cell| cell.standing() == standing).count();
    let mut parts = vec![format!("{} of {} as expected", count(Standing::Expected), cells.len())];
    let others = [
        (count(Standing::Unexpected), "not as expected"),
        (count(Standing::NoVerdict), "without a verdict"),
        (count(Standing::Skipped), "skipped"),
        (report.notes().len(), "notes"),
    ];
    parts.extend(others.iter().filter(|(many, _)| *many > 0).map(|(many, what)| format!("{many} {what}")));
    parts.join(", ")
}

/// The text, or as many whole lines as there is room for, with a line that says so.
fn within(mut text: String, room: usize) -> String {
    const CUT: &str = "\n(The rest is left out: a summary has at most 1 MiB.)\n";
    if text.len() > room {
        let end = room.saturating_sub(CUT.len());
        let end = text.as_bytes()[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        text.truncate(end);
        text.push_str(CUT);
    }
    // Where there is no room for that line either, nothing is what fits.
    if text.len() > room { String::new() } else { text }
}
