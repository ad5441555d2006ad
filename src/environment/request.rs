//! Which environment is wanted: the command line and two variables, validated, and the name of what torchleak makes.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use pep440_rs::Version;
use sha2::{Digest, Sha256};

use super::error::EnvironmentError;
use super::torch_version::parse_torch;
use super::torch_wheel::TorchWheel;
use crate::index::without_credentials;

/// The torch that is used when none is named.
pub const DEFAULT_TORCH: &str = "2.13.0";
/// The Python minor versions (of 3) that torchleak picks from when none is named.
pub const DEFAULT_PYTHON_MINORS: std::ops::RangeInclusive<u32> = 10..=13;

const PYTHON_VARIABLE: &str = "TORCHLEAK_PYTHON";
const TORCH_VARIABLE: &str = "TORCHLEAK_TORCH";

/// Which environment to use.
// The two variables are not clap's `env`, because clap would let `TORCHLEAK_TORCH` conflict with `--python`; an option
// on the command line beats both variables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Environment")]
pub struct EnvironmentArgs {
    /// An interpreter (or virtual environment) that has torch; it is used as it is [env: TORCHLEAK_PYTHON]
    #[arg(long, value_name = "PATH", conflicts_with_all = [
        "torch", "torch_wheel", "python_version", "index_url", "extra_index_url", "find_links", "torch_backend", "with"
    ])]
    pub python: Option<PathBuf>,
    /// The torch to find or install into an environment of torchleak's own [env: TORCHLEAK_TORCH] [default: 2.13.0]
    #[arg(long, value_name = "VERSION")]
    pub torch: Option<String>,
    /// The wheel of torch to install, by URL or path; what it needs comes from the index
    #[arg(long, value_name = "URL|PATH", conflicts_with = "torch")]
    pub torch_wheel: Option<String>,
    /// The Python of that environment, such as 3.12 [default: the python3 on PATH if it is 3.10 to 3.13]
    #[arg(long, value_name = "X.Y")]
    pub python_version: Option<String>,
    /// The package index to install from, instead of the default one
    #[arg(long, value_name = "URL")]
    pub index_url: Option<String>,
    /// A further package index; it is looked at first
    #[arg(long, value_name = "URL")]
    pub extra_index_url: Vec<String>,
    /// A folder of wheels to install from as well
    #[arg(long, value_name = "FOLDER")]
    pub find_links: Vec<PathBuf>,
    /// uv's torch backend, such as cpu, cu128 or auto
    #[arg(long, value_name = "BACKEND")]
    pub torch_backend: Option<String>,
    /// A further package to install, such as transformers or numpy==2.0.0
    #[arg(long, value_name = "PACKAGE")]
    pub with: Vec<String>,
}

/// What is wanted, valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// This interpreter, untouched.
    Interpreter(PathBuf),
    /// An environment that torchleak finds in its cache or makes there.
    Managed(Managed),
}

/// An environment that torchleak makes.
#[derive(Clone, PartialEq, Eq)]
pub struct Managed {
    /// The torch to install.
    pub torch: Version,
    /// The wheel it is in, if it does not come from an index; its version is that of `torch`.
    pub wheel: Option<Box<TorchWheel>>,
    /// The Python minor version (of 3), if one was named.
    pub python_minor: Option<u32>,
    /// The index instead of the default one.
    pub index_url: Option<String>,
    /// Further indexes, in order.
    pub extra_index_urls: Vec<String>,
    /// Folders of wheels to install from as well.
    pub find_links: Vec<PathBuf>,
    /// uv's torch backend.
    pub torch_backend: Option<String>,
    /// Further packages, sorted, each once.
    pub with: Vec<String>,
}

