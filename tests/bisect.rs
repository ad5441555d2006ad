//! Bisections on real PyTorch: every cell is run by a real worker. All candidates are the environment under test, and
//! what the case's program does on each is written beside it before it runs.

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use rstest::rstest;
use support::{Context, Finished};
use torchleak::cache::{Cache, CacheArgs};
use torchleak::case::{Case, Verdict};
use torchleak::environment::{Environment, EnvironmentArgs, EnvironmentError, Progress, Silent, resolve};
use torchleak::report::{bisect_document, bisect_text};
use torchleak::run::{Settings, WantedDevice, Watcher};
use torchleak::versions::{
    Answer, BisectError, BisectReport, BisectWatcher, Bisection, Candidate, CellWatcher, Find, Ran, Skipped,
    Source, State, Tested, Unavailable, between,
};

/// Does what the file `which` beside it says: one of the letters of a history.
const PROGRAM: &str = "\
import gc, os

kept = []

def setup(ctx):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'which')) as file:
        ctx.which = file.read()
    if ctx.which == 'e':
        raise RuntimeError('it does not work on this version')
    return ctx

def step(ctx):
    payload = ctx.torch.zeros(65536)
    if ctx.which in 'ri':
        cycle = [payload]
        cycle.append(cycle)
    if ctx.which == 'i':
        gc.collect()
    if ctx.which == 'c':
        kept.append(payload)
    return 1.0
";

/// The environment under test, as many candidates.
///
/// Each candidate has a letter for each time that it is asked for, of which the last one stays: `f`ixed, `r`eproduced,
/// un`c`ollectable, `i`nconclusive, `e`rror, `u` for an environment that does not work, `n` for none.
struct Planted {
    folder: PathBuf,
    candidates: Vec<Candidate>,
    letters: Vec<&'static str>,
    /// What was asked for so far, in order.
    asked: Mutex<Vec<String>>,
    /// So many candidates may still be asked for before the user interrupts.
    patience: Mutex<usize>,
}

impl Planted {
    fn new(context: &Context, letters: &[&'static str]) -> Self {
        let candidate = |number| Candidate {
            label: format!("v{number}"),
            identity: format!("planted {number}"),
            commit: Some(format!("{number:040}")),
            note: None,
        };
        Self {
            folder: context.path().to_owned(),
            candidates: (0..letters.len()).map(candidate).collect(),
            letters: letters.to_vec(),
            asked: Mutex::default(),
            patience: Mutex::new(usize::MAX),
        }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn interrupts_after(&self, asks: usize) {
        *self.patience.lock().unwrap() = asks;
    }
}

impl Source for Planted {
    fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    fn environment(
        &self,
        candidate: &Candidate,
        progress: &dyn Progress,
    ) -> Result<Environment, Unavailable> {
        let mut patience = self.patience.lock().unwrap();
        *patience = patience
            .checked_sub(1)
            .ok_or(Unavailable::Environment(EnvironmentError::Interrupted("waiting".to_owned())))?;
        let index = self.candidates.iter().position(|one| one == candidate).unwrap();
        let mut asked = self.asked.lock().unwrap();
        let before = asked.iter().filter(|label| **label == candidate.label).count();
        asked.push(candidate.label.clone());
        let letters = self.letters[index].as_bytes();
        match letters[before.min(letters.len() - 1)] {
            b'u' => Err(Unavailable::Broken("its files do not import".to_owned())),
            b'n' => Err(EnvironmentError::NoPythonAt(PathBuf::from("/nonexistent")).into()),
            letter => {
                std::fs::write(self.folder.join("which"), [letter]).unwrap();
                Ok(resolve(&EnvironmentArgs::default(), &cache(), progress).unwrap())
            }
        }
    }

    fn replay(&self, candidate: &Candidate) -> Vec<String> {
        vec!["--torch".to_owned(), candidate.label.clone()]
    }
}

fn cache() -> Cache {
    Cache::open(&CacheArgs { cache_dir: std::env::var_os("TORCHLEAK_CACHE_DIR").map(PathBuf::from) }).unwrap()
}

/// Hears nothing of a single run.
struct Deaf;

impl CellWatcher for Deaf {}

impl Watcher for Deaf {}

/// Remembers what it is told.
#[derive(Default)]
struct Listener {
    prepared: Vec<String>,
    lines: Vec<String>,
    notes: Vec<String>,
}

impl BisectWatcher for Listener {
    fn preparing(&mut self, candidate: &Candidate) {
        self.prepared.push(candidate.label.clone());
    }

    fn environment(&self) -> &dyn Progress {
        &Silent
    }

    fn run(&mut self) -> Box<dyn CellWatcher + '_> {
        Box::new(Deaf)
    }

    fn ran(&mut self, ran: &Ran<'_>) {
        self.lines.push(torchleak::report::bisect_line(ran));
    }

    fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }
}

