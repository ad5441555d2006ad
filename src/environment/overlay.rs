//! An environment with Python files of a commit laid over its torch.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::check;
use super::error::EnvironmentError;
use super::progress::Progress;
use super::views::UsedView;
use super::{Environment, Origin};
use crate::cache::write_whole;

/// What was laid over an environment. The environment itself is untouched, and cannot be pruned while this is there.
#[derive(Debug, Serialize)]
pub struct Overlay {
    /// The full hash of the commit.
    pub commit: String,
    /// The paths that were asked for, as in a checkout of PyTorch.
    pub paths: Vec<String>,
    /// The files below them that are not as in the environment: other, added or removed.
    pub changed: Vec<String>,
    /// The interpreter of the environment.
    #[serde(rename = "base_python_executable", serialize_with = "python_of")]
    pub base: Environment,
    /// Where all of this is; it is given back with this.
    #[serde(skip)]
    pub view: UsedView,
}

fn python_of<S: serde::Serializer>(base: &Environment, serializer: S) -> Result<S::Ok, S::Error> {
    base.python.serialize(serializer)
}

/// What the view's interpreter is asked to import.
#[derive(Serialize)]
struct Modules {
    modules: std::collections::BTreeMap<String, PathBuf>,
}

/// Takes the environment as it is in the view, if its torch and every changed module can be imported there.
///
/// # Errors
/// [`EnvironmentError::DoesNotImport`] where one cannot; or the interpreter does not answer.
pub fn overlaid(overlay: Overlay, progress: &dyn Progress) -> Result<Environment, EnvironmentError> {
    progress.begin("importing torch with the files of the commit");
    let checked = check(&overlay);
    progress.end();
    checked?;
    let (facts, devices) = (overlay.base.facts.clone(), overlay.base.devices.clone());
    let python = overlay.view.python();
    Ok(Environment { python, facts, devices, origin: Origin::Overlaid(Box::new(overlay)) })
}

fn check(overlay: &Overlay) -> Result<(), EnvironmentError> {
    let site = overlay.view.site();
    let there = overlay.changed.iter().filter(|path| site.join(path).exists());
    // torch itself too, as another one on the path would run in its place, unnoticed.
    let all = there.map(String::as_str).chain(["torch/__init__.py"]);
    let modules = all.filter_map(|path| Some((module(path)?, site.join(path)))).collect();
    let list = overlay.view.note();
    let text = serde_json::to_string(&Modules { modules }).map_err(std::io::Error::from);
    text.and_then(|text| write_whole(&list, &text)).map_err(|source| EnvironmentError::Io {
        action: "write",
        path: list.clone(),
        source,
    })?;
    match check::modules(&overlay.base, &overlay.view.python(), &list)? {
        None => Ok(()),
        Some((module, traceback)) => Err(EnvironmentError::DoesNotImport {
            commit: overlay.commit.clone(),
            torch: overlay.base.facts.torch.clone(),
            module,
            traceback: as_in_checkout(&traceback, site),
        }),
    }
}

/// The name under which a file is imported. `__main__.py` is not imported: it would run.
fn module(path: &str) -> Option<String> {
    let name = path.strip_suffix(".py")?;
    let name = name.strip_suffix("/__init__").unwrap_or(name);
    (!name.ends_with("__main__")).then(|| name.replace('/', "."))
}

/// A traceback with paths as in a checkout: the view's own folder is gone when somebody reads it.
fn as_in_checkout(traceback: &str, site: &Path) -> String {
    traceback.replace(&format!("{}/", site.display()), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_the_name_of_its_module() {
        assert_eq!(module("torch/utils/checkpoint.py").as_deref(), Some("torch.utils.checkpoint"));
        assert_eq!(module("torch/utils/__init__.py").as_deref(), Some("torch.utils"));
        assert_eq!(module("torch/__init__.py").as_deref(), Some("torch"));
        assert_eq!(module("torch/distributed/run/__main__.py"), None);
    }

    #[test]
    fn a_traceback_names_files_as_a_checkout_does() {
        let text = "File \"/c/overlays/1-0/site/torch/utils/checkpoint.py\", line 3";
        assert_eq!(
            as_in_checkout(text, Path::new("/c/overlays/1-0/site")),
            "File \"torch/utils/checkpoint.py\", line 3"
        );
    }
}
