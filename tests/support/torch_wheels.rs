//! Small wheels of torch that are real where it counts.
//!
//! A wheel of torch has hundreds of megabytes, so a test cannot serve several. These hold two or three files: a package
//! `torch` that runs the code of the torch under test, from where that is installed, and puts its own `version.py` and,
//! if the build is to leak, its own `utils/checkpoint.py` in front. All else, the compiled parts too, is the torch under
//! test, so such a wheel passes every check and its cases train.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use sha2::{Digest, Sha256};
use torchleak::cache::{Cache, CacheArgs};
use torchleak::environment::{Environment, EnvironmentArgs, Silent, find_or_install_uv, resolve};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The torch under test; its environment is found as every command finds it.
pub static REAL: LazyLock<RealTorch> = LazyLock::new(|| {
    let cache = Cache::open(&CacheArgs::default()).unwrap();
    RealTorch::of(&resolve(&EnvironmentArgs::default(), &cache, &Silent).unwrap())
});

/// A folder of a test's own with a cache, which shares uv and its downloads with the user's.
pub fn folder_with_a_cache() -> (tempfile::TempDir, Cache) {
    // Beside the build, so that what uv has downloaded can be linked instead of copied.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let cache = Cache::at(&folder.path().join("cache"));
    if which::which("uv").is_err() {
        let users = Cache::open(&CacheArgs::default()).unwrap();
        find_or_install_uv(&users, &Silent).unwrap();
        fs::create_dir_all(users.uv_cache()).unwrap();
        fs::create_dir_all(cache.root()).unwrap();
        symlink(users.uv(), cache.uv()).unwrap();
        symlink(users.uv_cache(), cache.uv_cache()).unwrap();
    }
    (folder, cache)
}

/// Runs the package of the same name in the folder, and looks there for all that is not beside it.
const SHADOW: &str = "\
import os as _os
_real = _os.path.join(FOLDER, *__name__.split('.'))
__path__.append(_real)
__file__ = _os.path.join(_real, '__init__.py')
with open(__file__, encoding='utf-8') as _source:
    exec(compile(_source.read(), __file__, 'exec'), globals())
";

/// The function that pytorch PR 153300 decorated, up to where its signature differs between releases.
const DECORATED: &str = "    def recompute_fn(*";

/// The torch that the wheels lean on.
pub struct RealTorch {
    folder: PathBuf,
    pub version: String,
    pub python_minor: u32,
}

/// A wheel before it is written.
pub struct Build<'a> {
    /// The date, as `20260101`.
    pub date: &'a str,
    pub commit: &'a str,
    /// Whether it has the change of PR 153300, which leaks.
    pub leaks: bool,
}

impl RealTorch {
    pub fn of(environment: &Environment) -> Self {
        let script = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])";
        let output = environment.command().args(["-c", script]).current_dir("/").output().unwrap();
        let torch = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
        let minor = environment.facts.python.split('.').nth(1).unwrap();
        Self {
            folder: torch.parent().unwrap().to_owned(),
            version: environment.facts.torch.clone(),
            python_minor: minor.parse().unwrap(),
        }
    }

    /// The version of a nightly that comes after the torch under test.
    pub fn nightly(&self, date: &str) -> String {
        let mut release = self.version.split('.');
        let major = release.next().unwrap();
        let minor: u32 = release.next().unwrap().parse().unwrap();
        format!("{major}.{}.0.dev{date}+local", minor + 1)
    }

    pub fn wheel_name(&self, date: &str) -> String {
        let minor = self.python_minor;
        format!("torch-{}-cp3{minor}-cp3{minor}-linux_{}.whl", self.nightly(date), std::env::consts::ARCH)
    }

    /// Writes a wheel into the folder.
    pub fn write(&self, build: &Build<'_>, folder: &Path) -> PathBuf {
        let version = self.nightly(build.date);
        let shadow = SHADOW.replace("FOLDER", &format!("{:?}", self.folder));
        let real = |file: &str| fs::read_to_string(self.folder.join(file)).unwrap();
        let version_file = real("torch/version.py");
        let own = ["__version__ =", "git_version ="];
        let kept: Vec<&str> =
            version_file.lines().filter(|line| !own.iter().any(|own| line.starts_with(own))).collect();
        let said = format!("\n__version__ = {version:?}\ngit_version = {:?}\n", build.commit);
        let mut files = vec![
            ("torch/__init__.py".to_owned(), shadow.clone()),
            ("torch/version.py".to_owned(), kept.join("\n") + &said),
            // Larger than what is read of a wheel's end, as the compiled parts of a real one are.
            ("torch/lib/filler.txt".to_owned(), "x".repeat(2 << 20)),
            // What torch needs is where the real one is; it comes after what the environment has itself.
            ("zz-torch-under-test.pth".to_owned(), format!("{}\n", self.folder.display())),
        ];
        if build.leaks {
            let text = real("torch/utils/checkpoint.py");
            assert_eq!(text.matches(DECORATED).count(), 1, "checkpoint.py of torch {}", self.version);
            let decorated = format!("    @torch._disable_dynamo\n{DECORATED}");
            files.push(("torch/utils/checkpoint.py".to_owned(), text.replace(DECORATED, &decorated)));
            files.push(("torch/utils/__init__.py".to_owned(), shadow));
        }
        let info = format!("torch-{version}.dist-info");
        files.push((
            format!("{info}/METADATA"),
            format!("Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"),
        ));
        let tag = format!("cp3{0}-cp3{0}-linux_{1}", self.python_minor, std::env::consts::ARCH);
        files.push((
            format!("{info}/WHEEL"),
            format!("Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: {tag}\n"),
        ));
        let path = folder.join(self.wheel_name(build.date));
        write_zip(&path, &format!("{info}/RECORD"), &files);
        path
    }
}

fn write_zip(path: &Path, record: &str, files: &[(String, String)]) {
    let mut archive = ZipWriter::new(fs::File::create(path).unwrap());
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut listed = String::new();
    let mut add = |name: &str, text: &str| {
        archive.start_file(name, stored).unwrap();
        archive.write_all(text.as_bytes()).unwrap();
    };
    for (name, text) in files {
        add(name, text);
        let hash: String = Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        listed.push_str(&format!("{name},sha256={hash},{}\n", text.len()));
    }
    add(record, &format!("{listed}{record},,\n"));
    archive.finish().unwrap();
}