/// A case with its source, to be bisected as often as a test wants.
struct Lab {
    context: Context,
    source: Planted,
    case: Case,
    confirm: u8,
}

impl Lab {
    fn new(letters: &[&'static str]) -> Self {
        let context = Context::new();
        let path = context.program_case("planted", PROGRAM, "device: cpu");
        Self {
            source: Planted::new(&context, letters),
            case: Case::load(&path).unwrap(),
            confirm: 1,
            context,
        }
    }

    fn bisect(&self, good: &str, bad: &str, resume: bool) -> (Result<BisectReport, BisectError>, Listener) {
        let (candidates, find) = between(self.source.candidates(), good, bad, None).unwrap();
        let settings = Settings {
            device: WantedDevice::Cpu,
            deadline: Duration::from_secs(300),
            jobs: 2,
            memory_limit: None,
            show_values: false,
            runs: self.context.path().join("runs"),
            worker: cache().worker(),
        };
        let bisection = Bisection {
            case: &self.case,
            case_argument: "planted.yaml",
            candidates,
            find,
            confirm: self.confirm,
            settings: &settings,
        };
        let mut listener = Listener::default();
        let subject = bisection.subject("planted");
        let state = State::open(&self.state(), subject, candidates, bisection.device(), resume);
        let report = state.map_err(BisectError::State).and_then(|(mut state, notes)| {
            listener.notes.extend(notes);
            bisection.search(&self.source, &mut state, &mut listener)
        });
        (report, listener)
    }

    fn state(&self) -> PathBuf {
        self.context.path().join("state.json")
    }
}

/// The candidates of a report with their answers and verdicts.
fn cells(report: &BisectReport) -> BTreeMap<&str, String> {
    let shown = |verdict: Option<Verdict>| verdict.map_or("-", |verdict| verdict.word());
    let cells = report.tested.iter();
    cells
        .map(|one| (one.candidate.as_str(), format!("{} {}", one.answer.word(), shown(one.verdict))))
        .collect()
}

#[test]
fn a_leak_that_was_introduced_behind_a_hole_is_bracketed_honestly() {
    let lab = Lab::new(&["f", "f", "u", "r", "f", "c"]);
    let (report, listener) = lab.bisect("v0", "v5", false);
    let report = report.unwrap();
    assert_eq!(report.find.word(), "introduced");
    assert_eq!((report.last_before.as_deref(), report.first_after.as_deref()), (Some("v1"), Some("v3")));
    assert!(!report.conclusive);
    assert!(report.reason.contains("of those between them none could be told: v2"), "{}", report.reason);
    assert_eq!(report.skipped[0].reason, "its files do not import");
    assert_eq!(
        cells(&report),
        BTreeMap::from([
            ("v0", "good fixed".to_owned()),
            ("v1", "good fixed".to_owned()),
            ("v2", "unknown -".to_owned()),
            ("v3", "bad reproduced".to_owned()),
            ("v5", "bad uncollectable".to_owned()),
        ])
    );
    let kind = "the leak changes its kind between v3 (reproduced) and v5 (uncollectable); both count as bad";
    assert_eq!(report.notes, [kind]);
    assert_eq!(listener.prepared, lab.source.asked(), "room can be made before each environment");
    assert_eq!(listener.lines.len(), 7, "{:?}", listener.lines);
    assert!(listener.lines[2].ends_with("v2 ... unavailable (unknown): its files do not import"));
    assert!(listener.lines[6].starts_with("bisect: 7 of about 7: v3 again ... reproduced (bad), "));
}

#[test]
fn a_bisection_that_is_interrupted_anywhere_goes_on_without_running_anything_twice() {
    let lab = Lab::new(&["c", "r", "f", "f"]);
    for (asks, resume) in [(2, false), (0, true), (2, true), (1, true)] {
        lab.source.interrupts_after(asks);
        let (report, _) = lab.bisect("v3", "v0", resume);
        assert!(matches!(report, Err(BisectError::Interrupted(path)) if path == lab.state()));
    }
    lab.source.interrupts_after(usize::MAX);
    let (report, listener) = lab.bisect("v3", "v0", true);
    let report = report.unwrap();
    assert_eq!(listener.notes, ["resuming with 5 runs"]);
    assert_eq!(lab.source.asked(), ["v0", "v3", "v1", "v2", "v1", "v2"]);
    assert_eq!((report.last_before.as_deref(), report.first_after.as_deref()), (Some("v1"), Some("v2")));
    assert!(report.conclusive, "{}", report.reason);
    assert_eq!(report.find.word(), "fixed");
    let compared = format!("https://github.com/pytorch/pytorch/compare/{:040}...{:040}", 1, 2);
    assert_eq!(report.compare.as_deref(), Some(compared.as_str()));
    assert_eq!(
        report.replay,
        [1, 2].map(|number| format!("torchleak run planted.yaml --torch v{number} --device cpu"))
    );
    assert!(report.tested.iter().all(|one| one.run_dir.as_ref().unwrap().join("events.jsonl").is_file()));

    // A finished one runs nothing more and says the same.
    let again = lab.bisect("v3", "v0", true).0.unwrap();
    assert_eq!(lab.source.asked().len(), 6);
    assert_eq!(cells(&again), cells(&report));
    assert!(again.conclusive && again.tested.iter().all(|one| one.cached));

    let document = bisect_document(&again);
    assert_eq!(document["schema"], 1);
    assert_eq!(document["find"], "fixed");
    assert_eq!(document["tested"][0]["answer"], "bad");
    assert_eq!(document["tested"][0]["verdict"], "uncollectable");
    let text = bisect_text(&again, false);
    for said in ["last bad: v1, reproduced", "first good: v2, fixed", &compared, &report.replay[0]] {
        assert!(text.contains(said), "{text}");
    }

    // The same ends the wrong way round need no run to be refused.
    let swapped = lab.bisect("v0", "v3", true).0.unwrap();
    assert!(!swapped.conclusive && swapped.reason.contains("swap --good and --bad"), "{}", swapped.reason);
    assert_eq!(lab.source.asked().len(), 6);

    let program = PROGRAM.replace("65536", "65537");
    let path = lab.context.program_case("planted", &program, "device: cpu");
    let changed = Lab { case: Case::load(&path).unwrap(), ..lab };
    let (report, _) = changed.bisect("v3", "v0", true);
    let error = report.unwrap_err();
    assert!(error.to_string().contains("the case `planted` has changed"), "{error}");
    assert!(error.hint().unwrap().contains("--resume"));
    assert_eq!(changed.source.asked().len(), 6);
}

#[test]
fn a_noisy_candidate_is_run_until_two_runs_agree() {
    let mut lab = Lab::new(&["fif", "r"]);
    lab.confirm = 3;
    let (report, _) = lab.bisect("v0", "v1", false);
    let report = report.unwrap();
    assert!(report.conclusive, "{}", report.reason);
    assert_eq!(lab.source.asked(), ["v0", "v0", "v0", "v1", "v1", "v0", "v0", "v1", "v1"]);
    assert_eq!((report.tested[0].runs, report.tested[1].runs), (5, 4));
}

#[test]
fn a_side_that_shows_something_else_the_second_time_is_not_conclusive() {
    let lab = Lab::new(&["fr", "r"]);
    let report = lab.bisect("v0", "v1", false).0.unwrap();
    assert!(!report.conclusive);
    assert!(report.reason.starts_with("v0 was good and, when it was run again, bad"), "{}", report.reason);
    assert!(report.reason.contains("--confirm 3"), "{}", report.reason);
}

#[test]
fn ends_that_show_the_same_are_said_to_be_alike() {
    let lab = Lab::new(&["r", "f", "r"]);
    let report = lab.bisect("v0", "v2", false).0.unwrap();
    assert!(!report.conclusive && report.last_before.is_none() && report.replay.is_empty());
    assert!(report.reason.contains("both ends, v0 and v2, are bad"), "{}", report.reason);
    assert_eq!(lab.source.asked(), ["v0", "v2"]);
}

#[test]
fn without_any_environment_the_reason_is_that_of_the_end() {
    let lab = Lab::new(&["n", "f"]);
    let report = lab.bisect("v0", "v1", false).0.unwrap();
    assert!(!report.conclusive && !report.had_an_environment());
    assert!(report.reason.contains("v0, the older end, cannot be told"), "{}", report.reason);
    assert!(report.reason.contains("/nonexistent"), "{}", report.reason);
    // It is no answer that is kept: the network or the disk may be back.
    let _ = lab.bisect("v0", "v1", true);
    assert_eq!(lab.source.asked(), ["v0", "v0"]);
}

/// A report as a bisection of thirteen nightlies gives it.
fn report() -> BisectReport {
    let tested = |candidate: &str, answer, verdict: Option<Verdict>, growth, reason: &str| Tested {
        candidate: candidate.to_owned(),
        answer,
        verdict,
        reason: reason.to_owned(),
        growth,
        runs: 1,
        seconds: 6.25,
        cached: false,
        torch: verdict.map(|_| format!("{candidate}+cpu")),
        commit: verdict.map(|_| "0123456789abcdef0123456789abcdef01234567".to_owned()),
        python: None,
        device: None,
        run_dir: None,
    };
    let missing = "there is no wheel\nfor this Python";
    let long = "x".repeat(500);
    let skipped = |candidate: &str, reason: &str| Skipped {
        candidate: candidate.to_owned(),
        reason: reason.to_owned(),
    };
    BisectReport {
        case: "some-case".to_owned(),
        find: Find::Introduced,
        last_before: Some("2.8.0.dev20250520".to_owned()),
        first_after: Some("2.8.0.dev20250523".to_owned()),
        tested: vec![
            tested("2.8.0.dev20250520", Answer::Good, Some(Verdict::Fixed), Some(12), "flat"),
            tested("2.8.0.dev20250521", Answer::Unknown, None, None, missing),
            tested("2.8.0.dev20250522", Answer::Unknown, Some(Verdict::Error), None, &long),
            tested("2.8.0.dev20250523", Answer::Bad, Some(Verdict::Reproduced), Some(2_147_483_648), "grows"),
        ],
        untested: 9,
        skipped: vec![skipped("2.8.0.dev20250521", missing), skipped("2.8.0.dev20250522", &long)],
        conclusive: false,
        reason: "one change lies between the two".to_owned(),
        notes: vec!["the environment has changed".to_owned()],
        replay: vec!["torchleak run a".to_owned(), "torchleak run b".to_owned()],
        compare: Some("https://github.com/pytorch/pytorch/compare/a...b".to_owned()),
        state: PathBuf::from("runs/bisect-some-case-01234567.json"),
    }
}

#[test]
fn a_person_reads_what_was_tested_then_the_two_sides_and_what_speaks_against_them() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("a_bisection_for_a_person", bisect_text(&report(), false)));
}

