//! One version of PyTorch that cases can be run on, and where such versions come from.

use pep440_rs::Version;

use crate::environment::{Environment, EnvironmentError, Progress};

/// One version of PyTorch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its name on the command line and in every report, unique within its source: `2.8.0`,
    /// `2.8.0.dev20250527+cu128`, or the hash of a commit.
    pub label: String,
    /// Names the environment that this candidate has, without making it: equal identities run the same PyTorch.
    pub identity: String,
    /// The commit of PyTorch, where it is known before the environment is made.
    pub commit: Option<String>,
    /// What a person may want to know of it beside its name: a commit's date and subject.
    pub note: Option<String>,
}

/// Why a candidate cannot be tested. That is an answer of a bisection ("cannot tell") and no failure of it.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// Its environment cannot be found or made.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// It can be made and does not work, with the reason: for example its files do not import over this release.
    #[error("{0}")]
    Broken(String),
}

impl Unavailable {
    /// Whether trying others is pointless, because the user asked to stop.
    pub fn is_interrupted(&self) -> bool {
        matches!(self, Self::Environment(error) if error.is_interrupted())
    }

    /// The error and what it comes from, as one sentence.
    pub fn with_causes(&self) -> String {
        with_causes(self)
    }
}

/// An error and what it comes from, as one sentence.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Where candidates come from.
pub trait Source: Sync {
    /// All candidates, in the order of their history, the oldest first.
    fn candidates(&self) -> &[Candidate];

    /// The label of the candidate that a person means by `given`: its name, or a version of which it is a build.
    fn find(&self, given: &str) -> Option<String> {
        let given = given.trim();
        let wanted: Option<Version> = given.parse().ok();
        let is_build_of = |label: &str| {
            let version: Option<Version> = label.parse().ok();
            version.zip(wanted.as_ref()).is_some_and(|(version, wanted)| {
                version == *wanted || wanted.local().is_empty() && version.without_local() == *wanted
            })
        };
        let candidates = self.candidates();
        let exact = candidates.iter().find(|one| one.label == given);
        exact.or_else(|| candidates.iter().find(|one| is_build_of(&one.label))).map(|one| one.label.clone())
    }

    /// The environment of a candidate, made if need be.
    ///
    /// # Errors
    /// The candidate cannot be tested.
    fn environment(&self, candidate: &Candidate, progress: &dyn Progress)
    -> Result<Environment, Unavailable>;

    /// The options with which `torchleak run CASE` runs on that candidate.
    fn replay(&self, candidate: &Candidate) -> Vec<String>;
}
