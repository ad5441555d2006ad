//! Releases of PyTorch, each in an environment that torchleak makes.

use pep440_rs::Version;

use super::{Candidate, Source, Unavailable};
use crate::cache::Cache;
use crate::environment::{
    self, Environment, EnvironmentArgs, EnvironmentError, Progress, Request, resolve_request,
};

/// Releases, the oldest first.
#[derive(Debug)]
pub struct Releases {
    candidates: Vec<Candidate>,
    requests: Vec<Request>,
    base: EnvironmentArgs,
    cache: Cache,
}

impl Releases {
    /// The releases of those versions, in environments that are else as `base` says.
    ///
    /// # Errors
    /// `base` has a bad value, or names an interpreter, which has one torch only.
    pub fn named(
        versions: &[Version],
        base: &EnvironmentArgs,
        cache: &Cache,
    ) -> Result<Self, EnvironmentError> {
        let mut versions = versions.to_vec();
        versions.sort();
        versions.dedup();
        let (mut candidates, mut requests) = (Vec::new(), Vec::new());
        for version in versions {
            let args = EnvironmentArgs { torch: Some(version.to_string()), ..base.clone() };
            let request = Request::new(&args, |name| std::env::var_os(name))?;
            let identity = match &request {
                // Without a Python minor version it is that of the machine, which does not change.
                Request::Managed(wanted) => wanted.key(wanted.python_minor.unwrap_or_default()),
                Request::Interpreter(path) => path.display().to_string(),
            };
            candidates.push(Candidate { label: version.to_string(), identity, commit: None });
            requests.push(request);
        }
        Ok(Self { candidates, requests, base: base.clone(), cache: cache.clone() })
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
        let place = self.candidates.iter().position(|one| one == candidate);
        let request = place.map(|place| &self.requests[place]);
        let request =
            request.ok_or_else(|| Unavailable::Broken(format!("{} is no release", candidate.label)))?;
        Ok(resolve_request(request, &self.cache, progress)?)
    }

    fn replay(&self, candidate: &Candidate) -> Vec<String> {
        let mut words = vec!["--torch".to_owned(), candidate.label.clone()];
        let environment::EnvironmentArgs {
            python_version,
            index_url,
            extra_index_url,
            torch_backend,
            with,
            ..
        } = &self.base;
        let options = [
            ("--python-version", python_version),
            ("--index-url", index_url),
            ("--torch-backend", torch_backend),
        ];
        for (option, value) in options {
            words.extend(value.iter().flat_map(|value| [option.to_owned(), value.clone()]));
        }
        for (option, values) in [("--extra-index-url", extra_index_url), ("--with", with)] {
            words.extend(values.iter().flat_map(|value| [option.to_owned(), value.clone()]));
        }
        words
    }
}
