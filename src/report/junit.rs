//! A matrix as JUnit XML, for systems that show tests.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, SerializeError, TestCase, TestCaseStatus, TestSuite};

use super::MatrixReport;
use super::matrix::remark;
use crate::versions::{Cell, Standing};

/// A suite per version and a test case per case. Characters that XML cannot hold are left out.
///
/// # Errors
/// The XML cannot be written, which would be a mistake of torchleak's.
pub fn junit(report: &MatrixReport) -> Result<String, SerializeError> {
    let mut suites = Report::new("torchleak");
    for (column, cells) in report.by_column() {
        let name = format!("torch {}", report.heading(column, ", "));
        let mut suite = TestSuite::new(name.as_str());
        let seconds = cells.iter().map(|cell| cell.seconds).sum();
        suite.set_time(duration(seconds));
        suite.add_test_cases(cells.into_iter().map(|cell| test_case(&name, cell)));
        suites.add_test_suite(suite);
    }
    if !report.notes().is_empty() {
        let mut suite = TestSuite::new("torchleak merge");
        suite.add_test_cases(report.notes().iter().map(|note| {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_message(note.as_str());
            TestCase::new(note.as_str(), status)
        }));
        suites.add_test_suite(suite);
    }
    // The only two of the characters that XML cannot hold that the crate lets through.
    Ok(suites.to_string()?.replace(['\u{fffe}', '\u{ffff}'], ""))
}

fn test_case(suite: &str, cell: &Cell) -> TestCase {
    let mut status = match cell.standing() {
        Standing::Expected => TestCaseStatus::success(),
        Standing::Skipped => TestCaseStatus::skipped(),
        Standing::Unexpected => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Standing::NoVerdict => TestCaseStatus::non_success(NonSuccessKind::Error),
    };
    let remark = remark(cell);
    status.set_message(remark.lines().next().unwrap_or_default());
    if let Some(verdict) = cell.verdict {
        status.set_type(verdict.word());
    }
    status.set_description(remark.as_str());
    let mut case = TestCase::new(cell.case.as_str(), status);
    case.set_classname(suite);
    case.set_time(duration(cell.seconds));
    let mut properties = vec![("torch", cell.torch.as_str()), ("python", &cell.python)];
    properties.extend(cell.torch_commit.as_deref().map(|commit| ("torch commit", commit)));
    properties.extend(cell.verdict.map(|verdict| ("verdict", verdict.word())));
    case.add_properties(properties);
    if let Some(folder) = &cell.run_dir {
        case.set_system_out(format!("kept in {}", folder.display()));
    }
    case
}

/// Seconds of a document, which can be any number.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
