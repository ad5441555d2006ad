//! Environments with real interpreters, a real uv, and, where one is made, a real torch.
//!
//! What uv has downloaded once is linked, not copied, so that an environment costs seconds and little room.

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use torchleak::cache::{Cache, CacheArgs};
use torchleak::environment::{
    Environment, EnvironmentArgs, EnvironmentError, Progress, PruneArgs, Silent, find_or_install_uv, list,
    prune, resolve,
};

/// Where a test process that is to be killed keeps its cache.
const VICTIM_CACHE: &str = "TORCHLEAK_TEST_VICTIM_CACHE";

/// A cache of a test's own.
struct Context {
    _folder: tempfile::TempDir,
    cache: Cache,
}

impl Context {
    fn new() -> Self {
        // Beside the build, as that is a disk with room, where a temporary folder may be in memory.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let cache = Cache::at(&folder.path().join("cache"));
        Self { _folder: folder, cache }
    }

    /// A cache that shares uv and its downloads with the user's, so that a test does not fetch torch again.
    fn with_uv() -> Self {
        let context = Self::new();
        if which::which("uv").is_err() {
            let users = Cache::open(&CacheArgs::default()).unwrap();
            find_or_install_uv(&users, &Silent).unwrap();
            fs::create_dir_all(users.uv_cache()).unwrap();
            fs::create_dir_all(context.cache.root()).unwrap();
            symlink(users.uv(), context.cache.uv()).unwrap();
            symlink(users.uv_cache(), context.cache.uv_cache()).unwrap();
        }
        context
    }

    fn resolve(&self, args: &EnvironmentArgs) -> Result<Environment, EnvironmentError> {
        resolve(args, &self.cache, &Silent)
    }

    fn ready(&self) -> Vec<String> {
        list(&self.cache).unwrap().into_iter().filter(|one| one.ready).map(|one| one.key).collect()
    }

    /// A folder among the environments that torchleak did not make.
    fn folder(&self, name: &str) -> PathBuf {
        let path = self.cache.environments().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }
}

fn torch(version: &str) -> EnvironmentArgs {
    EnvironmentArgs { torch: Some(version.into()), ..EnvironmentArgs::default() }
}

fn python(path: impl Into<PathBuf>) -> EnvironmentArgs {
    EnvironmentArgs { python: Some(path.into()), ..EnvironmentArgs::default() }
}

/// Remembers what it was told.
#[derive(Default)]
struct Remembering(Mutex<Vec<String>>);

impl Progress for Remembering {
    fn begin(&self, what: &str) {
        self.0.lock().unwrap().push(what.to_owned());
    }
    fn note(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }
    fn end(&self) {}
}

