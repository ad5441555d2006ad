//! What people and programs read: tables, torchtitan's step lines, JSON, JUnit, what GitHub shows, progress.
//!
//! Architecture invariant: a report is a function of outcomes. It decides nothing.

mod annotations;
mod bisect;
mod explain;
mod human;
mod json;
mod junit;
mod markdown;
mod matrix;
mod matrix_progress;
mod progress;
mod summary;
mod titan;
mod titan_log;
mod watch;

pub use annotations::{annotation, annotations};
pub use bisect::{bisect_document, bisect_line, bisect_text};
pub use explain::{explain_document, explain_markdown, explain_text};
pub use human::case_text;
pub use json::document;
pub use junit::junit;
pub use matrix::{MatrixReport, matrix_csv, matrix_document, matrix_markdown, matrix_text};
pub use matrix_progress::{FetchProgress, MatrixProgress, matrix_progress};
pub use progress::ProgressWatcher;
pub use summary::{SUMMARY_LIMIT, summary};
pub use titan::case_lines;
pub use titan_log::{titan_log_document, titan_log_line, titan_log_text};
pub use watch::{WatchLines, watch_document, watch_text};
