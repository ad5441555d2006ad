//! Cases over many versions of PyTorch: which versions there are, what a case shows on each, and where that changes.
//!
//! A [`Source`] lists candidates and gives the environment of each; [`run_cells`] runs cases there. `matrix` and
//! `bisect` decide which candidates are worth running.
//!
//! Architecture invariant: nothing here knows how a table looks. `report` draws what this room found.

mod candidate;
mod cell;
mod commits;
mod commits_error;
mod git;
mod git_error;
#[cfg(test)]
mod git_tests;
mod paths;

pub use candidate::{Candidate, Source, Unavailable};
pub use cell::{Cell, run_cells};
pub use commits::Commits;
pub use commits_error::CommitsError;
pub use git_error::GitError;
