//! Python files of commits laid over a real torch: what each commit shows, and that the environment stays as it is.
//!
//! The repository is one that the tests make. Its `checkpoint.py` is the installed release's, and in some commits it is
//! changed as pytorch PR 153300 changed it: the function that recomputes is wrapped at every call.

mod support;
#[path = "support/torch_commits.rs"]
mod torch_commits;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::{Context, Finished, case, skipped};
use torch_commits::{Base, FILE, LEAK, Repository, STOCK, history};
use torchleak::cache::{Cache, CacheArgs};
use torchleak::case::{Case, Catalog, Verdict};
use torchleak::environment::{Environment, EnvironmentArgs, Silent};
use torchleak::run::{RunOptions, Watcher, default_device};
use torchleak::versions::{Candidate, CellWatcher, Commits, Source, Unavailable, run_cells};

struct Deaf;

impl CellWatcher for Deaf {}

impl Watcher for Deaf {}

fn options(context: &Context, environment: &Environment) -> RunOptions {
    RunOptions {
        device: default_device(environment),
        deadline: Duration::from_secs(900),
        jobs: 2,
        memory_limit: None,
        show_values: false,
        native: None,
        runs: context.path().join("runs"),
        worker: context.path().join("worker"),
    }
}

fn stock_case() -> Vec<Case> {
    Catalog::shipped().unwrap().select(&["sac-stock".to_owned()]).unwrap()
}

