//! Where a case's verdict changes from one version to the next.

use serde::Serialize;
use torchleak_protocol::Device;

use super::Cell;
use crate::case::Verdict;

/// One end of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Side {
    pub torch: String,
    pub verdict: Verdict,
}

/// A change of a case's verdict between two versions that follow each other in a matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Transition {
    pub case: String,
    /// The Python's `X.Y`.
    pub python: String,
    pub device: Device,
    pub from: Side,
    pub to: Side,
}

impl Transition {
    /// The change in words: "fixed between 2.8.0 and 2.9.1".
    pub fn sentence(&self) -> String {
        let (from, to) = (&self.from, &self.to);
        let what = match (from.verdict, to.verdict) {
            (_, Verdict::Fixed) => "fixed".to_owned(),
            (Verdict::Fixed, leak) => format!("introduced ({leak})"),
            (before, after) => format!("changed from {before} to {after}"),
        };
        format!("{} between {} and {}", what, from.torch, to.torch)
    }
}

/// The changes in the cells of one case and one Python, in the order of their versions. A cell without a verdict that
/// says something about the leak is passed over, because it cannot tell on which side of a change it is.
pub fn transitions<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> Vec<Transition> {
    let mut found = Vec::new();
    let mut before: Option<(&Cell, Verdict)> = None;
    for cell in cells {
        let Some(verdict) = cell.verdict.filter(|verdict| verdict.is_conclusive()) else { continue };
        if let Some((other, last)) = before.filter(|(_, last)| *last != verdict) {
            found.push(Transition {
                case: cell.case.clone(),
                python: minor(&cell.python).to_owned(),
                device: cell.device,
                from: Side { torch: other.label.clone(), verdict: last },
                to: Side { torch: cell.label.clone(), verdict },
            });
        }
        before = Some((cell, verdict));
    }
    found
}

/// The `X.Y` of a full Python version.
pub fn minor(python: &str) -> &str {
    match python.match_indices('.').nth(1) {
        Some((place, _)) => &python[..place],
        None => python,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(verdicts: &[(&str, Option<Verdict>)]) -> Vec<Cell> {
        let cell = |(label, verdict): &(&str, Option<Verdict>)| Cell {
            case: "leak".into(),
            label: (*label).into(),
            torch: format!("{label}+cpu"),
            torch_commit: None,
            overlay: None,
            python: "3.11.7".into(),
            device: Device::Cpu,
            verdict: *verdict,
            reason: String::new(),
            expected: None,
            ok: true,
            growth: None,
            seconds: 0.0,
            run_dir: None,
            cached: false,
        };
        verdicts.iter().map(cell).collect()
    }

    fn sentences(verdicts: &[(&str, Option<Verdict>)]) -> Vec<String> {
        transitions(&cells(verdicts)).iter().map(Transition::sentence).collect()
    }

    #[test]
    fn each_change_is_named_between_its_two_neighbours() {
        use Verdict::{Fixed, OneOff, Reproduced, Uncollectable};
        let found = sentences(&[
            ("2.6.0", Some(Uncollectable)),
            ("2.7.1", Some(Uncollectable)),
            ("2.8.0", Some(Reproduced)),
            ("2.9.1", Some(Fixed)),
            ("2.10.0", Some(OneOff)),
        ]);
        assert_eq!(
            found,
            [
                "changed from uncollectable to reproduced between 2.7.1 and 2.8.0",
                "fixed between 2.8.0 and 2.9.1",
                "introduced (one-off) between 2.9.1 and 2.10.0",
            ]
        );
    }

    #[test]
    fn a_version_that_cannot_tell_is_passed_over() {
        use Verdict::{Error, Fixed, Inconclusive, Reproduced};
        let found = sentences(&[
            ("2.6.0", Some(Error)),
            ("2.7.1", Some(Reproduced)),
            ("2.8.0", None),
            ("2.9.1", Some(Inconclusive)),
            ("2.10.0", Some(Fixed)),
            ("2.11.0", Some(Fixed)),
        ]);
        assert_eq!(found, ["fixed between 2.7.1 and 2.10.0"]);
    }

    #[test]
    fn the_minor_version_of_a_python_is_its_first_two_numbers() {
        assert_eq!([minor("3.11.7"), minor("3.13"), minor("")], ["3.11", "3.13", ""]);
    }
}
