//! The shipped cases, and finding a case by its name or path.

use std::path::Path;

use include_dir::{Dir, include_dir};

use super::{
    Case, Origin, When,
    error::{CaseError, Problem},
    load, suggest,
};

static SHIPPED: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/cases");

/// The case that runs when none is named.
pub const HEADLINE: &str = "sac-disable-recompute";

/// A set of cases that can be looked up by name.
#[derive(Debug, Clone)]
pub struct Catalog {
    cases: Vec<Case>,
}

impl Catalog {
    /// The cases inside the binary, in the order of their names.
    ///
    /// # Errors
    ///
    /// Only in a build whose own case files are bad; a test keeps such a build from existing.
    pub fn shipped() -> Result<Self, CaseError> {
        let mut files: Vec<_> = SHIPPED
            .files()
            .filter(|file| file.path().extension().is_some_and(|ending| ending == "yaml"))
            .collect();
        files.sort_by_key(|file| file.path());
        let cases = files.into_iter().map(|file| {
            let shown = format!("cases/{}", file.path().display());
            let stem = file.path().file_stem().map(|stem| stem.to_string_lossy().into_owned());
            load::parse(&shown, file.contents(), stem, Origin::Shipped, shipped_program)
        });
        Ok(Self { cases: cases.collect::<Result<_, _>>()? })
    }

    /// All cases.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// The cases that `run --all` runs, with those that are `slow` where they are asked for.
    pub fn all(&self, slow: bool) -> impl Iterator<Item = &Case> {
        self.cases.iter().filter(move |case| match case.spec.when {
            When::Always => true,
            When::Slow => slow,
            When::Named => false,
        })
    }

    /// The case of that name.
    ///
    /// # Errors
    ///
    /// There is none; the error suggests the closest name.
    pub fn get(&self, name: &str) -> Result<&Case, CaseError> {
        self.cases.iter().find(|case| case.name() == name).ok_or_else(|| {
            let names: Vec<&str> = self.cases.iter().map(Case::name).collect();
            let problem = Problem::new("there is no case of that name");
            CaseError::new(name, None, vec![problem.hint(suggest::choices(name, &names))])
        })
    }

    /// The case that a command-line argument means: a path if it contains a separator or ends in
    /// `.yaml` or `.yml`, else a name.
    ///
    /// # Errors
    ///
    /// Unknown names, and whatever [`Case::load`] finds.
    pub fn find(&self, argument: &str) -> Result<Case, CaseError> {
        let is_path = argument.contains(std::path::is_separator)
            || argument.ends_with(".yaml")
            || argument.ends_with(".yml");
        if is_path { Case::load(Path::new(argument)) } else { self.get(argument).cloned() }
    }

    /// The cases that the arguments mean, in their order. A case that is named twice runs once.
    ///
    /// # Errors
    ///
    /// What [`Catalog::find`] finds, and two different files that hold cases of one name: results are
    /// kept by name.
    pub fn select<S: AsRef<str>>(&self, arguments: &[S]) -> Result<Vec<Case>, CaseError> {
        let mut chosen: Vec<(&str, Case)> = Vec::new();
        for argument in arguments {
            let argument = argument.as_ref();
            let case = self.find(argument)?;
            match chosen.iter().find(|(_, other)| other.name() == case.name()) {
                None => chosen.push((argument, case)),
                Some((_, other)) if other.origin == case.origin => {}
                Some((before, _)) => {
                    let problem = Problem::new(format!("the name `{}` is taken by `{before}`", case.name()))
                        .hint("results are kept by name: rename one of the two, or run them one after the other")
                        .at(load::key(&case.source, "name"));
                    return Err(CaseError::new(argument, Some(&case.source), vec![problem]));
                }
            }
        }
        Ok(chosen.into_iter().map(|(_, case)| case).collect())
    }
}

fn shipped_program(name: &str) -> Result<String, Problem> {
    SHIPPED
        .get_file(name)
        .and_then(|file| file.contents_utf8())
        .map(str::to_owned)
        .ok_or_else(|| Problem::new(format!("the program `{name}` is not among the shipped files")))
}

