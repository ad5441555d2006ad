use rstest::rstest;

use super::*;
use crate::case::Verdict;

fn case(summary: &str) -> Case {
    let yaml = format!(
        "name: some-case\nsummary: {summary}\nmodel: {{block: llama3, layers: 1, dim: 8, heads: 2, ffn_dim: 16}}\ninput: {{batch: 1, seq: 8}}\nexpect: [{{verdict: fixed}}]\n"
    );
    Case::from_bytes("some-case.yaml", yaml.as_bytes()).unwrap()
}

fn candidates(labels: &[&str]) -> Vec<Candidate> {
    let candidate = |label: &&str| Candidate {
        label: (*label).to_owned(),
        identity: format!("identity of {label}"),
        commit: None,
        note: None,
    };
    labels.iter().map(candidate).collect()
}

fn subject(candidates: &[Candidate]) -> Subject {
    Subject::new(&case("A case."), "releases", candidates)
}

fn run(label: &str, python: &str) -> Run {
    Run {
        candidate: label.to_owned(),
        identity: format!("identity of {label}"),
        recheck: false,
        shown: Shown::Cell(Box::new(Cell {
            case: "some-case".to_owned(),
            label: label.to_owned(),
            torch: label.to_owned(),
            torch_commit: Some("0123456789abcdef".to_owned()),
            overlay: None,
            python: python.to_owned(),
            device: Device::Cpu,
            verdict: Some(Verdict::Fixed),
            reason: "nothing stays".to_owned(),
            expected: None,
            ok: true,
            growth: Some(-1),
            seconds: 1.5,
            run_dir: None,
            cached: false,
        })),
    }
}

fn unavailable(label: &str, lasting: bool) -> Run {
    Run { shown: Shown::Unavailable { reason: "none".to_owned(), lasting }, ..run(label, "") }
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("runs/state.json")
    }

    fn open(
        &self,
        labels: &[&str],
        device: Option<Device>,
        resume: bool,
    ) -> Result<(State, Vec<String>), StateError> {
        let candidates = candidates(labels);
        State::open(&self.path(), subject(&candidates), &candidates, device, resume)
    }

    /// A state with runs of these candidates, closed again.
    fn with_runs(runs: Vec<Run>) -> Self {
        let place = Self::new();
        let (mut state, _) = place.open(&["1", "2", "3"], None, false).unwrap();
        for run in runs {
            assert_eq!(state.push(run).unwrap(), None);
        }
        place
    }
}

#[test]
fn every_run_is_on_disk_as_soon_as_it_is_kept_and_comes_back_as_cached() {
    let place = Place::with_runs(vec![run("1", "3.12.1"), unavailable("2", true)]);
    let (state, notes) = place.open(&["1", "2", "3"], None, true).unwrap();
    assert_eq!(notes, ["resuming with 2 runs"]);
    let mut expected = run("1", "3.12.1");
    if let Shown::Cell(cell) = &mut expected.shown {
        cell.cached = true;
    }
    assert_eq!(state.runs(), [expected, unavailable("2", true)]);
    assert_eq!(state.device(), Some(Device::Cpu));
}

#[test]
fn a_candidate_that_had_no_environment_is_tried_again() {
    let place = Place::with_runs(vec![unavailable("1", false), unavailable("2", true)]);
    let (state, _) = place.open(&["1", "2", "3"], None, true).unwrap();
    assert_eq!(state.runs(), [unavailable("2", true)]);
}

#[test]
fn without_resume_an_unfinished_state_is_set_aside_and_said() {
    let place = Place::with_runs(vec![run("1", "3.12.1")]);
    let (state, notes) = place.open(&["1", "2", "3"], None, false).unwrap();
    assert!(state.runs().is_empty());
    assert!(
        notes[0].contains("unfinished bisection with 1 run") && notes[0].contains("--resume"),
        "{notes:?}"
    );
    let aside = place.path().with_extension("json.old");
    std::fs::rename(aside, place.path()).unwrap();
    let (state, _) = place.open(&["1", "2", "3"], None, true).unwrap();
    assert_eq!(state.runs().len(), 1);
}

#[test]
fn a_finished_state_is_set_aside_in_silence() {
    let place = Place::with_runs(vec![run("1", "3.12.1")]);
    let (mut state, _) = place.open(&["1", "2", "3"], None, true).unwrap();
    state.finish().unwrap();
    let (_, notes) = place.open(&["1", "2", "3"], None, false).unwrap();
    assert!(notes.is_empty(), "{notes:?}");
}