#[test]
fn the_document_has_whole_bytes_and_every_key_that_is_promised() {
    let document = bisect_document(&report());
    for key in ["case", "find", "last_before", "first_after", "tested", "conclusive", "reason", "replay"] {
        assert!(!document[key].is_null(), "{key} is not in {document:#}");
    }
    assert_eq!(document["tested"][3]["growth_bytes_per_step"], 2_147_483_648_u64);
    assert_eq!(document["tested"][1]["growth_bytes_per_step"], serde_json::Value::Null);
    assert_eq!(document["tested"][2]["answer"], "unknown");
}

#[rstest]
#[case::unknown_case(&["no-such-case", "--good", "2.6.0", "--bad", "2.7.1"], "no-such-case")]
#[case::several_cases(&["sac-stock", "no-ac-disable", "--good", "2.6.0", "--bad", "2.7.1"], "no-ac-disable")]
#[case::equal_ends(&["sac-stock", "--good", "2.6.0", "--bad", "2.6"], "2.6")]
#[case::no_end(&["sac-stock", "--good", "2.6.0"], "--bad")]
#[case::no_version(&["sac-stock", "--good", "banana", "--bad", "2.6.0"], "banana")]
#[case::find(&["sac-stock", "--good", "2.6.0", "--bad", "2.7.1", "--find", "fixed"], "--find fixed")]
#[case::torch(&["sac-stock", "--good", "2.6.0", "--bad", "2.7.1", "--torch", "2.6.0"], "--torch")]
#[case::confirm(&["sac-stock", "--good", "2.6.0", "--bad", "2.7.1", "--confirm", "0"], "--confirm")]
fn bad_usage_has_exit_code_2_and_names_the_culprit(#[case] arguments: &[&str], #[case] culprit: &str) {
    let context = Context::new();
    let mut command = context.command();
    command.env_remove("TORCHLEAK_PYTHON").env_remove("TORCHLEAK_TORCH");
    let finished = Finished::of(command.arg("bisect").args(arguments).output().unwrap());
    assert_eq!(finished.code, 2, "{}", finished.stderr);
    assert!(finished.stderr.contains(culprit), "{}", finished.stderr);
    assert_eq!(finished.stdout, "");
    assert!(!context.path().join("runs").exists(), "nothing was begun");
}

#[test]
fn a_garbled_state_has_exit_code_2_and_is_left_alone() {
    let context = Context::new();
    let state = context.write("state.json", "half a li");
    let mut command = context.command();
    command.args(["bisect", "sac-stock", "--good", "2.6.0", "--bad", "2.7.1"]);
    let finished = Finished::of(command.arg("--state").arg(&state).output().unwrap());
    assert_eq!(finished.code, 2, "{}", finished.stderr);
    assert!(
        finished.stderr.contains("state.json") && finished.stderr.contains("--state"),
        "{}",
        finished.stderr
    );
    assert_eq!(std::fs::read_to_string(state).unwrap(), "half a li");
}
