//! Wheels of torch that the user has: a folder of them, or given ones.

use std::path::{Path, PathBuf};

use pep440_rs::Version;

use super::candidate::{Candidate, Source, Unavailable};
use super::nightlies::no_build;
use super::source_error::SourceError;
use super::wheel_commits::{self, Known};
use crate::cache::Cache;
use crate::environment::{self, Environment, Managed, Progress, Request, TorchWheel, is_ready};
use crate::index::{Client, Machine, WheelName};

/// Wheels of torch by version, the oldest first. Two of one commit stay two candidates: a build of one's own may hold
/// what no commit has.
#[derive(Debug)]
pub struct Wheels {
    candidates: Vec<Candidate>,
    builds: Vec<Build>,
    cache: Cache,
}

/// What belongs to the candidate of the same number.
#[derive(Debug)]
struct Build {
    /// The environment, or why there can be none.
    managed: Result<Managed, String>,
    gone: Option<String>,
}

/// A wheel before it has a place among the others.
#[derive(Debug)]
struct Found {
    version: Version,
    /// Its path or address.
    shown: String,
    wheel: Result<TorchWheel, String>,
    known: Known,
}

impl Wheels {
    /// The wheels of torch in a folder that fit the interpreter. What torch needs is looked for in the folder too.
    ///
    /// # Errors
    /// The folder cannot be read, or it has nothing that fits.
    pub fn in_folder(
        folder: &Path,
        python_minor: u32,
        template: &Managed,
        cache: &Cache,
    ) -> Result<Self, SourceError> {
        let machine = Machine::this(python_minor);
        let failed = |source| SourceError::Folder { path: folder.to_owned(), source };
        let folder = std::path::absolute(folder).map_err(failed)?;
        let listed = wheels_of_torch(&folder).map_err(failed)?;
        if listed.is_empty() {
            return Err(SourceError::NoWheels(folder));
        }
        let fitting = listed.iter().filter(|(name, _)| name.fits(&machine));
        let found: Vec<Found> = fitting.map(|(name, path)| at_path(name, path)).collect();
        if found.is_empty() {
            let names = listed.iter().map(|(name, _)| name);
            return Err(no_build(&folder.display().to_string(), &machine, names));
        }
        let mut template = template.clone();
        template.find_links.insert(0, folder);
        Ok(Self::of(found, python_minor, &template, cache))
    }

    /// These wheels, by URL or path. Two of one version keep their order.
    ///
    /// # Errors
    /// One is no wheel of torch or does not fit the interpreter.
    pub fn given(
        wheels: &[String],
        python_minor: u32,
        template: &Managed,
        cache: &Cache,
        progress: &dyn Progress,
    ) -> Result<Self, SourceError> {
        let machine = Machine::this(python_minor);
        let wheels: Vec<TorchWheel> =
            wheels.iter().map(|given| TorchWheel::parse(given)).collect::<Result<_, _>>()?;
        if let Some(wheel) = wheels.iter().find(|wheel| !wheel.name().fits(&machine)) {
            return Err(no_build(&wheel.to_string(), &machine, std::iter::once(wheel.name())));
        }
        let urls = wheels.iter().filter_map(|wheel| wheel.url().cloned()).collect();
        let read = wheel_commits::read(&Client::new(None), urls, cache, progress);
        progress.end();
        let mut read = read?.into_iter();
        let found = wheels.into_iter().map(|wheel| Found {
            version: wheel.version().clone(),
            shown: wheel.to_string(),
            known: match wheel.url() {
                Some(_) => read.next().unwrap_or_default(),
                None => Known { commit: wheel.commit().map(str::to_owned), gone: None },
            },
            wheel: Ok(wheel),
        });
        Ok(Self::of(found.collect(), python_minor, template, cache))
    }

    fn of(mut found: Vec<Found>, python_minor: u32, template: &Managed, cache: &Cache) -> Self {
        found.sort_by(|a, b| a.version.cmp(&b.version));
        let labels = labels(&found);
        let made = found.into_iter().zip(labels).map(|(found, label)| {
            let managed = found.wheel.map(|wheel| Managed {
                torch: found.version,
                wheel: Some(Box::new(wheel)),
                python_minor: Some(python_minor),
                ..template.clone()
            });
            let identity = managed.as_ref().map_or(found.shown, |managed| managed.key(python_minor));
            let candidate = Candidate { label, identity, commit: found.known.commit, note: None };
            (candidate, Build { managed, gone: found.known.gone })
        });
        let (candidates, builds) = made.unzip();
        Self { candidates, builds, cache: cache.clone() }
    }

