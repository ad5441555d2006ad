//! What GitHub Actions shows at the top of a job and beside files: workflow commands.

use super::MatrixReport;
use super::matrix::remark;
use crate::versions::Standing;

/// How many errors GitHub shows of a step.
const SHOWN: usize = 10;

/// A line for each cell that is not as expected and for each note. `file_of` gives the file of a case, from the root of
/// the repository. Where GitHub would leave some out, the last line says how many there are.
pub fn annotations(report: &MatrixReport, file_of: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let bad = report.cells().iter().filter(|cell| cell.standing() > Standing::Skipped);
    let bad = bad.map(|cell| {
        let title = format!("{} on torch {}", cell.case, cell.label);
        annotation(&title, file_of(&cell.case).as_deref(), &remark(cell))
    });
    let notes = report.notes().iter().map(|note| annotation("torchleak merge", None, note));
    let mut lines: Vec<String> = bad.chain(notes).collect();
    if lines.len() > SHOWN {
        let more = lines.len() - (SHOWN - 1);
        lines.truncate(SHOWN - 1);
        lines.push(annotation(
            "torchleak",
            None,
            &format!("{more} more are in the summary and in the table"),
        ));
    }
    lines
}

/// One error as a workflow command, on one line whatever the text.
pub fn annotation(title: &str, file: Option<&str>, message: &str) -> String {
    let file = file.map_or(String::new(), |file| format!("file={},", property(file)));
    format!("::error {file}title={}::{}", property(title), data(message))
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
