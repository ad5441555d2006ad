//! What people and programs read: tables, torchtitan's step lines, JSON, progress.
//!
//! Architecture invariant: a report is a function of outcomes. It decides nothing.

mod bisect;
mod human;
mod json;
mod progress;
mod titan;

pub use bisect::{bisect_document, bisect_line, bisect_text};
pub use human::case_text;
pub use json::document;
pub use progress::ProgressWatcher;
pub use titan::case_lines;