impl Request {
    /// Validates the options and adds what the variables say.
    ///
    /// # Errors
    /// A bad value, or settings that exclude each other.
    pub fn new(
        args: &EnvironmentArgs,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, EnvironmentError> {
        let variable = |name| variable(name).filter(|value| !value.is_empty());
        let describes = args.torch.is_some()
            || args.torch_wheel.is_some()
            || !args.find_links.is_empty()
            || args.python_version.is_some()
            || args.index_url.is_some()
            || args.torch_backend.is_some()
            || !args.extra_index_url.is_empty()
            || !args.with.is_empty();
        if let Some(path) = &args.python {
            if describes {
                return Err(EnvironmentError::Conflict("--python", "the options of an environment to make"));
            }
            return Ok(Self::Interpreter(path.clone()));
        }
        let python = variable(PYTHON_VARIABLE).filter(|_| !describes);
        let wheel = args.torch_wheel.as_deref().map(TorchWheel::parse).transpose()?;
        let torch = variable(TORCH_VARIABLE).filter(|_| args.torch.is_none() && wheel.is_none());
        let (option, torch) = match (&args.torch, python, torch) {
            (_, Some(_), Some(_)) => return Err(EnvironmentError::Conflict(PYTHON_VARIABLE, TORCH_VARIABLE)),
            (_, Some(path), None) => return Ok(Self::Interpreter(path.into())),
            (Some(given), None, _) => ("--torch", given.clone()),
            (None, None, Some(given)) => (TORCH_VARIABLE, given.to_string_lossy().into_owned()),
            (None, None, None) => ("--torch", DEFAULT_TORCH.to_owned()),
        };
        Ok(Self::Managed(Managed {
            torch: match &wheel {
                Some(wheel) => wheel.version().clone(),
                None => torch_version(option, &torch)?,
            },
            wheel: wheel.map(Box::new),
            python_minor: args.python_version.as_deref().map(python_minor).transpose()?,
            index_url: args.index_url.as_deref().map(|url| index("--index-url", url)).transpose()?,
            extra_index_urls: args
                .extra_index_url
                .iter()
                .map(|url| index("--extra-index-url", url))
                .collect::<Result<_, _>>()?,
            find_links: args.find_links.iter().map(|given| folder(given)).collect::<Result<_, _>>()?,
            torch_backend: args.torch_backend.as_deref().map(backend).transpose()?,
            with: packages(&args.with)?,
        }))
    }
}

impl Managed {
    /// What every environment of a command has in common that names its versions of torch elsewhere. The variables
    /// that choose one environment have no say in that.
    ///
    /// # Errors
    /// A bad value, or an option that means one environment: `--python`, `--torch` or `--torch-wheel`.
    pub fn template(args: &EnvironmentArgs) -> Result<Self, EnvironmentError> {
        if args.torch.is_some() || args.torch_wheel.is_some() || args.python.is_some() {
            return Err(EnvironmentError::OneEnvironment);
        }
        match Request::new(args, |_| None)? {
            Request::Managed(template) => Ok(template),
            Request::Interpreter(_) => Err(EnvironmentError::OneEnvironment),
        }
    }

    /// The name of the environment's folder: readable, and different for every difference in what is asked for.
    pub fn key(&self, python_minor: u32) -> String {
        let extra: Vec<String> = self.extra_index_urls.iter().map(|url| public(url)).collect();
        let mut asked = serde_json::json!({
            "layout": 1,
            "torch": self.torch.to_string(),
            "python_minor": python_minor,
            "index_url": self.index_url.as_deref().map(public),
            "extra_index_urls": extra,
            "torch_backend": self.torch_backend,
            "with": self.with,
            // A cache in a home folder may be shared by machines of several kinds.
            "machine": [std::env::consts::OS, std::env::consts::ARCH],
        });
        // What is not asked for is left out, so that environments of older releases keep their names.
        if let Some(wheel) = &self.wheel {
            asked["wheel"] = wheel.identity().into();
        }
        if !self.find_links.is_empty() {
            let folders = self.find_links.iter().map(|folder| folder.display().to_string());
            asked["find_links"] = folders.collect::<Vec<_>>().into();
        }
        let hash = Sha256::digest(asked.to_string().as_bytes());
        let hash: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        format!("torch-{}-py3.{python_minor}-{hash}", self.torch)
    }

    /// What uv is asked to install.
    pub fn requirements(&self) -> Vec<String> {
        // torch before 2.3 was built against numpy 1 and says so only when it is used.
        let numpy = if self.torch < Version::new([2, 3]) { "numpy<2" } else { "numpy" };
        let torch = match &self.wheel {
            Some(wheel) => wheel.requirement(),
            None => format!("torch=={}", self.torch),
        };
        let mut all = vec![torch, numpy.to_owned()];
        all.extend(self.with.iter().cloned());
        all
    }

