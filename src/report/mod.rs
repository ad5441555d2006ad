//! What people and programs read: tables, torchtitan's step lines, JSON, progress.
//!
//! Architecture invariant: a report is a function of outcomes. It decides nothing.

mod bisect;
mod explain;
mod human;
mod json;
mod matrix;
mod matrix_progress;
mod progress;
mod titan;
mod titan_log;
mod watch;

pub use bisect::{bisect_document, bisect_line, bisect_text};
pub use explain::{explain_document, explain_markdown, explain_text};
pub use human::case_text;
pub use json::document;
pub use matrix::{MatrixReport, matrix_csv, matrix_document, matrix_markdown, matrix_text};
pub use matrix_progress::{FetchProgress, MatrixProgress, matrix_progress};
pub use progress::ProgressWatcher;
pub use titan::case_lines;
pub use titan_log::{titan_log_document, titan_log_line, titan_log_text};
pub use watch::{WatchLines, watch_document, watch_text};
