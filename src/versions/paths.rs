//! Which files of a checkout are laid over an installed torch.

use super::commits_error::CommitsError;
use crate::environment::PACKAGES;

/// The paths as git knows them: relative to the root of the checkout, each once.
///
/// # Errors
/// There is none, or one is in no package that is installed from there.
pub fn checked(given: &[String]) -> Result<Vec<String>, CommitsError> {
    let mut all = given.iter().map(|path| one(path)).collect::<Result<Vec<_>, _>>()?;
    all.sort();
    all.dedup();
    if all.is_empty() {
        return Err(CommitsError::NoPaths);
    }
    Ok(all)
}

fn one(given: &str) -> Result<String, CommitsError> {
    let bad = |problem| CommitsError::BadPath { path: given.to_owned(), problem };
    if given.starts_with('/') {
        return Err(bad("it is absolute"));
    }
    let parts: Vec<&str> = given.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") || given.contains(['\0', '\n']) {
        return Err(bad("it is no plain path"));
    }
    match parts.first() {
        None => Err(bad("it is empty")),
        Some(first) if PACKAGES.contains(first) => Ok(parts.join("/")),
        Some(_) => Err(bad("it is below none of torch/, torchgen/ and functorch/")),
    }
}

/// Whether a path names a file; every other path is a folder.
pub fn is_file(path: &str) -> bool {
    path.ends_with(".py")
}

/// Whether a file is one of the path's.
pub fn covers(path: &str, file: &str) -> bool {
    file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(given: &[&str]) -> Result<Vec<String>, CommitsError> {
        checked(&given.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn paths_are_plain_and_each_is_there_once() {
        let found = paths(&["./torch/utils/", "torch/_compile.py", "torch//utils"]).unwrap();
        assert_eq!(found, ["torch/_compile.py", "torch/utils"]);
    }

    #[test]
    fn paths_that_are_installed_nowhere_are_refused() {
        for bad in ["utils/checkpoint.py", "/torch/a.py", "torch/../setup.py", "", ".", "torchy/a.py", "-x"] {
            assert!(matches!(paths(&[bad]), Err(CommitsError::BadPath { .. })), "{bad}");
        }
        assert!(matches!(paths(&[]), Err(CommitsError::NoPaths)));
    }

    #[test]
    fn a_folder_covers_what_is_in_it_and_no_neighbour() {
        assert!(covers("torch/utils", "torch/utils/a/b.py"));
        assert!(covers("torch/utils/a.py", "torch/utils/a.py"));
        assert!(!covers("torch/utils", "torch/utils_of_mine.py"));
    }
}
