//! Which nightlies are chosen, and which are one.

use super::*;
use crate::environment::EnvironmentArgs;

const MACHINE: Machine<'static> = Machine { python_minor: 12, os: "linux", arch: "x86_64" };

fn file(name: &str) -> File {
    let url = format!("https://example.org/{}", name.replace('+', "%2B"));
    File { name: name.to_owned(), url: url.parse().unwrap(), requires_python: None, yanked: false }
}

fn wheel(version: &str, tags: &str) -> File {
    file(&format!("torch-{version}-{tags}.whl"))
}

fn nightly(day: u32, tags: &str) -> File {
    wheel(&format!("2.8.0.dev202505{day:02}+cu128"), tags)
}

const FITS: &str = "cp312-cp312-manylinux_2_28_x86_64";

fn chosen(files: &[File], range: &str) -> Result<Vec<String>, SourceError> {
    let found = select(files, "the index", &MACHINE, range.parse().unwrap())?;
    Ok(found.iter().map(|nightly| nightly.version.to_string()).collect())
}

#[test]
fn what_fits_is_sorted_by_date_and_each_version_is_there_once() {
    let files = [
        nightly(27, FITS),
        nightly(27, "cp312-cp312-linux_x86_64"),
        wheel("2.9.0.dev20250528+cu128", FITS),
        nightly(28, FITS),
        nightly(3, FITS),
        nightly(4, "cp313-cp313-manylinux_2_28_x86_64"),
        nightly(5, "cp312-cp312-win_amd64"),
        File { yanked: true, ..nightly(6, FITS) },
        File { requires_python: Some(">=3.13".to_owned()), ..nightly(7, FITS) },
        wheel("2.8.0", FITS),
        wheel("2.8.0.dev99999999", FITS),
        file("torchvision-0.23.0.dev20250501-cp312-cp312-linux_x86_64.whl"),
        file("torch-2.8.0.dev20250501.tar.gz"),
    ];
    let all = chosen(&files, "").unwrap();
    assert_eq!(
        all,
        [
            "2.8.0.dev20250503+cu128",
            "2.8.0.dev20250527+cu128",
            "2.8.0.dev20250528+cu128",
            "2.9.0.dev20250528+cu128"
        ]
    );
    assert_eq!(chosen(&files, "2025-05-04..2025-05-27").unwrap(), all[1..2]);
}

#[test]
fn an_index_without_nightlies_says_so() {
    let error = chosen(&[wheel("2.8.0", FITS)], "").unwrap_err();
    assert!(matches!(error, SourceError::NoNightlies { .. }), "{error}");
}

#[test]
fn a_python_without_a_build_is_told_which_there_are() {
    let files = [
        nightly(1, "cp313-cp313t-linux_x86_64"),
        nightly(1, "cp313-cp313-linux_x86_64"),
        nightly(1, "cp39-cp39-linux_x86_64"),
        nightly(1, "cp312-cp312-win_amd64"),
    ];
    let error = chosen(&files, "").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the index has no torch for Python 3.12 on linux x86_64; it has builds for Python 3.9, 3.13, 3.13t"
    );
    let error = chosen(&files[3..], "").unwrap_err();
    assert!(error.to_string().ends_with("it has none for linux x86_64 at all"), "{error}");
}

#[test]
fn dates_without_nightlies_are_told_the_first_and_the_last() {
    let error = chosen(&[nightly(20, FITS), nightly(3, FITS)], "..2025-04-30").unwrap_err();
    assert!(error.is_usage());
    assert_eq!(
        error.to_string(),
        "the index has no nightly in ..2025-04-30: the first is of 2025-05-03, the last of 2025-05-20"
    );
}

/// Nightlies of the first days of May with these commits.
fn nightlies(commits: &[Option<&str>], index: &str) -> Nightlies {
    let files: Vec<File> = (1..).zip(commits).map(|(day, _)| nightly(day, FITS)).collect();
    let found = select(&files, "the index", &MACHINE, DateRange::default()).unwrap();
    let known = commits.iter().map(|commit| Known { commit: commit.map(str::to_owned), gone: None });
    let args = EnvironmentArgs { torch_backend: Some("cu128".into()), ..EnvironmentArgs::default() };
    let Request::Managed(template) = Request::new(&args, |_| None).unwrap() else { unreachable!() };
    let cache = Cache::at(std::path::Path::new("/nonexistent"));
    Nightlies::of(found, known.collect(), &IndexUrl::parse(index).unwrap(), 12, &template, &cache)
}

fn labels(nightlies: &Nightlies) -> Vec<&str> {
    nightlies.candidates().iter().map(|candidate| candidate.label.as_str()).collect()
}

#[test]
fn dates_in_a_row_of_one_commit_are_one_candidate() {
    let found = nightlies(
        &[Some("a"), Some("b"), Some("b"), Some("b"), None, None, Some("b")],
        "https://example.org/",
    );
    // The last is of the commit of the second: it is not next to it, so the history between them counts.
    let days = ["01", "02", "05", "06", "07"].map(|day| format!("2.8.0.dev202505{day}+cu128"));
    assert_eq!(labels(&found), days);
    let merged: Vec<_> = found.merged().iter().map(|one| (one.label.as_str(), one.into.as_str())).collect();
    assert_eq!(
        merged,
        [("2.8.0.dev20250503+cu128", days[1].as_str()), ("2.8.0.dev20250504+cu128", days[1].as_str())]
    );
}

#[test]
fn a_candidate_is_found_by_its_date_its_version_and_by_what_it_stands_for() {
    let found = nightlies(&[Some("a"), Some("b"), Some("b")], "https://example.org/");
    for given in [
        "2025-05-02",
        "20250502",
        "2.8.0.dev20250502",
        "2.8.0.dev20250502+cu128",
        "2025-05-03",
        "2.8.0.dev20250503",
    ] {
        assert_eq!(found.find(given).unwrap(), "2.8.0.dev20250502+cu128", "{given}");
    }
    for given in ["2025-05-09", "2.8.0", "2.8.0.dev20250502+cpu", "banana", ""] {
        assert_eq!(found.find(given), None, "{given}");
    }
}

#[test]
fn a_replay_names_the_version_the_python_and_the_index_without_its_password() {
    let found = nightlies(&[Some("a")], "https://me:secret@example.org/whl");
    let candidate = &found.candidates()[0];
    assert_eq!(
        found.replay(candidate).join(" "),
        "--torch 2.8.0.dev20250501+cu128 --python-version 3.12 --extra-index-url https://example.org/whl/"
    );
    assert_eq!(
        candidate.identity,
        nightlies(&[None], "https://example.org/whl").candidates()[0].identity,
        "a password makes no other environment"
    );
    assert!(!format!("{found:?}").contains("secret"), "{found:?}");
}
