//! A torch that is installed from one wheel instead of from an index.

use std::fmt;
use std::path::{Path, PathBuf};

use pep440_rs::Version;
use percent_encoding::percent_decode_str;
use url::Url;

use super::error::EnvironmentError;
use crate::index::{WheelName, of_file, without_credentials};
use crate::process::without_password;

/// A wheel of torch, by its address or its path.
#[derive(Clone, PartialEq, Eq)]
pub struct TorchWheel {
    name: WheelName,
    place: Place,
}

#[derive(Clone, PartialEq, Eq)]
enum Place {
    /// What is at a URL does not change.
    Url(Url),
    /// What is at a path can be built anew, so a hash of what is in it belongs to it.
    Path { path: PathBuf, commit: Option<String>, hash: String },
}

impl TorchWheel {
    /// Reads a URL or a path. A wheel at a path is looked into; one at a URL is not asked for.
    ///
    /// # Errors
    /// It is no wheel of torch.
    pub fn parse(given: &str) -> Result<Self, EnvironmentError> {
        let given = given.trim();
        if !given.contains("://") {
            return Self::at_path(Path::new(given));
        }
        let url = Url::parse(given).map_err(|error| bad(given, format!("is no URL: {error}")))?;
        match (url.scheme(), url.to_file_path()) {
            ("file", Ok(path)) => Self::at_path(&path),
            ("http" | "https", _) => {
                let last = url.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
                let name = wheel_name(&percent_decode_str(last).decode_utf8_lossy());
                Ok(Self { name: name.map_err(|problem| bad(given, problem))?, place: Place::Url(url) })
            }
            _ => Err(bad(given, "is neither an https:// URL nor a path".to_owned())),
        }
    }

    /// Looks into a wheel on this machine.
    ///
    /// # Errors
    /// It is no wheel of torch.
    pub fn at_path(path: &Path) -> Result<Self, EnvironmentError> {
        let bad = |problem| bad(&path.display().to_string(), problem);
        // uv runs in a folder of its own.
        let whole = std::path::absolute(path).map_err(|error| bad(format!("is no path: {error}")))?;
        let name = wheel_name(&path.file_name().unwrap_or_default().to_string_lossy()).map_err(bad)?;
        let contents = of_file(&whole).map_err(|error| bad(format!("is no wheel: {error}")))?;
        let place = Place::Path { path: whole, commit: contents.commit, hash: contents.hash };
        Ok(Self { name, place })
    }

    /// The version that its name says.
    pub fn version(&self) -> &Version {
        &self.name.version
    }

    /// What its name says.
    pub fn name(&self) -> &WheelName {
        &self.name
    }

    /// The commit that the wheel says it was built from, if it is on this machine.
    pub fn commit(&self) -> Option<&str> {
        match &self.place {
            Place::Url(_) => None,
            Place::Path { commit, .. } => commit.as_deref(),
        }
    }

    /// Where it is, credentials included, if it is on a server.
    pub fn url(&self) -> Option<&Url> {
        match &self.place {
            Place::Url(url) => Some(url),
            Place::Path { .. } => None,
        }
    }

    /// What uv is asked to install.
    pub(super) fn requirement(&self) -> String {
        match &self.place {
            Place::Url(url) => format!("torch @ {url}"),
            // A path that is no URL is none of an absolute path.
            Place::Path { path, .. } => match Url::from_file_path(path) {
                Ok(url) => format!("torch @ {url}"),
                Err(()) => path.display().to_string(),
            },
        }
    }

    /// Equal for wheels that hold the same.
    pub(super) fn identity(&self) -> String {
        match &self.place {
            Place::Url(url) => without_credentials(url).to_string(),
            Place::Path { hash, .. } => hash.clone(),
        }
    }
}

fn wheel_name(name: &str) -> Result<WheelName, String> {
    let name = WheelName::parse(name).map_err(|problem| format!("is no wheel: {problem}"))?;
    match name.project.as_str() {
        "torch" => Ok(name),
        other => Err(format!("is a wheel of {other}, not of torch")),
    }
}

fn bad(given: &str, problem: String) -> EnvironmentError {
    EnvironmentError::BadOption {
        option: "--torch-wheel",
        given: without_password(given),
        problem,
        hint: "give the https:// URL or the path of a wheel of torch, with the name that it was built with",
    }
}

/// As on the command line, without credentials.
impl fmt::Display for TorchWheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Url(url) => write!(f, "{}", without_credentials(url)),
            Place::Path { path, .. } => write!(f, "{}", Path::display(path)),
        }
    }
}

impl fmt::Debug for TorchWheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TorchWheel({self})")
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_url_gives_the_version_and_hides_its_password() {
        let given =
            "https://me:secret@example.org/torch-2.8.0%2Bcu128-cp312-cp312-linux_x86_64.whl#sha256=ab";
        let wheel = TorchWheel::parse(given).unwrap();
        assert_eq!(wheel.version().to_string(), "2.8.0+cu128");
        assert_eq!(wheel.requirement(), format!("torch @ {given}"));
        for text in [wheel.to_string(), format!("{wheel:?}"), wheel.identity()] {
            assert!(!text.contains("secret") && text.contains("example.org/torch-2.8.0"), "{text}");
        }
    }

    #[rstest]
    #[case("https://me:secret@example.org/torch.tar.gz", ".whl")]
    #[case("https://example.org/numpy-2.0-py3-none-any.whl", "numpy")]
    #[case("ftp://me:secret@example.org/torch-2.8.0-py3-none-any.whl", "http")]
    #[case("/nonexistent/torch-2.8.0-py3-none-any.whl", "cannot be read")]
    #[case("https://", "is no URL")]
    #[case("", "is no path")]
    fn what_is_no_wheel_of_torch_is_bad_usage(#[case] given: &str, #[case] why: &str) {
        let error = TorchWheel::parse(given).unwrap_err();
        assert!(error.is_usage());
        assert!(error.to_string().contains(why) && !error.to_string().contains("secret"), "{error}");
    }
}
