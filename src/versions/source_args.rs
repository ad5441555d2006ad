//! The options that say where candidates come from.

use std::path::PathBuf;

use clap::Args;

use super::candidate::Source;
use super::dates::DateRange;
use super::nightlies::Nightlies;
use super::source_error::SourceError;
use super::wheels::Wheels;
use crate::cache::Cache;
use crate::environment::{Managed, Progress, python_minor};
use crate::index::IndexUrl;
use crate::process::without_password;

/// Where nightlies are.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Nightlies")]
pub struct IndexArgs {
    /// The package index of nightlies, a URL or a folder [default: PyTorch's own for --torch-backend, or for the CPU:
    /// https://download.pytorch.org/whl/nightly/cpu/]
    #[arg(long, value_name = "URL")]
    pub index: Option<String>,
}

impl IndexArgs {
    /// The nightlies of these dates.
    ///
    /// # Errors
    /// The index cannot be read, or it has nothing that fits.
    pub fn nightlies(
        &self,
        range: DateRange,
        template: &Managed,
        cache: &Cache,
        progress: &dyn Progress,
    ) -> Result<Nightlies, SourceError> {
        let index = match &self.index {
            Some(given) => IndexUrl::parse(given)?,
            None => IndexUrl::pytorch_nightlies(template.torch_backend.as_deref())?,
        };
        Nightlies::new(&index, range, python_minor(template)?, template, cache, progress)
    }
}

/// Where candidates come from that are no releases.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Candidates")]
pub struct SourceArgs {
    /// Nightlies instead of releases; with dates those of FIRST..LAST, FIRST.., ..LAST or one date, such as 2025-05-27
    #[arg(
        long,
        value_name = "DATES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "..",
        conflicts_with_all = ["wheelhouse", "wheel"]
    )]
    pub nightly: Option<DateRange>,
    #[command(flatten)]
    pub index: IndexArgs,
    /// The wheels of torch in a folder, by version
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["wheel", "index"])]
    pub wheelhouse: Option<PathBuf>,
    /// A wheel of torch; repeat it for each, the order is that of their versions
    #[arg(long, value_name = "URL|PATH", conflicts_with = "index")]
    pub wheel: Vec<String>,
}

impl SourceArgs {
    /// The source that the options name; none without any of them, which means releases. An index alone means all of
    /// its nightlies.
    ///
    /// # Errors
    /// There is nothing that fits.
    pub fn source(
        &self,
        template: &Managed,
        cache: &Cache,
        progress: &dyn Progress,
    ) -> Result<Option<Box<dyn Source>>, SourceError> {
        if let Some(folder) = &self.wheelhouse {
            return Ok(Some(Box::new(Wheels::in_folder(folder, python_minor(template)?, template, cache)?)));
        }
        if !self.wheel.is_empty() {
            let minor = python_minor(template)?;
            return Ok(Some(Box::new(Wheels::given(&self.wheel, minor, template, cache, progress)?)));
        }
        let range = self.nightly.or(self.index.index.is_some().then(DateRange::default));
        let Some(range) = range else { return Ok(None) };
        Ok(Some(Box::new(self.index.nightlies(range, template, cache, progress)?)))
    }

    /// What the candidates are, for a record of what was searched. Passwords are no part of it.
    pub fn described(&self) -> String {
        let wheels: Vec<String> = self.wheel.iter().map(|wheel| without_password(wheel)).collect();
        match (&self.wheelhouse, wheels.is_empty()) {
            (Some(folder), _) => format!("wheels in {}", folder.display()),
            (None, false) => format!("wheels {}", wheels.join(", ")),
            (None, true) => {
                let index =
                    self.index.index.as_deref().map_or("PyTorch's own index".to_owned(), without_password);
                format!("nightlies of {index}, {}", self.nightly.unwrap_or_default())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use rstest::rstest;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        case: Option<String>,
        #[command(flatten)]
        sources: SourceArgs,
    }

    fn parse(arguments: &[&str]) -> Result<Command, clap::Error> {
        Command::try_parse_from(["bisect"].iter().chain(arguments))
    }

    #[rstest]
    #[case(&["--nightly", "case"], Some(".."))]
    #[case(&["case", "--nightly=2025-05-01..", "--index", "https://example.org"], Some("2025-05-01.."))]
    #[case(&["case"], None)]
    fn dates_are_never_taken_for_a_case(#[case] arguments: &[&str], #[case] range: Option<&str>) {
        let found = parse(arguments).unwrap();
        assert_eq!(found.case.as_deref(), Some("case"));
        assert_eq!(found.sources.nightly.map(|range| range.to_string()).as_deref(), range);
    }

    #[rstest]
    #[case(&["--nightly=yesterday"], "yesterday")]
    #[case(&["--nightly", "--wheelhouse", "here"], "--wheelhouse")]
    #[case(&["--wheelhouse", "here", "--wheel", "there"], "--wheel")]
    #[case(&["--wheel", "there", "--index", "https://example.org"], "--index")]
    fn what_does_not_go_together_is_bad_usage(#[case] arguments: &[&str], #[case] culprit: &str) {
        let error = parse(arguments).unwrap_err().to_string();
        assert!(error.contains(culprit), "{error}");
    }
}
