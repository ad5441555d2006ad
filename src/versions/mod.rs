//! Cases over many versions of PyTorch: which versions there are, what a case shows on each, and where that changes.
//!
//! A [`Source`] lists candidates and gives the environment of each; [`run_cells`] runs cases there. `matrix` and
//! `bisect` decide which candidates are worth running.
//!
//! Architecture invariant: nothing here knows how a table looks. `report` draws what this room found.

mod answer;
mod bisect;
mod bisect_report;
mod candidate;
mod cell;
mod columns;
mod commits;
mod commits_error;
mod dates;
mod fetcher;
mod git;
mod git_error;
#[cfg(test)]
mod git_tests;
mod matrix;
mod merge;
mod nightlies;
mod parts;
mod paths;
mod releases;
mod search;
mod selection;
mod source_args;
mod source_error;
mod state;
mod store;
mod transitions;
mod wheel_commits;
mod wheels;

pub use answer::{Run, Shown};
pub use bisect::{BisectError, BisectWatcher, Bisection, Ran, between, direction};
pub use bisect_report::{BisectReport, Skipped, Tested};
pub(crate) use candidate::with_causes;
pub use candidate::{Candidate, Source, Unavailable};
pub use cell::{Cell, CellWatcher, Standing, run_cells};
pub use columns::{Column, Columns};
pub use commits::Commits;
pub use commits_error::CommitsError;
pub use dates::DateRange;
pub use git_error::GitError;
pub use matrix::{Matrix, MatrixError, MatrixWatcher};
pub use merge::{Joined, merge};
pub use nightlies::{Merged, Nightlies};
pub use parts::{Part, PartError, Share, label, read_parts};
pub use releases::Releases;
pub use search::{Answer, Change, Conclusion, Find, Seen, Step, next_step, tests_left};
pub use selection::Selection;
pub use source_args::{IndexArgs, SourceArgs};
pub use source_error::SourceError;
pub use state::{State, StateError, Subject};
pub use store::CellStore;
pub use transitions::{Side, Transition, minor, transitions};
pub use wheel_commits::compare_url;
pub use wheels::Wheels;