#[test]
fn two_at_once_make_one_environment_and_it_is_kept_while_it_is_used() {
    let context = Context::with_uv();
    let told = [Remembering::default(), Remembering::default()];
    let cache = &context.cache;
    let (first, second) = thread::scope(|scope| {
        let make = |told| scope.spawn(move || resolve(&torch("2.13.0"), cache, told));
        let (first, second) = (make(&told[0]), make(&told[1]));
        (first.join().unwrap().unwrap(), second.join().unwrap().unwrap())
    });
    assert_eq!(first.python, second.python);
    assert_eq!(first.facts, second.facts);
    assert!(first.facts.torch.starts_with("2.13.0"), "{}", first.facts.torch);
    assert_eq!(first.facts.torch_commit.as_deref().map(str::len), Some(40));
    assert!(first.facts.numpy.is_some());
    let told = told.map(|told| told.0.into_inner().unwrap().join("\n"));
    let installed = told.iter().filter(|told| told.contains("installing torch==2.13.0")).count();
    assert_eq!(installed, 1, "{told:?}");
    let waited = format!("waiting for process {}", std::process::id());
    assert!(told.iter().any(|told| told.contains(&waited)), "{told:?}");

    // Found again, quickly, and with nothing in it changed.
    let made = fs::metadata(first.python.with_file_name("../torchleak.json")).unwrap().modified().unwrap();
    let started = Instant::now();
    let again = context.resolve(&torch("2.13.0")).unwrap();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_eq!(
        fs::metadata(first.python.with_file_name("../torchleak.json")).unwrap().modified().unwrap(),
        made
    );
    assert_eq!(again.key(), first.key());

    // In use: it stays. Let go: it goes, with everything that belongs to it.
    let all = PruneArgs { all: true, ..PruneArgs::default() };
    let kept = prune(&context.cache, &all, &Silent).unwrap();
    assert_eq!((kept.removed.len(), kept.in_use.len()), (0, 1));
    let output = again.command().args(["-c", "import torch; print(torch.__version__)"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("2.13.0"));
    drop((first, second, again));
    let dry = prune(&context.cache, &PruneArgs { dry_run: true, ..all.clone() }, &Silent).unwrap();
    assert_eq!((dry.removed.len(), context.ready().len()), (1, 1));
    let gone = prune(&context.cache, &all, &Silent).unwrap();
    assert_eq!(gone.removed.len(), 1);
    assert_eq!(fs::read_dir(context.cache.environments()).unwrap().count(), 0);
}

#[test]
fn a_torch_without_dynamo_is_refused_before_anything_is_fetched() {
    let context = Context::new();
    let error = context.resolve(&torch("1.13.0")).unwrap_err();
    assert_eq!(error.to_string(), "torch 1.13.0 is too old: torchleak needs torch 2.0 or newer");
    assert!(error.hint().unwrap().contains("--torch"));
    assert!(!context.cache.root().exists());
}

#[test]
fn a_torch_that_does_not_exist_leaves_nothing_ready_and_says_what_uv_said() {
    let context = Context::with_uv();
    let error = context.resolve(&torch("99.0.0")).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("uv") && text.contains("exit code 1") && text.contains("torch==99.0.0"), "{text}");
    assert!(error.hint().unwrap().contains("index has this version"), "{:?}", error.hint());
    assert!(!error.is_usage());
    assert_eq!(list(&context.cache).unwrap(), []);
}

#[test]
fn a_killed_install_leaves_nothing_ready_and_no_process_and_the_next_one_succeeds() {
    let context = Context::with_uv();
    let mut victim = half_way(&context);
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert_eq!(context.ready(), Vec::<String>::new());
    let started = Instant::now();
    while let Some(left) = process_naming(context.cache.root()) {
        assert!(started.elapsed() < Duration::from_secs(20), "process {left} is still running");
        thread::sleep(Duration::from_millis(50));
    }

    let made = context.resolve(&torch("2.13.0")).unwrap();
    assert_eq!(context.ready(), [made.key().unwrap()]);
}

#[test]
fn an_interrupted_install_ends_soon_and_leaves_neither_a_folder_nor_a_process() {
    let context = Context::with_uv();
    let mut victim = half_way(&context);
    let started = Instant::now();
    kill_process(Pid::from_child(&victim), Signal::INT).unwrap();
    let status = victim.wait().unwrap();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    // The flag is heard and the error returned: 101 is the end of a test process that unwraps it, 130 that of a
    // second signal.
    assert_eq!(status.code(), Some(101));
    assert_eq!(list(&context.cache).unwrap(), []);
    assert_eq!(process_naming(context.cache.root()), None);
}

