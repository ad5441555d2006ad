//! Files that are written at the end, looked at before anything begins.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

/// Makes the folder of a file and sees whether the file can be written, so that hours of work do not end in an error
/// that a typing mistake made. What is in the file stays.
///
/// # Errors
/// The folder cannot be made, or the file cannot be written.
pub fn check(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let was_there = path.exists();
    OpenOptions::new().append(true).create(true).open(path)?;
    // A reader that waits for the file would take an empty one for the result.
    if was_there { Ok(()) } else { fs::remove_file(path) }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_folder_is_made_and_a_file_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/junit.xml");
        check(&path).unwrap();
        assert!(path.parent().unwrap().is_dir() && !path.exists());
        std::fs::write(&path, "kept").unwrap();
        check(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept");
    }

    #[test]
    fn a_folder_is_no_file_and_a_file_is_no_folder() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check(folder.path()).is_err());
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(check(&folder.path().join("file/junit.xml")).is_err());
    }
}