    fn build(&self, candidate: &Candidate) -> Option<&Build> {
        let at = self.candidates.iter().position(|one| one.label == candidate.label)?;
        self.builds.get(at)
    }
}

impl Source for Wheels {
    fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    fn environment(
        &self,
        candidate: &Candidate,
        progress: &dyn Progress,
    ) -> Result<Environment, Unavailable> {
        let unknown = || Unavailable::Broken(format!("{} is none of these wheels", candidate.label));
        let build = self.build(candidate).ok_or_else(unknown)?;
        let managed = build.managed.as_ref().map_err(|problem| Unavailable::Broken(problem.clone()))?;
        match &build.gone {
            // What was installed while it was there can still be used.
            Some(gone) if !is_ready(&candidate.identity, &self.cache) => {
                Err(Unavailable::Broken(format!("its wheel is gone: {gone}")))
            }
            _ => {
                let request = Request::Managed(managed.clone());
                Ok(environment::resolve_request(&request, &self.cache, progress)?)
            }
        }
    }

    fn replay(&self, candidate: &Candidate) -> Vec<String> {
        let managed = self.build(candidate).and_then(|build| build.managed.as_ref().ok());
        managed.map(Managed::options).unwrap_or_default()
    }
}

/// The wheels of torch in a folder, by file name.
fn wheels_of_torch(folder: &Path) -> std::io::Result<Vec<(WheelName, PathBuf)>> {
    let mut paths = std::fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    let named = paths.into_iter().filter_map(|path| {
        let name = WheelName::parse(&path.file_name()?.to_string_lossy()).ok()?;
        (name.project == "torch").then_some((name, path))
    });
    Ok(named.collect())
}

/// A wheel of a folder. One that is broken stays a candidate, which nothing can be told of: leaving it out would move
/// its neighbours together.
fn at_path(name: &WheelName, path: &Path) -> Found {
    let wheel = TorchWheel::at_path(path);
    let commit = wheel.as_ref().ok().and_then(|wheel| wheel.commit().map(str::to_owned));
    Found {
        version: name.version.clone(),
        shown: path.display().to_string(),
        wheel: wheel.map_err(|error| error.to_string()),
        known: Known { commit, gone: None },
    }
}