    /// Tells uv where to look.
    pub(super) fn add_indexes(&self, uv: &mut Command) {
        uv.args(self.index_url.iter().flat_map(|url| ["--index-url", url]));
        uv.args(self.extra_index_urls.iter().flat_map(|url| ["--extra-index-url", url]));
        for folder in &self.find_links {
            uv.arg("--find-links").arg(folder);
        }
        uv.args(self.torch_backend.iter().flat_map(|backend| ["--torch-backend", backend]));
    }

    /// An environment of another torch that is else the same.
    pub fn with_torch(&self, torch: Version) -> Self {
        Self { torch, wheel: None, ..self.clone() }
    }

    /// The options of the command line that ask for the same, without credentials: where an index needs any, they
    /// come from the netrc or are to be put into its URL again.
    pub fn options(&self) -> Vec<String> {
        let mut options = match &self.wheel {
            Some(wheel) => vec!["--torch-wheel".to_owned(), wheel.to_string()],
            None => vec!["--torch".to_owned(), self.torch.to_string()],
        };
        let mut add = |name: &str, value: String| options.extend([name.to_owned(), value]);
        self.python_minor.iter().for_each(|minor| add("--python-version", format!("3.{minor}")));
        self.index_url.iter().for_each(|url| add("--index-url", public(url)));
        self.extra_index_urls.iter().for_each(|url| add("--extra-index-url", public(url)));
        self.find_links.iter().for_each(|folder| add("--find-links", folder.display().to_string()));
        self.torch_backend.iter().for_each(|backend| add("--torch-backend", backend.clone()));
        self.with.iter().for_each(|package| add("--with", package.clone()));
        options
    }
}

/// As options, because indexes may hold passwords.
impl fmt::Debug for Managed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Managed").field(&self.options()).finish()
    }
}

fn bad(
    option: &'static str,
    given: &str,
    problem: impl Into<String>,
    hint: &'static str,
) -> EnvironmentError {
    EnvironmentError::BadOption { option, given: given.to_owned(), problem: problem.into(), hint }
}

fn torch_version(option: &'static str, given: &str) -> Result<Version, EnvironmentError> {
    const HINT: &str = "write it as 2.13.0, 2.8.0+cu128 or 2.8.0.dev20250527";
    let version =
        parse_torch(given).map_err(|error| bad(option, given, format!("is not a version: {error}"), HINT))?;
    // The name of a folder has 255 bytes; real versions have 30.
    if version.to_string().len() > 100 {
        return Err(bad(option, given, "is too long to be a version", HINT));
    }
    Ok(version)
}

fn python_minor(given: &str) -> Result<u32, EnvironmentError> {
    const HINT: &str = "write it as 3.12; torchleak needs 3.10 or newer";
    let minor = given.trim().strip_prefix("3.").and_then(|minor| minor.parse::<u32>().ok());
    match minor {
        Some(minor) if (10..100).contains(&minor) => Ok(minor),
        Some(_) => Err(bad("--python-version", given, "is too old", HINT)),
        None => Err(bad("--python-version", given, "is not a Python version X.Y", HINT)),
    }
}

fn index(option: &'static str, given: &str) -> Result<String, EnvironmentError> {
    let given = given.trim();
    if given.is_empty() || given.starts_with('-') || given.contains(char::is_whitespace) {
        // The value may hold a password, so it is not repeated.
        return Err(bad(
            option,
            "the value",
            "is not an index",
            "write an https:// URL or the path of a folder",
        ));
    }
    Ok(given.to_owned())
}

/// An index without credentials: they are no part of what it holds, and must not be shown.
fn public(index: &str) -> String {
    match url::Url::parse(index) {
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            without_credentials(&url).to_string()
        }
        // As it was written, because a URL that is written in another way would name another environment.
        _ => index.to_owned(),
    }
}

/// Made absolute, because uv runs in a folder of its own.
fn folder(given: &Path) -> Result<PathBuf, EnvironmentError> {
    let shown = given.display().to_string();
    let bad = |problem: String| bad("--find-links", &shown, problem, "give the path of a folder of wheels");
    if !given.is_dir() {
        return Err(bad("is no folder".to_owned()));
    }
    std::path::absolute(given).map_err(|error| bad(format!("cannot be found: {error}")))
}

