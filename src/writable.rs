//! Files that are written at the end, looked at before anything begins.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

/// Makes the folder of a file and sees whether the file can be written, so that hours of work do not end in an error
/// that a typing mistake made. What is there stays as it is, and no file is made: who waits for it would take an empty
/// one for the result.
///
/// # Errors
/// The folder cannot be made, or the file cannot be written.
pub fn check(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => OpenOptions::new().append(true).open(path).map(drop),
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        // To open a pipe would end it for its reader.
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new("."));
            fs::create_dir_all(folder)?;
            tempfile::tempfile_in(folder).map(drop)
        }
        Err(error) => Err(error),
    }
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
    fn a_link_and_a_pipe_stay_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (link, pipe) = (folder.path().join("link"), folder.path().join("pipe"));
        std::os::unix::fs::symlink("target", &link).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        check(&link).unwrap();
        check(&pipe).unwrap();
        assert!(link.is_symlink() && std::fs::read_dir(folder.path()).unwrap().count() == 2);
    }

    #[test]
    fn a_folder_is_no_file_and_a_file_is_no_folder() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check(folder.path()).is_err());
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(check(&folder.path().join("file/junit.xml")).is_err());
    }
}
