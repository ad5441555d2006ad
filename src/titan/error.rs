//! Why a log cannot be read.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum TitanError {
    #[error("{} cannot be read", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{} is a folder", path.display())]
    IsFolder { path: PathBuf },
    #[error("{} is compressed with {format}", path.display())]
    Compressed { path: PathBuf, format: &'static str },
    #[error("{} is compressed, and a running job does not write such a log", path.display())]
    CompressedFollowed { path: PathBuf },
}

impl TitanError {
    /// What to try.
    pub fn hint(&self) -> String {
        match self {
            Self::Unreadable { .. } => {
                "check the path and its permissions; `-` reads standard input".to_owned()
            }
            Self::IsFolder { path } => format!(
                "name a file in it, or read all of them: cat {}/*/*/stderr.log | torchleak titan-log -",
                path.display()
            ),
            Self::Compressed { format, path } => {
                format!("unpack it into a pipe: {format} -dc {} | torchleak titan-log -", path.display())
            }
            Self::CompressedFollowed { .. } => "leave out --follow".to_owned(),
        }
    }
}