fn backend(given: &str) -> Result<String, EnvironmentError> {
    if given.is_empty() || !given.chars().all(|c| c.is_ascii_alphanumeric() || c == '.') {
        return Err(bad(
            "--torch-backend",
            given,
            "is not a backend",
            "write cpu, auto or, for example, cu128",
        ));
    }
    Ok(given.to_owned())
}

fn packages(given: &[String]) -> Result<Vec<String>, EnvironmentError> {
    let mut all = Vec::new();
    for package in given {
        let package = package.trim();
        // A leading dash would be an option of uv.
        if !package.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return Err(bad("--with", package, "is not a package", "write a name such as transformers"));
        }
        all.push(package.to_owned());
    }
    all.sort();
    all.dedup();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(args: &EnvironmentArgs, variables: &[(&str, &str)]) -> Result<Request, EnvironmentError> {
        let found = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        Request::new(args, found)
    }

    fn managed(args: &EnvironmentArgs) -> Managed {
        match request(args, &[]).unwrap() {
            Request::Managed(managed) => managed,
            Request::Interpreter(path) => panic!("{}", path.display()),
        }
    }

    fn torch(version: &str) -> EnvironmentArgs {
        EnvironmentArgs { torch: Some(version.into()), ..Default::default() }
    }

    #[test]
    fn without_any_setting_the_default_torch_is_wanted() {
        assert_eq!(managed(&EnvironmentArgs::default()).torch.to_string(), DEFAULT_TORCH);
    }

    #[test]
    fn an_option_beats_the_variables() {
        let variables = [("TORCHLEAK_PYTHON", "/p"), ("TORCHLEAK_TORCH", "2.6.0")];
        let python = EnvironmentArgs { python: Some("/mine".into()), ..Default::default() };
        assert_eq!(request(&python, &variables).unwrap(), Request::Interpreter("/mine".into()));
        assert_eq!(request(&torch("2.8.0"), &variables).unwrap(), Request::Managed(managed(&torch("2.8.0"))));
        let with = EnvironmentArgs { with: vec!["transformers".into()], ..Default::default() };
        let Request::Managed(found) = request(&with, &variables).unwrap() else { panic!() };
        assert_eq!(found.torch.to_string(), "2.6.0");
    }

    #[test]
    fn both_variables_are_bad_usage_and_empty_ones_are_unset() {
        let none = EnvironmentArgs::default();
        let both = request(&none, &[("TORCHLEAK_PYTHON", "/p"), ("TORCHLEAK_TORCH", "2.6.0")]).unwrap_err();
        assert!(both.is_usage());
        let empty = request(&none, &[("TORCHLEAK_PYTHON", ""), ("TORCHLEAK_TORCH", "2.6.0")]).unwrap();
        assert_eq!(empty, Request::Managed(managed(&torch("2.6.0"))));
    }

    #[test]
    fn equal_wishes_have_one_key_and_different_ones_have_others() {
        let key = |args: &EnvironmentArgs| managed(args).key(11);
        assert!(key(&torch("2.13.0")).starts_with("torch-2.13.0-py3.11-"));
        assert_eq!(key(&torch("2.13.0")), key(&torch(" 2.13.0 ")));
        assert_eq!(key(&torch("2.13.0")), key(&torch("2.13")));
        assert_eq!(key(&torch("2.13.0+cu130")), key(&torch("2.13+cu130")));
        let with = |with: &[&str]| EnvironmentArgs {
            with: with.iter().map(ToString::to_string).collect(),
            ..Default::default()
        };
        assert_eq!(key(&with(&["a", "b", "a"])), key(&with(&["b", "a"])));
        assert_ne!(key(&with(&["a"])), key(&with(&[])));
        assert_ne!(managed(&torch("2.13.0")).key(11), managed(&torch("2.13.0")).key(12));
    }

    #[test]
    fn a_password_is_neither_in_the_key_nor_in_the_options() {
        let args = |user: &str| EnvironmentArgs {
            torch: Some("2.8.0.dev20250527+cu128".into()),
            python_version: Some("3.12".into()),
            index_url: Some(format!("https://{user}a.example/simple/")),
            extra_index_url: vec![format!("https://{user}b.example/whl/")],
            with: vec!["numpy<2".into()],
            ..Default::default()
        };
        let (secret, public) = (managed(&args("me:secret@")), managed(&args("")));
        assert_eq!(secret.key(12), public.key(12));
        assert_eq!(
            secret.options().join(" "),
            "--torch 2.8.0.dev20250527+cu128 --python-version 3.12 --index-url https://a.example/simple/ \
             --extra-index-url https://b.example/whl/ --with numpy<2"
        );
        assert_eq!(managed(&args("me:other@")).options(), public.options());
    }

    #[test]
    fn a_wheel_is_another_environment_than_its_version_and_beats_the_variable() {
        let wheel = |host: &str| EnvironmentArgs {
            torch_wheel: Some(format!("https://{host}/torch-2.13.0-cp312-cp312-linux_x86_64.whl")),
            ..Default::default()
        };
        let a = managed(&wheel("a.example"));
        assert_eq!(a.torch.to_string(), "2.13.0");
        assert!(a.requirements()[0].starts_with("torch @ https://a.example/"));
        assert_eq!(a.options()[0], "--torch-wheel");
        let keys = [a.key(12), managed(&wheel("b.example")).key(12), managed(&torch("2.13.0")).key(12)];
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2], "{keys:?}");
        assert_eq!(keys[0], managed(&wheel("me:secret@a.example")).key(12));
        let found = request(&wheel("a.example"), &[("TORCHLEAK_TORCH", "2.6.0")]).unwrap();
        assert_eq!(found, Request::Managed(a));
    }

    #[test]
    fn a_folder_of_wheels_belongs_to_the_key_and_has_to_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let args = |folder: &Path| EnvironmentArgs { find_links: vec![folder.to_owned()], ..torch("2.13.0") };
        let found = managed(&args(folder.path()));
        assert_ne!(found.key(12), managed(&torch("2.13.0")).key(12));
        assert!(found.options().contains(&"--find-links".to_owned()));
        assert!(request(&args(Path::new("/nonexistent")), &[]).unwrap_err().is_usage());
    }

    #[test]
    fn the_key_of_a_plain_wish_is_that_of_the_first_release() {
        assert!(managed(&torch("2.13.0")).key(11).starts_with("torch-2.13.0-py3.11-"));
        if (std::env::consts::OS, std::env::consts::ARCH) == ("linux", "x86_64") {
            assert_eq!(managed(&torch("2.13.0")).key(11), "torch-2.13.0-py3.11-b57c182d");
        }
    }

    #[test]
    fn an_old_torch_gets_an_old_numpy() {
        assert_eq!(managed(&torch("2.2.2")).requirements(), ["torch==2.2.2", "numpy<2"]);
        assert_eq!(managed(&torch("2.3.0")).requirements(), ["torch==2.3.0", "numpy"]);
    }

    #[test]
    fn options_of_uv_cannot_be_smuggled_in() {
        let with = EnvironmentArgs { with: vec!["--editable=.".into()], ..Default::default() };
        let index = EnvironmentArgs { index_url: Some("--pre".into()), ..Default::default() };
        let backend = EnvironmentArgs { torch_backend: Some("-x".into()), ..Default::default() };
        for args in [with, index, backend] {
            assert!(request(&args, &[]).unwrap_err().is_usage());
        }
    }

    #[test]
    fn python_versions_are_minor_versions_of_three() {
        for bad in ["3", "3.9", "2.7", "3.12.1", "3.13t", "4.0", ""] {
            assert!(python_minor(bad).unwrap_err().is_usage(), "{bad}");
        }
        assert_eq!(python_minor("3.12").unwrap(), 12);
    }

    proptest! {
        #[test]
        fn any_text_is_a_version_that_names_one_folder_or_bad_usage(text in ".{0,200}") {
            match request(&torch(&text), &[]) {
                Ok(Request::Managed(found)) => {
                    let key = found.key(11);
                    prop_assert!(!key.contains(['/', '\0']) && key.len() < 200);
                }
                Ok(Request::Interpreter(_)) => prop_assert!(false),
                Err(error) => prop_assert!(error.is_usage() && error.hint().is_some()),
            }
        }
    }
}