/// What the case shows on the candidate; None where its files cannot be imported.
fn verdict(context: &Context, commits: &Commits, candidate: &Candidate) -> Option<Verdict> {
    let environment = match commits.environment(candidate, &Silent) {
        Ok(environment) => environment,
        Err(Unavailable::Broken(problem)) => {
            assert!(problem.contains("what_is_not_there") && problem.contains(FILE), "{problem}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let cells =
        run_cells(&stock_case(), &candidate.label, &environment, &options(context, &environment), &mut Deaf);
    let cell = cells.unwrap().remove(0);
    assert_eq!(cell.overlay, candidate.commit);
    assert_eq!(cell.torch_commit, commits.base().facts.torch_commit);
    cell.verdict
}

#[test]
fn every_commit_of_a_history_shows_what_its_files_do_and_the_environment_stays_as_it_was() {
    let (context, base) = (Context::new(), Base::new());
    let (manifest, sources) = (base.manifest(), base.sources());
    let repository = Repository::new(&context);
    let history = history(&repository, &base.checkpoint());
    let cache = Cache::open(&CacheArgs::default()).unwrap();
    // Newest first: the ends are told apart by their history, not by their order.
    let commits = Commits::between(
        &repository.0,
        "main",
        &history[0].0,
        &[FILE.to_owned()],
        &EnvironmentArgs::default(),
        &cache,
        &Silent,
    )
    .unwrap();
    let candidates = commits.candidates();
    let hashes: Vec<_> = candidates.iter().map(|one| one.commit.clone().unwrap()).collect();
    assert_eq!(hashes, history.iter().map(|(hash, _)| hash.clone()).collect::<Vec<_>>());
    assert_eq!(commits.ends(), (5, 0));
    assert!(commits.notes()[0].contains(&candidates[5].label), "{:?}", commits.notes());
    assert!(candidates[2].note.as_ref().unwrap().ends_with("Disable Dynamo in the recomputation"));
    // The repair restores what was released, so both are the same PyTorch, and no other two are.
    assert_eq!(candidates[0].identity, candidates[5].identity);
    let different: std::collections::BTreeSet<_> = candidates.iter().map(|one| &one.identity).collect();
    assert_eq!(different.len(), 5);

    for (candidate, (_, expected)) in candidates.iter().zip(&history).take(5) {
        assert_eq!(verdict(&context, &commits, candidate), *expected, "{:?}", candidate.note);
    }
    // The last has the files of the first; that it runs like it needs no further run, only that it comes about.
    let repaired = commits.environment(&candidates[5], &Silent).unwrap();
    assert_eq!(repaired.overlay().unwrap().changed, Vec::<String>::new());
    let view = repaired.python.clone();
    drop(repaired);
    // It waits for the next candidate, as it was made.
    assert!(view.exists());
    let again = commits.environment(&candidates[2], &Silent).unwrap();
    assert_eq!(again.python, view);
    assert_eq!(again.overlay().unwrap().changed, [FILE]);
    drop((again, commits));
    assert!(fs::symlink_metadata(view).is_err(), "the view is left over");
    assert!(base.manifest() == manifest, "a file of the environment was changed");
    assert!(base.sources() == sources, "a source of the environment was changed");
}

#[test]
fn what_a_program_does_to_the_view_reaches_neither_the_environment_nor_the_next_view() {
    let (context, base) = (Context::new(), Base::new());
    let (manifest, sources) = (base.manifest(), base.sources());
    let repository = Repository::new(&context);
    history(&repository, &base.checkpoint());
    // A folder: what its files are at the commit, and what a commit removed, is taken over.
    repository.commit("Add a module", "torch/utils/mine.py", "VALUE = 5\n");
    let taken = "torch/utils/show_pickle.py";
    repository.commit("Take a module", taken, "TAKEN = 1\n");
    repository.git(&["rm", "-q", taken]);
    repository.git(&["commit", "-q", "-m", "Remove it"]);
    let cache = Cache::at(&context.path().join("cache"));
    let paths = ["torch/utils".to_owned()];
    let commits = Commits::at(&repository.0, "main", &paths, &base.args(), &cache, &Silent).unwrap();
    let environment = commits.environment(&commits.candidates()[0], &Silent).unwrap();
    let changed = &environment.overlay().unwrap().changed;
    assert_eq!(changed, &["torch/utils/mine.py", taken]);

    let python = |environment: &Environment, script: &str| {
        Finished::of(environment.command().args(["-c", script]).current_dir("/").output().unwrap())
    };
    let script = "
import os, pathlib, torch.utils.mine, torch.utils.checkpoint
site = pathlib.Path(torch.__file__).parent.parent
print(site, torch.utils.mine.VALUE, os.path.exists(site / 'torch/utils/show_pickle.py'))
for path in ['torch/utils/checkpoint.py', 'torch/_compile.py', 'torch/version.py', 'functorch/__init__.py']:
    with open(site / path, 'r+') as file:
        file.write('# overwritten in place ')
(site / 'torch/added.py').write_text('')
(site / 'torch/hub.py').unlink()
(site / 'torch/utils/_pytree.py').write_text('')
";
    let done = python(&environment, script);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let site = environment.overlay().unwrap().view.site();
    assert_eq!(done.stdout.trim(), format!("{} 5 False", site.display()));
    // Both hold views of their own.
    let next = commits.environment(&commits.candidates()[0], &Silent).unwrap();
    assert_ne!(next.python, environment.python);
    let check = "import torch, numpy; print(torch.hub and torch.__version__)";
    let done = python(&next, check);
    assert_eq!(done.stdout.trim(), base.environment.facts.torch, "{}", done.stderr);
    // The one that a program changed goes, the other is used again.
    let (spoilt, sound) = (environment.python.clone(), next.python.clone());
    drop((environment, next));
    assert!(!spoilt.exists() && sound.exists());
    let next = commits.environment(&commits.candidates()[0], &Silent).unwrap();
    assert_eq!(next.python, sound);
    assert_eq!(python(&next, check).code, 0);
    drop((next, commits));
    // A folder that the view shares with the environment.
    let headers = "torch/include/mine";
    fs::create_dir_all(repository.0.join(headers)).unwrap();
    repository.commit("Python among the headers", "torch/include/mine/a.py", "");
    let paths = [headers.to_owned()];
    let commits = Commits::at(&repository.0, "main", &paths, &base.args(), &cache, &Silent).unwrap();
    let error = commits.environment(&commits.candidates()[0], &Silent).unwrap_err();
    assert!(error.to_string().contains(headers), "{error}");
    drop(commits);
    assert_eq!(fs::read_dir(cache.overlays()).unwrap().count(), 0);
    assert!(base.manifest() == manifest, "a file of the environment was changed");
    assert!(base.sources() == sources, "a source of the environment was changed");
}

#[test]
fn a_view_on_another_disk_works_with_links_that_are_symbolic() {
    let context = Context::new();
    let Ok(other) = tempfile::tempdir_in("/dev/shm") else {
        return skipped("a view on another disk", "there is no /dev/shm to write to");
    };
    let base = Base::new();
    if fs::metadata(other.path()).unwrap().dev() == fs::metadata(&base.site).unwrap().dev() {
        return skipped("a view on another disk", "/dev/shm and the environment are on one");
    }
    let manifest = base.manifest();
    let repository = Repository::new(&context);
    let leak = base.checkpoint().replace(STOCK, LEAK);
    repository.commit("Leak", FILE, &leak);
    let cache = Cache::at(other.path());
    let commits =
        Commits::at(&repository.0, "main", &[FILE.to_owned()], &base.args(), &cache, &Silent).unwrap();
    assert_eq!(verdict(&context, &commits, &commits.candidates()[0]), Some(Verdict::Reproduced));
    assert!(base.manifest() == manifest, "a file of the environment was changed");
}

/// The cache of a test, by a path that says it in a roundabout way.
fn own_cache(context: &Context) -> PathBuf {
    context.path().join("pytorch/../cache")
}

/// The binary, with a cache of the test's own.
fn torchleak(context: &Context) -> Command {
    let mut command = context.command();
    command.env("TORCHLEAK_CACHE_DIR", own_cache(context)).env_remove("TORCHLEAK_TORCH");
    command
}

/// The options that lay a commit of the repository over the test's environment.
fn overlay_options<'a>(base: &'a Base, repository: &'a Repository, commit: &'a str) -> Vec<&'a str> {
    let python = base.environment.python.to_str().unwrap();
    vec!["--python", python, "--git", repository.0.to_str().unwrap(), "--commit", commit, "--paths", FILE]
}

#[test]
fn run_with_a_commit_says_so_everywhere_and_one_that_does_not_import_is_no_environment() {
    let (context, base) = (Context::new(), Base::new());
    let repository = Repository::new(&context);
    let history = history(&repository, &base.checkpoint());
    let run = |commit: &str, more: &[&str]| {
        let mut command = torchleak(&context);
        // As in a hook, where variables lead git to the repository that it works on.
        command.env("GIT_DIR", "/nonexistent");
        command.args(["run", "sac-stock"]).args(overlay_options(&base, &repository, commit)).args(more);
        Finished::of(command.output().unwrap())
    };
    let leak = &history[2].0;
    let found = run(&leak[..9], &["--format", "json"]);
    assert_eq!(found.code, 1, "{}", found.stderr);
    let document: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(case(&document, "sac-stock")["verdict"], "reproduced");
    let overlay = &document["environment"]["overlay"];
    assert_eq!((&overlay["commit"], &overlay["changed"][0]), (&leak.as_str().into(), &FILE.into()));
    assert_eq!(document["environment"]["torch"], base.environment.facts.torch.as_str());
    let folder = context.path().join(case(&document, "sac-stock")["run_dir"].as_str().unwrap());
    let kept = fs::read_to_string(folder.join("environment.json")).unwrap();
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(&kept["overlay"], overlay);

    // What a candidate's replay says is what was run here.
    let cache = Cache::at(&context.path().join("cache"));
    let commits =
        Commits::at(&repository.0, leak, &[FILE.to_owned()], &base.args(), &cache, &Silent).unwrap();
    let replay = commits.replay(&commits.candidates()[0]).join(" ");
    let paths = (base.environment.python.display(), repository.0.display());
    assert_eq!(replay, format!("--python {} --git {} --commit {leak} --paths {FILE}", paths.0, paths.1));

    let broken = run(&history[3].0, &[]);
    assert_eq!(broken.code, 3, "{}", broken.stdout);
    for said in ["what_is_not_there", "line ", FILE, &history[3].0, "--torch"] {
        assert!(broken.stderr.contains(said), "{said}: {}", broken.stderr);
    }
    assert_eq!(run(&history[3].0, &["--exit-code", "bisect"]).code, 125);
    assert_eq!(run("no-such-revision", &[]).code, 2);
    assert_eq!(run("no-such-revision", &["--exit-code", "bisect"]).code, 128);
    assert_eq!(fs::read_dir(cache.overlays()).unwrap().count(), 0);
}

#[test]
fn a_repository_that_is_not_pytorch_is_refused() {
    let (context, base) = (Context::new(), Base::new());
    let repository = Repository::new(&context);
    repository.commit("Not PyTorch", "README", "1\n");
    for path in ["torch", FILE] {
        let mut options = overlay_options(&base, &repository, "HEAD");
        *options.last_mut().unwrap() = path;
        let finished =
            Finished::of(torchleak(&context).args(["run", "sac-stock"]).args(options).output().unwrap());
        assert_eq!(finished.code, 2, "{}", finished.stdout);
        assert!(finished.stderr.contains(&format!("there is and was no `{path}` at")), "{}", finished.stderr);
    }
}

/// Where the commits of a history change between two ends, as `torchleak bisect` says it.
fn bisected(
    context: &Context,
    base: &Base,
    repository: &Repository,
    good: &str,
    bad: &str,
) -> serde_json::Value {
    let mut command = torchleak(context);
    let state = context.path().join(format!("{good}.json"));
    command.args(["bisect", "sac-stock", "--good", good, "--bad", bad, "--format", "json"]);
    command.arg("--python").arg(&base.environment.python).arg("--state").arg(state);
    command.arg("--git").arg(&repository.0).args(["--paths", FILE]);
    let done = Finished::of(command.output().unwrap());
    assert_eq!(done.code, 0, "{}", done.stderr);
    serde_json::from_str(&done.stdout).unwrap()
}

#[test]
fn a_bisection_over_commits_names_the_right_two_with_a_broken_one_among_them() {
    let base = Base::new();
    let context = Context::new();
    let repository = Repository::new(&context);
    let history = history(&repository, &base.checkpoint());
    let hash = |place: usize| history[place].0.as_str();
    let named = |document: &serde_json::Value| {
        ["last_before", "first_after"].map(|side| document[side].as_str().unwrap().to_owned())
    };
    let is = |found: &str, place: usize| assert!(hash(place).starts_with(found), "{found} is not {place}");

    let document = bisected(&context, &base, &repository, hash(0), hash(4));
    let [before, after] = named(&document);
    is(&before, 1);
    is(&after, 2);
    assert_eq!(
        (&document["find"], &document["conclusive"]),
        (&"introduced".into(), &true.into()),
        "{document:#}"
    );
    let link = document["compare"].as_str().unwrap();
    assert!(link.ends_with(&format!("/compare/{}...{}", hash(1), hash(2))), "{link}");
    let replay: Vec<&str> =
        document["replay"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert!(replay[0].contains("--git") && replay[0].contains(&before), "{replay:?}");

    // Over the broken commit, and to an end that changes nothing in the paths.
    let document = bisected(&context, &base, &repository, "main", hash(2));
    let [before, after] = named(&document);
    is(&before, 4);
    is(&after, 5);
    assert_eq!(document["find"], "fixed");
    let tested = document["tested"].as_array().unwrap();
    let broken = tested.iter().find(|one| hash(3).starts_with(one["candidate"].as_str().unwrap()));
    if let Some(broken) = broken {
        assert_eq!(broken["answer"], "unknown");
        assert!(broken["reason"].as_str().unwrap().contains("what_is_not_there"), "{broken:#}");
    }
}

#[test]
fn git_bisect_run_finds_the_commit_that_leaks_without_a_build() {
    let (context, base) = (Context::new(), Base::new());
    let repository = Repository::new(&context);
    let history = history(&repository, &base.checkpoint());
    repository.git(&["bisect", "start", &history[4].0, &history[0].0, "--", FILE]);
    let mut command = repository.command();
    command.args(["bisect", "run", env!("CARGO_BIN_EXE_torchleak"), "run", "sac-stock"]);
    command.args(overlay_options(&base, &repository, "HEAD")).args(["--exit-code", "bisect"]);
    // Run folders and the cache are no part of the checkout.
    let runs = context.path().join("runs");
    command.arg("--runs").arg(runs).env("TORCHLEAK_CACHE_DIR", own_cache(&context));
    let found = Finished::of(command.output().unwrap());
    assert_eq!(found.code, 0, "{}\n{}", found.stdout, found.stderr);
    assert!(found.stdout.contains(&format!("{} is the first bad commit", history[2].0)), "{}", found.stdout);
}

#[test]
fn the_line_for_a_person_names_what_is_laid_over_the_release() {
    let (context, base) = (Context::new(), Base::new());
    let repository = Repository::new(&context);
    let hash = repository.commit("As it was released", FILE, &base.checkpoint());
    let yaml = context.program_case(
        "nothing",
        "def setup(ctx):\n    return None\ndef step(state):\n    return 1.0\n",
        "device: cpu",
    );
    let mut command = torchleak(&context);
    command.arg("run").arg(yaml);
    command.args(overlay_options(&base, &repository, "main")).args(["--device", "cpu"]);
    let found = Finished::of(command.output().unwrap());
    assert_eq!(found.code, 0, "{}", found.stderr);
    let line = format!("overlaid with {FILE} of commit {}: no file differs from the release", &hash[..10]);
    assert_eq!(found.stdout.lines().nth(1), Some(line.as_str()), "{}", found.stdout);
}

#[test]
fn an_interrupted_run_removes_its_view_and_what_a_killed_one_left_goes_with_the_next() {
    let (context, base) = (Context::new(), Base::new());
    let repository = Repository::new(&context);
    repository.commit("As it was released", FILE, &base.checkpoint());
    let cache = Cache::at(&context.path().join("cache"));
    let views = || fs::read_dir(cache.overlays()).into_iter().flatten().count();
    let slow = "import time\ndef setup(ctx):\n    return None\ndef step(state):\n    time.sleep(60)\n    return 1.0\n";
    let yaml = context.program_case("slow", slow, "device: cpu");
    for (signal, left) in [(Signal::KILL, 2), (Signal::INT, 0)] {
        let mut command = torchleak(&context);
        command.arg("run").arg(&yaml);
        command.args(overlay_options(&base, &repository, "main")).args(["--device", "cpu"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let started = Instant::now();
        let runs = context.path().join("runs");
        let is_running = |path: &Path| fs::read_dir(path).is_ok_and(|mut found| found.next().is_some());
        while !is_running(&runs) {
            assert!(started.elapsed() < Duration::from_secs(120), "the run never began");
            assert!(child.try_wait().unwrap().is_none(), "the run was over before it could be ended");
            std::thread::sleep(Duration::from_millis(50));
        }
        // The one of the killed run is gone by now.
        assert_eq!(views(), 2, "a folder and its lock");
        kill_process(Pid::from_child(&child), signal).unwrap();
        child.wait().unwrap();
        assert_eq!(views(), left);
        fs::remove_dir_all(runs).unwrap();
    }
}
