//! What is wanted of a watched run.

use std::ffi::OsString;
use std::path::PathBuf;

use torchleak_protocol::{Boundary, WatchMode};

/// Everything that the command line says.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    pub command: Vec<OsString>,
    pub mode: WatchMode,
    pub boundary: Boundary,
    /// Steps at the beginning that are not judged by.
    pub warmup: u32,
    /// Steps between two collections.
    pub every: u32,
    /// The script is stopped after so many.
    pub steps: Option<u32>,
    /// The ranks that report cycles.
    pub ranks: Option<Vec<u32>>,
    /// Whether workers of a DataLoader are watched.
    pub workers: bool,
    /// Whether reports may show values of the program.
    pub show_values: bool,
    /// Growth of at most so many bytes per step is flat.
    pub tolerance: u64,
    /// The folder for run folders.
    pub runs: PathBuf,
    /// The folder for the unpacked worker.
    pub worker: PathBuf,
}

/// Why a text names no end of a step.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoundaryError {
    #[error("it is none of optimizer:INDEX, every:STEPS, call:MODULE:FUNCTION and time:SECONDS")]
    Unknown,
    #[error("`{0}` is no whole number{1}")]
    NotANumber(String, &'static str),
    #[error("`{0}` is no number of seconds above 0")]
    NotSeconds(String),
    #[error("a function is named MODULE:FUNCTION, such as pkg.model:Model.generate")]
    NotAFunction,
    #[error(
        "functions of the script itself are made while it runs, so they cannot be waited for; move it to a module"
    )]
    Main,
}

/// Reads what ends a step.
///
/// # Errors
/// [`BoundaryError`] says what is wrong with the text.
pub fn parse_boundary(text: &str) -> Result<Boundary, BoundaryError> {
    let (kind, rest) = text.split_once(':').ok_or(BoundaryError::Unknown)?;
    match kind {
        "optimizer" => rest
            .parse()
            .map(|index| Boundary::Optimizer { index })
            .map_err(|_| BoundaryError::NotANumber(rest.to_owned(), "")),
        "every" => match rest.parse() {
            Ok(steps) if steps > 0 => Ok(Boundary::Every { steps }),
            _ => Err(BoundaryError::NotANumber(rest.to_owned(), " above 0")),
        },
        "time" => match rest.parse::<f64>() {
            Ok(seconds) if seconds.is_finite() && seconds > 0.0 => Ok(Boundary::Time { seconds }),
            _ => Err(BoundaryError::NotSeconds(rest.to_owned())),
        },
        "call" => {
            let (module, function) = rest.split_once(':').ok_or(BoundaryError::NotAFunction)?;
            let is_name = |name: &str| !name.is_empty() && name.split('.').all(|part| !part.is_empty());
            if !is_name(module) || !is_name(function) {
                return Err(BoundaryError::NotAFunction);
            }
            if module == "__main__" {
                return Err(BoundaryError::Main);
            }
            Ok(Boundary::Call { module: module.to_owned(), function: function.to_owned() })
        }
        _ => Err(BoundaryError::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("optimizer:1", Boundary::Optimizer { index: 1 })]
    #[case("every:4", Boundary::Every { steps: 4 })]
    #[case("time:0.5", Boundary::Time { seconds: 0.5 })]
    #[case("call:a.b:C.d", Boundary::Call { module: "a.b".to_owned(), function: "C.d".to_owned() })]
    fn ends_of_steps_are_read(#[case] text: &str, #[case] boundary: Boundary) {
        assert_eq!(parse_boundary(text), Ok(boundary));
    }

    #[rstest]
    #[case("optimizer")]
    #[case("optimizer:-1")]
    #[case("every:0")]
    #[case("time:0")]
    #[case("time:nan")]
    #[case("call:module")]
    #[case("call:a.:f")]
    #[case("call:__main__:step")]
    #[case("step:1")]
    #[case("")]
    fn what_names_no_end_of_a_step_is_refused(#[case] text: &str) {
        assert!(parse_boundary(text).is_err());
    }
}