#[test]
fn with_nothing_to_resume_it_begins_anew_and_says_so() {
    let place = Place::new();
    let (state, notes) = place.open(&["1", "2"], None, true).unwrap();
    assert!(state.runs().is_empty());
    assert!(notes[0].starts_with("there is no state"), "{notes:?}");
}

#[rstest]
#[case::no_json("half a li")]
#[case::empty("")]
#[case::not_utf8("\u{0}\u{1}")]
#[case::other_json(r#"{"precious": true}"#)]
#[case::other_schema(r#"{"schema": 99, "torchleak": "9", "subject": {"case": "a", "case_hash": "b", "source": "c", "oldest": "1", "newest": "2"}, "device": null, "candidates": [], "finished": false, "runs": []}"#)]
fn what_is_no_state_is_refused_and_left_alone(#[case] text: &str, #[values(true, false)] resume: bool) {
    let place = Place::new();
    std::fs::create_dir_all(place.path().parent().unwrap()).unwrap();
    std::fs::write(place.path(), text).unwrap();
    let error = place.open(&["1", "2"], None, resume).unwrap_err();
    assert!(matches!(error, StateError::Garbled { .. }) && error.is_usage(), "{error}");
    assert!(error.to_string().contains("state.json"), "{error}");
    assert_eq!(std::fs::read_to_string(place.path()).unwrap(), text);
}

#[test]
fn a_changed_case_is_refused_and_its_runs_are_left_alone() {
    let place = Place::with_runs(vec![run("1", "3.12.1")]);
    let all = candidates(&["1", "2", "3"]);
    let changed = Subject::new(&case("Another case."), "releases", &all);
    let error = State::open(&place.path(), changed, &all, None, true).unwrap_err();
    assert!(matches!(error, StateError::ChangedCase { .. }), "{error}");
    assert_eq!(place.open(&["1", "2", "3"], None, true).unwrap().0.runs().len(), 1);
}

#[test]
fn another_device_and_other_ends_are_refused() {
    let place = Place::with_runs(vec![run("1", "3.12.1")]);
    let error = place.open(&["1", "2", "3"], Some(Device::Cuda), true).unwrap_err();
    assert!(matches!(error, StateError::OtherDevice { .. }), "{error}");
    let error = place.open(&["1", "2"], None, true).unwrap_err();
    assert!(error.to_string().contains("1 to 3") && error.to_string().contains("1 to 2"), "{error}");
    place.open(&["1", "2", "3"], Some(Device::Cpu), true).unwrap();
}

#[test]
fn runs_of_what_is_no_candidate_any_more_are_dropped_and_said() {
    let place = Place::with_runs(vec![run("1", "3.12.1"), run("2", "3.12.1")]);
    let (state, notes) = place.open(&["1", "1.5", "3"], None, true).unwrap();
    assert_eq!(state.runs().len(), 1);
    assert!(notes.iter().any(|note| note.contains("1 run of 2 are not used")), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("list of candidates has changed")), "{notes:?}");
}

#[test]
fn a_run_in_a_changed_environment_replaces_those_before_it() {
    let place = Place::with_runs(vec![run("1", "3.12.1"), run("2", "3.12.1")]);
    let (mut state, _) = place.open(&["1", "2", "3"], None, true).unwrap();
    let again = Run { recheck: true, ..run("1", "3.13.0") };
    let note = state.push(again).unwrap().unwrap();
    assert!(note.contains("Python 3.12.1") && note.contains("Python 3.13.0"), "{note}");
    let of = |recheck| state.runs_of("identity of 1", recheck).count();
    assert_eq!((of(false), of(true)), (1, 0), "it is now the first of its environment");
    assert_eq!(state.runs_of("identity of 2", false).count(), 1);
}

#[test]
fn the_default_file_depends_on_the_ends_and_not_on_the_content_of_the_case() {
    let path = |summary: &str, labels: &[&str]| {
        Subject::new(&case(summary), "releases", &candidates(labels)).default_path(Path::new("runs"))
    };
    assert_eq!(path("A case.", &["1", "2"]), path("Another.", &["1", "2"]));
    assert_ne!(path("A case.", &["1", "2"]), path("A case.", &["1", "3"]));
    let name = path("A case.", &["1", "2"]).display().to_string();
    assert!(name.starts_with("runs/bisect-some-case-") && name.ends_with(".json"), "{name}");
}

#[test]
fn a_state_that_cannot_be_written_is_an_error_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let all = candidates(&["1", "2"]);
    let path = folder.path().join("file/state.json");
    let error = State::open(&path, subject(&all), &all, None, false).unwrap_err();
    assert!(matches!(error, StateError::Io { .. }) && !error.is_usage(), "{error}");
}