#[cfg(test)]
mod tests {
    use torchleak_protocol::{Device, Program};

    use super::*;
    use crate::case::Verdict;

    fn bytes(name: &str, device: Device) -> Option<(u64, u64)> {
        let shipped = Catalog::shipped().unwrap();
        let held = shipped.get(name).unwrap().prediction(device)?;
        Some((held.device_bytes, held.host_bytes))
    }

    #[test]
    fn predictions_are_exact() {
        let (activations, rng) = (2 * 2 * 128 * 512 * 4, 2 * 5056);
        assert_eq!(bytes(HEADLINE, Device::Cpu), Some((activations, rng)));
        assert_eq!(bytes(HEADLINE, Device::Cpu).map(|(device, host)| device + host), Some(1_058_688));
        assert_eq!(bytes(HEADLINE, Device::Cuda), Some((activations, rng + 2 * 16)));
        assert_eq!(bytes("full-ac-disable", Device::Cpu), Some((0, rng)));
        assert_eq!(bytes("sac-stock", Device::Cpu), None);
    }

    #[test]
    fn the_original_report_is_predicted_to_the_byte_on_both_devices() {
        assert_eq!(bytes("llama3-8b-2gib", Device::Cuda), Some((2_147_483_648, 32 * (5056 + 16))));
        assert_eq!(bytes("llama3-8b-2gib", Device::Cpu), Some((2_147_483_648, 32 * 5056)));
    }

    #[test]
    fn a_device_replaces_whole_sections() {
        let shipped = Catalog::shipped().unwrap();
        let case = shipped.get("llama3-8b-2gib").unwrap();
        let scratch = std::env::temp_dir();
        let block = |device| match case.resolved(device).program(&scratch).unwrap() {
            Program::Llama3(block) => block,
            other => panic!("{other:?}"),
        };
        let (cpu, cuda) = (block(Device::Cpu), block(Device::Cuda));
        assert_eq!((cpu.model.head_dim, cpu.model.kv_heads, cpu.input.seq), (16, 1, 256));
        assert_eq!((cuda.model.head_dim, cuda.model.kv_heads, cuda.input.seq), (128, 8, 8192));
        assert_eq!(case.resolved(Device::Cpu).threads, 2);
        assert_eq!(case.resolved(Device::Cuda).threads, 1);
    }

    #[test]
    fn the_first_expectation_that_matches_wins() {
        let shipped = Catalog::shipped().unwrap();
        let case = shipped.get(HEADLINE).unwrap().resolved(Device::Cpu);
        let python = "3.12.3".parse().unwrap();
        let expected = |torch: &str| case.expected(&torch.parse().unwrap(), &python);
        assert_eq!(expected("2.8.0.dev20250527+cu128"), Some(Verdict::Reproduced));
        assert_eq!(expected("2.15.0"), Some(Verdict::Reproduced));
        assert_eq!(expected("2.5.1"), None);
    }

    #[test]
    fn all_but_the_large_case_run_without_being_named_and_slow_ones_if_asked_for() {
        let shipped = Catalog::shipped().unwrap();
        let names = |slow| -> Vec<&str> { shipped.all(slow).map(Case::name).collect() };
        let (quick, with_slow) = (names(false), names(true));
        assert_eq!(with_slow.len(), shipped.cases().len() - 1);
        assert!(!with_slow.contains(&"llama3-8b-2gib"));
        for (name, is_quick) in [(HEADLINE, true), ("compile-graph-break", false)] {
            assert_eq!(quick.contains(&name), is_quick, "{name}");
            assert!(with_slow.contains(&name), "{name}");
        }
    }

    #[test]
    fn a_dash_less_slip_finds_its_case() {
        let error = Catalog::shipped().unwrap().find("sac-disable-recompte").unwrap_err();
        assert!(error.problems()[0].hint.as_ref().unwrap().contains("did you mean `sac-disable-recompute`?"));
    }
}