/// The versions, with a number where there are several of one.
fn labels(found: &[Found]) -> Vec<String> {
    let alike =
        |found: &[Found], version: &Version| found.iter().filter(|one| one.version == *version).count();
    let numbered = found.iter().enumerate().map(|(at, one)| match alike(found, &one.version) {
        1 => one.version.to_string(),
        _ => format!("{}#{}", one.version, alike(&found[..=at], &one.version)),
    });
    numbered.collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;
    use crate::environment::{EnvironmentArgs, Silent};

    fn template() -> Managed {
        match Request::new(&EnvironmentArgs::default(), |_| None).unwrap() {
            Request::Managed(managed) => managed,
            Request::Interpreter(path) => panic!("{}", path.display()),
        }
    }

    fn wheel(folder: &Path, name: &str, commit: &str) -> String {
        let path = folder.join(name);
        let mut archive = ZipWriter::new(std::fs::File::create(&path).unwrap());
        for (name, text) in [
            ("torch/version.py", format!("git_version = '{commit}'\n")),
            ("torch-1.dist-info/RECORD", format!("torch/version.py,sha256={commit},1\n")),
        ] {
            archive.start_file(name, SimpleFileOptions::default()).unwrap();
            archive.write_all(text.as_bytes()).unwrap();
        }
        archive.finish().unwrap();
        path.display().to_string()
    }

    fn tags() -> String {
        format!("cp312-cp312-linux_{}", std::env::consts::ARCH)
    }

    fn labels(wheels: &Wheels) -> Vec<&str> {
        wheels.candidates().iter().map(|candidate| candidate.label.as_str()).collect()
    }

    #[test]
    fn a_folder_gives_its_wheels_of_torch_by_version_with_their_commits() {
        let folder = tempfile::tempdir().unwrap();
        let tags = tags();
        for (version, commit) in
            [("2.10.0", "bbbbbbb"), ("2.9.0", "aaaaaaa"), ("2.10.0a0+gitccccccc", "ccccccc")]
        {
            wheel(folder.path(), &format!("torch-{version}-{tags}.whl"), commit);
        }
        wheel(folder.path(), "torch-2.11.0-cp313-cp313-linux_x86_64.whl", "ddddddd");
        wheel(folder.path(), "numpy-2.0.0-py3-none-any.whl", "eeeeeee");
        std::fs::write(folder.path().join("README"), "").unwrap();
        let found = Wheels::in_folder(folder.path(), 12, &template(), &Cache::at(folder.path())).unwrap();
        assert_eq!(labels(&found), ["2.9.0", "2.10.0a0+gitccccccc", "2.10.0"]);
        let commits: Vec<_> = found.candidates().iter().map(|one| one.commit.as_deref().unwrap()).collect();
        assert_eq!(commits, ["aaaaaaa", "ccccccc", "bbbbbbb"]);
        let replay = found.replay(&found.candidates()[0]).join(" ");
        let here = folder.path().display();
        assert_eq!(
            replay,
            format!("--torch-wheel {here}/torch-2.9.0-{tags}.whl --python-version 3.12 --find-links {here}")
        );
    }

    #[test]
    fn a_broken_wheel_of_a_folder_stays_a_candidate_that_says_why() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(format!("torch-2.9.0-{}.whl", tags())), "cut off").unwrap();
        let found = Wheels::in_folder(folder.path(), 12, &template(), &Cache::at(folder.path())).unwrap();
        let error = found.environment(&found.candidates()[0], &Silent).unwrap_err();
        assert!(matches!(&error, Unavailable::Broken(why) if why.contains("zip archive")), "{error}");
    }

    #[test]
    fn a_folder_without_a_fitting_wheel_says_what_there_is() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let of = |path: &Path| Wheels::in_folder(path, 12, &template(), &cache).unwrap_err();
        assert!(matches!(of(folder.path()), SourceError::NoWheels(_)));
        assert!(matches!(of(Path::new("/nonexistent")), SourceError::Folder { .. }));
        let name = tags().replace("312", "313");
        wheel(folder.path(), &format!("torch-2.9.0-{name}.whl"), "aaaaaaa");
        let error = of(folder.path());
        assert!(error.to_string().ends_with("it has builds for Python 3.13"), "{error}");
        assert!(error.hint().unwrap().contains("--python-version"));
    }

    #[test]
    fn given_wheels_of_one_version_keep_their_order_and_get_numbers() {
        let [first, second] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let name = format!("torch-2.9.0-{}.whl", tags());
        let given = [
            wheel(second.path(), &name, "bbbbbbb"),
            wheel(first.path(), &name, "aaaaaaa"),
            wheel(first.path(), &name.replace("2.9.0", "2.8.0"), "ccccccc"),
        ];
        let cache = Cache::at(first.path());
        let found = Wheels::given(&given, 12, &template(), &cache, &Silent).unwrap();
        assert_eq!(labels(&found), ["2.8.0", "2.9.0#1", "2.9.0#2"]);
        assert!(found.replay(&found.candidates()[1]).contains(&given[0]));
        assert_ne!(found.candidates()[1].identity, found.candidates()[2].identity);

        // Built anew at its place, it is another environment.
        wheel(second.path(), &name, "ddddddd");
        let anew = Wheels::given(&given, 12, &template(), &cache, &Silent).unwrap();
        assert_ne!(anew.candidates()[1].identity, found.candidates()[1].identity);
        assert_eq!(anew.candidates()[2].identity, found.candidates()[2].identity);
    }

    #[test]
    fn a_given_wheel_that_does_not_fit_or_is_none_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let name = format!("torch-2.9.0-{}.whl", tags().replace("312", "313"));
        let given = |given: String| Wheels::given(&[given], 12, &template(), &cache, &Silent).unwrap_err();
        let error = given(wheel(folder.path(), &name, "aaaaaaa"));
        assert!(matches!(error, SourceError::NoBuild { .. }), "{error}");
        assert!(given("/nonexistent/torch-2.9.0-cp312-cp312-linux_x86_64.whl".to_owned()).is_usage());
    }
}
