//! Releases of PyTorch, each in an environment that torchleak makes.

use pep440_rs::Version;

use super::{Candidate, Source, Unavailable};
use crate::cache::Cache;
use crate::environment::{
    self, Environment, EnvironmentError, Managed, Progress, Releases as Listed, Request, python_minor,
};

/// Releases for one interpreter, the oldest first.
#[derive(Debug)]
pub struct Releases {
    candidates: Vec<Candidate>,
    environments: Vec<Managed>,
    cache: Cache,
}

impl Releases {
    /// These versions, in environments that are else as `template` says. They need not be there.
    ///
    /// # Errors
    /// The user asked to stop while interpreters were looked at.
    pub fn named(versions: &[Version], template: &Managed, cache: &Cache) -> Result<Self, EnvironmentError> {
        let minor = python_minor(template)?;
        let mut versions = versions.to_vec();
        versions.sort();
        versions.dedup();
        let environments: Vec<Managed> = versions
            .into_iter()
            // The machine's default interpreter may change; what was found on it must not be taken for another's.
            .map(|version| Managed { python_minor: Some(minor), ..template.with_torch(version) })
            .collect();
        let candidates = environments.iter().map(|managed| Candidate {
            label: managed.torch.to_string(),
            identity: managed.key(minor),
            commit: None,
            note: None,
        });
        Ok(Self { candidates: candidates.collect(), environments, cache: cache.clone() })
    }

    /// All releases of the index from one version to another, both included whether the index has them or not.
    ///
    /// # Errors
    /// The index cannot be asked.
    pub fn between(
        ends: [&Version; 2],
        template: &Managed,
        cache: &Cache,
        progress: &dyn Progress,
    ) -> Result<Self, EnvironmentError> {
        let [oldest, newest] = if ends[0] <= ends[1] { ends } else { [ends[1], ends[0]] };
        progress.begin(&format!("asking for the releases of torch from {oldest} to {newest}"));
        let listed = Listed::newest_first(template, python_minor(template)?, cache, progress)
            .map(|listed| listed.below(newest.clone()));
        let mut versions: Result<Vec<Version>, EnvironmentError> = listed.and_then(|listed| {
            listed.take_while(|version| version.as_ref().map_or(true, |version| version > oldest)).collect()
        });
        progress.end();
        if let Ok(versions) = &mut versions {
            versions.extend([oldest.clone(), newest.clone()]);
        }
        Self::named(&versions?, template, cache)
    }

    fn managed(&self, candidate: &Candidate) -> Option<&Managed> {
        let place = self.candidates.iter().position(|one| one.identity == candidate.identity)?;
        self.environments.get(place)
    }
}

impl Source for Releases {
    fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    fn environment(
        &self,
        candidate: &Candidate,
        progress: &dyn Progress,
    ) -> Result<Environment, Unavailable> {
        let none = || Unavailable::Broken(format!("{} is none of these releases", candidate.label));
        let request = Request::Managed(self.managed(candidate).ok_or_else(none)?.clone());
        Ok(environment::resolve_request(&request, &self.cache, progress)?)
    }

    fn replay(&self, candidate: &Candidate) -> Vec<String> {
        self.managed(candidate).map(Managed::options).unwrap_or_default()
    }
}
