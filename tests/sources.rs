//! Candidates that are no releases: from a local index that the test serves, and from files.

#[path = "support/server.rs"]
mod server;
mod support;
#[path = "support/torch_wheels.rs"]
mod torch_wheels;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use base64::Engine;
use rstest::rstest;
use server::{Server, Site};
use support::Finished;
use torch_wheels::{Build, REAL, folder_with_a_cache};
use torchleak::cache::Cache;
use torchleak::environment::{EnvironmentArgs, Managed, Progress, Request, Silent};
use torchleak::index::IndexUrl;
use torchleak::versions::{Nightlies, Source, SourceError, Unavailable, Wheels};

const FIRST: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const SECOND: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const SECRET: &str = "hunter2";

/// A test's folder with a cache of its own, which shares uv and its downloads with the user's.
struct Context {
    folder: tempfile::TempDir,
    cache: Cache,
}

impl Context {
    fn new() -> Self {
        let (folder, cache) = folder_with_a_cache();
        Self { folder, cache }
    }

    fn folder(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Runs the case on a candidate with the options of its replay; gives the verdict.
    fn replay(&self, source: &dyn Source, label: &str) -> String {
        let candidate = source.candidates().iter().find(|candidate| candidate.label == label).unwrap();
        let made = self.environments();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_torchleak"));
        command.args(["run", "sac-stock", "--device", "cpu", "--format", "json", "--cache-dir"]);
        command.arg(self.cache.root()).args(source.replay(candidate)).current_dir(self.folder.path());
        let finished = Finished::of(command.output().unwrap());
        let document: serde_json::Value = serde_json::from_str(&finished.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", finished.stdout, finished.stderr));
        assert_eq!(self.environments(), made, "the replay runs in the environment that was made");
        assert_eq!(document["environment"]["torch"], label, "{document:#}");
        document["cases"][0]["verdict"].as_str().unwrap_or_else(|| panic!("{document:#}")).to_owned()
    }

    /// Bisects between two dates of an index, in the environments that are there, which is not conclusive.
    fn bisect(&self, index: &str, [good, bad]: [&str; 2]) -> serde_json::Value {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_torchleak"));
        command.args(["bisect", "sac-stock", "--good", good, "--bad", bad, "--nightly", "--index", index]);
        command.args(["--device", "cpu", "--format", "json", "--python-version"]);
        command.arg(format!("3.{}", REAL.python_minor)).arg("--cache-dir").arg(self.cache.root());
        let finished = Finished::of(command.current_dir(self.folder.path()).output().unwrap());
        assert_eq!(finished.code, 4, "{}", finished.stderr);
        assert!(!finished.stderr.contains(SECRET), "{}", finished.stderr);
        serde_json::from_str(&finished.stdout).unwrap()
    }

    fn environments(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.cache.environments()).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        found.sort();
        found
    }
}

fn template() -> Managed {
    match Request::new(&EnvironmentArgs::default(), |_| None).unwrap() {
        Request::Managed(managed) => managed,
        Request::Interpreter(path) => panic!("{}", path.display()),
    }
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

/// An index of four nightlies: the first two are of one commit, the third is listed and gone, the fourth leaks.
fn site(folder: &Path) -> Site {
    let mut site = Site { gives_parts: true, ..Site::default() };
    let mut page = "<!DOCTYPE html><html><body><h1>Links for torch</h1>\n".to_owned();
    // Not in order, as on real pages.
    for (date, commit) in
        [("20260104", Some(SECOND)), ("20260103", None), ("20260101", Some(FIRST)), ("20260102", Some(FIRST))]
    {
        let name = REAL.wheel_name(date);
        page.push_str(&format!("<a href=\"/files/{}\">{name}</a><br/>\n", name.replace('+', "%2B")));
        if let Some(commit) = commit {
            let path = REAL.write(&Build { date, commit, leaks: commit == SECOND }, folder);
            let bytes = fs::read(path).unwrap();
            site.files.insert(format!("/files/{name}"), ("application/zip".to_owned(), bytes));
        }
    }
    page.push_str(&format!(
        "<a href=\"/files/{0}\">{0}</a></body></html>",
        "torch-2.0.0-cp38-cp38-linux_x86_64.whl"
    ));
    site.files.insert("/whl/torch/".to_owned(), ("text/html".to_owned(), page.into_bytes()));
    site.files.insert("/whl/".to_owned(), ("text/html".to_owned(), b"<a href='torch/'>torch</a>".to_vec()));
    site
}

fn nightlies(index: &str, context: &Context, progress: &dyn Progress) -> Result<Nightlies, SourceError> {
    let range = "2026-01-01..2026-01-31".parse().unwrap();
    Nightlies::new(&IndexUrl::parse(index)?, range, REAL.python_minor, &template(), &context.cache, progress)
}

fn labels(source: &dyn Source) -> Vec<String> {
    source.candidates().iter().map(|candidate| candidate.label.clone()).collect()
}

#[test]
fn nightlies_of_an_index_with_a_password_are_listed_merged_installed_and_judged() {
    let context = Context::new();
    let mut site = site(&context.folder("wheels"));
    let encoded = base64::prelude::BASE64_STANDARD.encode(format!("me:{SECRET}"));
    site.authorization = Some(format!("Basic {encoded}"));
    let server = Server::start(site);
    let told = Remembering::default();

    let error = nightlies(&server.url("/whl"), &context, &told).unwrap_err();
    assert!(error.to_string().contains("HTTP 401") && error.hint().unwrap().contains("netrc"), "{error}");

    let index = server.url("/whl").replace("http://", &format!("http://me:{SECRET}@"));
    let found = nightlies(&index, &context, &told).unwrap();
    let [first, second, gone, leaks] =
        ["01", "02", "03", "04"].map(|day| REAL.nightly(&format!("202601{day}")));
    assert_eq!(labels(&found), [first.clone(), gone.clone(), leaks.clone()]);
    let commits: Vec<_> = found.candidates().iter().map(|candidate| candidate.commit.as_deref()).collect();
    assert_eq!(commits, [Some(FIRST), None, Some(SECOND)]);
    assert_eq!(
        found.merged().iter().map(|one| (&one.label, &one.into)).collect::<Vec<_>>(),
        [(&second, &first)]
    );
    assert_eq!(found.find("2026-01-02").as_ref(), Some(&first));
    let asked: Vec<String> = server.asked().into_iter().filter(|asked| asked.contains(".whl")).collect();
    // The end of each, and then the one file in it; the wheel that is gone is asked for once.
    assert_eq!(asked.len(), 3 * 2 + 1, "{asked:?}");
    assert_eq!(asked.iter().filter(|asked| asked.ends_with(" bytes=-1572864")).count(), 4, "{asked:?}");
    assert!(asked.iter().all(|asked| asked.contains(" bytes=")), "{asked:?}");

    for candidate in found.candidates() {
        match found.environment(candidate, &told) {
            Ok(environment) => {
                assert_eq!(environment.facts.torch, candidate.label);
                assert_eq!(environment.facts.torch_commit, candidate.commit);
                assert_eq!(environment.key(), Some(candidate.identity.as_str()));
            }
            Err(error) => {
                assert_eq!(candidate.label, gone, "{error}");
                assert!(
                    matches!(error, Unavailable::Broken(_)) && error.to_string().contains("HTTP 404"),
                    "{error}"
                );
            }
        }
    }
    assert_eq!(context.replay(&found, &first), "fixed");
    assert_eq!(context.replay(&found, &leaks), "reproduced");

    let document = context.bisect(&index, ["2026-01-01", "2026-01-04"]);
    assert_eq!(
        (&document["last_before"], &document["first_after"]),
        (&first.as_str().into(), &leaks.as_str().into())
    );
    assert_eq!(document["find"], "introduced");
    assert_eq!(document["conclusive"], false, "the wheel that is gone lies between the two: {document:#}");
    let answers: Vec<_> = document["tested"].as_array().unwrap().iter().map(|one| &one["answer"]).collect();
    assert_eq!(answers, ["good", "unknown", "bad"]);
    assert!(document["tested"][1]["reason"].as_str().unwrap().contains("HTTP 404"), "{document:#}");
    let link = format!("https://github.com/pytorch/pytorch/compare/{FIRST}...{SECOND}");
    assert_eq!(document["compare"], link);
    assert!(!document.to_string().contains(SECRET), "{document:#}");

    // Their commits are kept, and what was made is found again although nothing is asked of the wheels any more.
    let before = server.asked().len();
    let again = nightlies(&index, &context, &told).unwrap();
    assert_eq!(again.candidates(), found.candidates());
    let asked = server.asked()[before..].iter().filter(|asked| asked.contains(".whl")).count();
    assert_eq!(asked, 1, "only the wheel that is gone is asked for again");

    let told = told.0.into_inner().unwrap().join("\n");
    assert!(
        told.contains("reading the commits of 4 wheels") && told.contains("installing torch=="),
        "{told}"
    );
    let kept = fs::read_to_string(context.environments()[0].join("torchleak.json")).unwrap();
    assert!(!told.contains(SECRET) && !kept.contains(SECRET), "{told}\n{kept}");
}

#[test]
fn without_parts_of_files_no_commit_is_known_and_every_date_is_a_candidate() {
    let context = Context::new();
    let server = Server::start(Site { gives_parts: false, ..site(&context.folder("wheels")) });
    let found = nightlies(&server.url("/whl/"), &context, &Silent).unwrap();
    assert_eq!(found.candidates().len(), 4);
    assert!(found.candidates().iter().all(|candidate| candidate.commit.is_none()));
}

#[test]
fn an_index_that_answers_in_json_has_the_same_nightlies() {
    let context = Context::new();
    let mut site = site(&context.folder("wheels"));
    let html = site.files.remove("/whl/torch/").unwrap().1;
    let html = String::from_utf8(html).unwrap();
    let files: Vec<serde_json::Value> = html
        .split("href=\"")
        .skip(1)
        .map(|rest| {
            let url = rest.split('"').next().unwrap();
            let filename = url.rsplit('/').next().unwrap().replace("%2B", "+");
            serde_json::json!({"filename": filename, "url": format!("../..{url}"), "hashes": {}})
        })
        .collect();
    let page =
        serde_json::json!({"meta": {"api-version": "1.0"}, "name": "torch", "files": files}).to_string();
    let kind = "application/vnd.pypi.simple.v1+json".to_owned();
    site.files.insert("/whl/torch/".to_owned(), (kind, page.into_bytes()));
    let server = Server::start(site);
    let found = nightlies(&server.url("/whl"), &context, &Silent).unwrap();
    assert_eq!(labels(&found), ["01", "03", "04"].map(|day| REAL.nightly(&format!("202601{day}"))));
}

#[rstest]
#[case::nobody_listens("http://127.0.0.1:9/whl", "cannot reach http://127.0.0.1:9/whl/torch/", "HTTPS_PROXY")]
#[case::no_such_index("/nowhere", "HTTP 404", "--index")]
#[case::no_torch("/empty", "lists no nightly of torch", "--index")]
#[case::a_login_page("/login", "is not a page of a package index", "--index")]
fn an_index_that_gives_nothing_is_an_error_that_says_what_to_try(
    #[case] index: &str,
    #[case] why: &str,
    #[case] hint: &str,
) {
    let context = Context::new();
    let mut site = Site::default();
    let html = |text: &str| ("text/html".to_owned(), text.as_bytes().to_vec());
    site.files.insert("/empty/".to_owned(), html("<a href='numpy/'>numpy</a>"));
    site.files.insert("/login/torch/".to_owned(), html("<html><form>Please log in</form></html>"));
    let server = Server::start(site);
    let index = if index.starts_with('/') { server.url(index) } else { index.to_owned() };
    let error = nightlies(&index, &context, &Silent).unwrap_err();
    assert!(error.to_string().contains(why), "{error}");
    assert!(error.hint().unwrap().contains(hint), "{:?}", error.hint());
}

#[test]
fn wheels_of_a_folder_and_of_a_url_are_installed_and_replayed() {
    let context = Context::new();
    let folder = context.folder("wheelhouse");
    let leaks = REAL.write(&Build { date: "20260201", commit: SECOND, leaks: true }, &folder);
    let found = Wheels::in_folder(&folder, REAL.python_minor, &template(), &context.cache).unwrap();
    let [candidate] = found.candidates() else { panic!("{:?}", found.candidates()) };
    assert_eq!(candidate.commit.as_deref(), Some(SECOND));
    let environment = found.environment(candidate, &Silent).unwrap();
    assert_eq!(environment.facts.torch_commit.as_deref(), Some(SECOND));
    assert_eq!(environment.key(), Some(candidate.identity.as_str()));
    drop(environment);
    assert_eq!(context.replay(&found, &candidate.label), "reproduced");

    let name = leaks.file_name().unwrap().to_str().unwrap();
    let mut site = Site { gives_parts: true, ..Site::default() };
    site.files.insert(format!("/{name}"), ("application/zip".to_owned(), fs::read(&leaks).unwrap()));
    let server = Server::start(site);
    let given = [server.url(&format!("/{}", name.replace('+', "%2B"))), server.url(&format!("/gone/{name}"))];
    let given = Wheels::given(&given, REAL.python_minor, &template(), &context.cache, &Silent).unwrap();
    let [there, gone] = given.candidates() else { panic!("{:?}", given.candidates()) };
    assert_eq!((there.commit.as_deref(), gone.commit.as_deref()), (Some(SECOND), None));
    assert_ne!(there.identity, candidate.identity);
    assert_eq!(given.environment(there, &Silent).unwrap().facts.torch_commit.as_deref(), Some(SECOND));
    let error = given.environment(gone, &Silent).unwrap_err();
    assert!(error.to_string().contains("HTTP 404"), "{error}");
}

#[test]
fn nightlies_of_an_index_in_a_folder_are_installed() {
    let context = Context::new();
    let index = context.folder("index");
    let project = context.folder("index/torch");
    let wheel = REAL.write(&Build { date: "20260101", commit: FIRST, leaks: false }, &project);
    let name = wheel.file_name().unwrap().to_str().unwrap();
    let page = format!(
        "<!DOCTYPE html><html><body><a href=\"{}\">{name}</a></body></html>",
        name.replace('+', "%2B")
    );
    fs::write(project.join("index.html"), page).unwrap();
    let found = nightlies(index.to_str().unwrap(), &context, &Silent).unwrap();
    let [candidate] = found.candidates() else { panic!("{:?}", found.candidates()) };
    assert_eq!(candidate.commit.as_deref(), Some(FIRST));
    let environment = found.environment(candidate, &Silent).unwrap();
    assert_eq!(environment.facts.torch_commit.as_deref(), Some(FIRST));
}