/// A process that is in the middle of making an environment: files of torch are there and the marker is not.
fn half_way(context: &Context) -> Child {
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim.args(["--exact", "victim_that_makes_an_environment", "--ignored", "--nocapture"]);
    victim.env(VICTIM_CACHE, context.cache.root()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut victim = victim.process_group(0).spawn().unwrap();
    let started = Instant::now();
    while !half_made(&context.cache) {
        assert!(started.elapsed() < Duration::from_secs(300), "the install never began");
        assert!(victim.try_wait().unwrap().is_none(), "the install was over before it could be killed");
        thread::sleep(Duration::from_millis(5));
    }
    victim
}

/// Not a test: [`a_killed_install_leaves_nothing_ready_and_no_process_and_the_next_one_succeeds`] and its neighbour run it and end it.
#[test]
#[ignore = "a part of another test, which kills it"]
fn victim_that_makes_an_environment() {
    if let Some(cache) = std::env::var_os(VICTIM_CACHE) {
        torchleak::interrupt::install().unwrap();
        resolve(&torch("2.13.0"), &Cache::at(Path::new(&cache)), &Silent).unwrap();
    }
}

/// Not a test: [`without_uv_on_path_two_at_once_install_one_into_the_cache`] runs it without a uv on PATH.
#[test]
#[ignore = "a part of another test, which takes uv from its PATH"]
fn installer_of_uv() {
    if let Some(cache) = std::env::var_os(VICTIM_CACHE) {
        let cache = Cache::at(Path::new(&cache));
        assert_eq!(find_or_install_uv(&cache, &Silent).unwrap(), cache.uv().join("bin/uv"));
    }
}

#[test]
fn without_uv_on_path_two_at_once_install_one_into_the_cache() {
    let context = Context::new();
    let path = std::env::var_os("PATH").unwrap();
    let without = std::env::split_paths(&path).filter(|folder| !folder.join("uv").exists());
    let without = std::env::join_paths(without).unwrap();
    let start = || {
        let mut installer = Command::new(std::env::current_exe().unwrap());
        installer.args(["--exact", "installer_of_uv", "--ignored", "--nocapture"]);
        installer.env(VICTIM_CACHE, context.cache.root()).env("PATH", &without).spawn().unwrap()
    };
    for mut installer in [start(), start()] {
        assert!(installer.wait().unwrap().success());
    }
    let version = Command::new(context.cache.uv().join("bin/uv")).arg("--version").output().unwrap();
    assert!(String::from_utf8_lossy(&version.stdout).starts_with("uv "));
    assert!(!context.cache.root().join("uv.partial").exists());
}

fn half_made(cache: &Cache) -> bool {
    let inside =
        |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    inside(cache.environments())
        .flat_map(|environment| inside(environment.join("lib")))
        .any(|python| python.join("site-packages/torch").exists())
}

/// A running process whose command line names this folder.
fn process_naming(folder: &Path) -> Option<String> {
    let folder = folder.to_string_lossy();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.map(|entry| entry.path()).find_map(|path| {
        let line = fs::read(path.join("cmdline")).ok()?;
        String::from_utf8_lossy(&line).contains(&*folder).then(|| path.display().to_string())
    })
}

#[test]
fn a_path_without_an_interpreter_is_an_error_that_names_it() {
    let context = Context::new();
    for path in ["/nonexistent/python", "/tmp", "no-such-python"] {
        let error = context.resolve(&python(path)).unwrap_err();
        assert!(matches!(error, EnvironmentError::NoPythonAt(_)), "{error}");
        assert!(error.to_string().contains(path) && error.hint().is_some());
    }
    assert!(!context.cache.root().exists());
}

#[test]
fn a_file_that_is_no_program_is_not_an_interpreter() {
    let error = Context::new().resolve(&python("/etc/passwd")).unwrap_err();
    assert!(matches!(error, EnvironmentError::NotPython { .. }), "{error}");
}

#[test]
fn an_interpreter_without_torch_is_told_from_a_broken_one() {
    let context = Context::new();
    let folder = tempfile::tempdir().unwrap();
    let made =
        Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(folder.path()).status().unwrap();
    assert!(made.success());
    // A folder that is a virtual environment means its interpreter.
    let error = context.resolve(&python(folder.path())).unwrap_err();
    assert!(matches!(error, EnvironmentError::NoTorch(_)), "{error}");
    assert!(error.hint().unwrap().contains("--torch"));

    let site = fs::read_dir(folder.path().join("lib"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path()
        .join("site-packages");
    fs::create_dir(site.join("torch")).unwrap();
    fs::write(site.join("torch/__init__.py"), "print('hello')\nraise OSError('libcudart.so.1: not found')\n")
        .unwrap();
    let error = context.resolve(&python(folder.path().join("bin/python"))).unwrap_err();
    assert!(matches!(error, EnvironmentError::BrokenTorch { .. }), "{error}");
    assert!(error.to_string().contains("libcudart.so.1: not found"), "{error}");

    fs::write(site.join("torch/__init__.py"), "import os\nos.kill(os.getpid(), 11)\n").unwrap();
    let error = context.resolve(&python(folder.path())).unwrap_err();
    assert!(error.to_string().contains("SIGSEGV"), "{error}");
}

#[test]
fn prune_never_touches_what_torchleak_did_not_make() {
    let context = Context::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("kept"), "").unwrap();
    let foreign = [context.folder("torch-of-mine"), context.folder("notes")];
    for folder in &foreign {
        fs::write(folder.join("kept"), "").unwrap();
    }
    let link = context.cache.environments().join("torch-2.13.0-py3.11-11111111");
    symlink(outside.path(), &link).unwrap();
    fs::write(context.cache.environments().join("torch-2.13.0-py3.11-11111111.lock"), "").unwrap();
    // Broken off: it has a lock file and no marker. It also holds a link to a folder that must stay.
    let half = context.folder("torch-2.13.0-py3.11-22222222");
    fs::write(context.cache.environments().join("torch-2.13.0-py3.11-22222222.lock"), "1").unwrap();
    symlink(outside.path(), half.join("link")).unwrap();

    let done = prune(&context.cache, &PruneArgs { all: true, ..PruneArgs::default() }, &Silent).unwrap();
    let removed: Vec<_> = done.removed.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(removed, ["torch-2.13.0-py3.11-22222222"]);
    assert!(!half.exists() && link.is_symlink() && outside.path().join("kept").exists());
    assert!(foreign.iter().all(|folder| folder.join("kept").exists()));
}

/// An environment that was broken off, with one MiB that has a second name.
fn unfinished(context: &Context, second: &Path) {
    let folder = context.folder("torch-2.13.0-py3.11-22222222");
    fs::write(folder.with_file_name("torch-2.13.0-py3.11-22222222.lock"), "1").unwrap();
    fs::write(folder.join("lib.so"), vec![1; 1 << 20]).unwrap();
    fs::hard_link(folder.join("lib.so"), second).unwrap();
}

#[test]
fn prune_removes_the_downloads_that_an_environment_was_made_of_and_counts_what_is_freed() {
    if which::which("uv").is_ok() {
        support::skipped("torchleak's own downloads", "the uv on PATH has a cache that is the user's");
        return;
    }
    let context = Context::new();
    let uv = context.cache.uv().join("bin/uv");
    fs::create_dir_all(uv.parent().unwrap()).unwrap();
    fs::write(&uv, "#!/bin/sh\necho \"$*\" > \"$UV_CACHE_DIR/../told\"; rm -r \"$UV_CACHE_DIR/archive\"\n")
        .unwrap();
    fs::set_permissions(&uv, fs::Permissions::from_mode(0o755)).unwrap();
    let archive = context.cache.uv_cache().join("archive");
    fs::create_dir_all(&archive).unwrap();
    unfinished(&context, &archive.join("lib.so"));
    assert!(list(&context.cache).unwrap()[0].own_bytes >= 1 << 20);
    let args = PruneArgs { older_than: Some(0), ..PruneArgs::default() };
    let dry = prune(&context.cache, &PruneArgs { dry_run: true, ..args.clone() }, &Silent).unwrap();
    let done = prune(&context.cache, &args, &Silent).unwrap();
    for pruned in [&dry, &done] {
        assert!((1 << 20..1 << 21).contains(&pruned.freed_bytes), "{pruned:?}");
        assert_eq!(pruned.shared_bytes, 0);
    }
    assert!(!archive.exists());
    assert!(fs::read_to_string(context.cache.root().join("told")).unwrap().contains("cache prune --ci"));
}

#[test]
fn prune_does_not_count_as_freed_what_has_a_name_elsewhere() {
    let context = Context::new();
    unfinished(&context, &context.cache.root().with_file_name("users-own"));
    let done = prune(&context.cache, &PruneArgs { keep: Some(1), ..PruneArgs::default() }, &Silent).unwrap();
    assert_eq!((done.removed.len(), done.shared_bytes >> 20), (1, 1));
    assert!(done.freed_bytes < 1 << 20, "{done:?}");
}

#[test]
fn a_cache_that_cannot_be_made_is_an_error_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let cache = Cache::at(&folder.path().join("file/cache"));
    let error = resolve(&torch("2.13.0"), &cache, &Silent).unwrap_err();
    assert!(matches!(error, EnvironmentError::Cache(_)), "{error}");
    assert!(error.hint().unwrap().contains("--cache-dir"));
}
