//! Where an index is.

use std::fmt;
use std::path::Path;

use url::Url;

use super::error::IndexError;
use crate::process::without_password;

/// The address of a package index: the page above those of all projects. It may hold credentials, which neither
/// `Debug` nor `Display` shows.
#[derive(Clone, PartialEq, Eq)]
pub struct IndexUrl(Url);

impl IndexUrl {
    /// Reads a URL of kind http, https or file, or the path of a folder.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(given: &str) -> Result<Self, IndexError> {
        let given = given.trim();
        let bad = |problem: &str| IndexError::BadAddress {
            given: without_password(given),
            problem: problem.to_owned(),
        };
        let mut url = if given.contains("://") {
            Url::parse(given).map_err(|error| bad(&error.to_string()))?
        } else {
            let folder = std::path::absolute(Path::new(given)).map_err(|error| bad(&error.to_string()))?;
            if !folder.is_dir() {
                return Err(bad("it is neither a URL nor a folder"));
            }
            Url::from_directory_path(folder).map_err(|()| bad("it is no path"))?
        };
        match url.scheme() {
            "http" | "https" | "file" => {}
            other => return Err(bad(&format!("`{other}` is not http, https or file"))),
        }
        url.set_fragment(None);
        // Without the slash, the last word would be replaced by a project's name instead of followed by it.
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        Ok(Self(url))
    }

    /// PyTorch's own index of nightlies for a backend such as `cpu` or `cu128`; without one, or with uv's `auto`,
    /// the one for the CPU, because only a user knows which CUDA is wanted.
    ///
    /// # Errors
    /// The backend cannot be part of a URL.
    pub fn pytorch_nightlies(backend: Option<&str>) -> Result<Self, IndexError> {
        let backend = backend.filter(|backend| *backend != "auto").unwrap_or("cpu");
        Self::parse(&format!("https://download.pytorch.org/whl/nightly/{backend}/"))
    }

    /// The page that lists the files of a project.
    pub(super) fn project(&self, name: &str) -> Url {
        let mut page = self.0.clone();
        // A URL of these kinds always has segments; the last one of a folder is empty.
        if let Ok(mut segments) = page.path_segments_mut() {
            segments.pop_if_empty().push(name).push("");
        }
        page
    }

    pub(super) fn url(&self) -> &Url {
        &self.0
    }

    /// The address with its credentials, for the program that installs from it.
    pub fn with_credentials(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for IndexUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", without_credentials(&self.0))
    }
}

impl fmt::Debug for IndexUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IndexUrl({self})")
    }
}

/// The same address for anyone to read.
pub fn without_credentials(url: &Url) -> Url {
    let mut public = url.clone();
    // Both fail only where a URL cannot have credentials.
    let _ = public.set_username("");
    let _ = public.set_password(None);
    public
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_a_page_below_the_index_with_or_without_a_last_slash() {
        for given in ["https://example.org/whl/cpu", " https://example.org/whl/cpu/#x "] {
            let index = IndexUrl::parse(given).unwrap();
            assert_eq!(index.project("torch").as_str(), "https://example.org/whl/cpu/torch/");
        }
    }

    #[test]
    fn the_default_index_follows_the_backend() {
        let shown = |backend| IndexUrl::pytorch_nightlies(backend).unwrap().to_string();
        assert_eq!(shown(Some("cu128")), "https://download.pytorch.org/whl/nightly/cu128/");
        assert_eq!(shown(None), shown(Some("cpu")));
        assert_eq!(shown(Some("auto")), shown(Some("cpu")));
    }

    #[test]
    fn credentials_are_kept_and_never_shown() {
        let index = IndexUrl::parse("https://me:secret@example.org/whl").unwrap();
        assert!(index.with_credentials().contains("me:secret@"));
        assert_eq!(format!("{index}"), "https://example.org/whl/");
        assert!(!format!("{index:?}").contains("secret"));
        let error = IndexUrl::parse("ftp://me:secret@example.org/").unwrap_err();
        assert!(error.to_string().contains("ftp") && !error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn a_folder_is_an_index_and_a_path_to_nothing_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let index = IndexUrl::parse(folder.path().to_str().unwrap()).unwrap();
        assert!(index.to_string().starts_with("file:///") && index.to_string().ends_with('/'));
        assert!(IndexUrl::parse("/nonexistent/folder").is_err());
        assert!(IndexUrl::parse("https://").is_err());
    }
}
