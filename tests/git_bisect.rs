//! `git bisect run torchleak run CASE --exit-code bisect`, and `ci/bisect.sh` in its place, in a real repository, on
//! real PyTorch.

mod support;

use std::path::Path;
use std::process::Command;

use rstest::rstest;
use support::{Context, Finished, skipped};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/ci/bisect.sh");

/// A repository in which a program's history is written.
struct Repository<'a> {
    folder: &'a Path,
}

impl Repository<'_> {
    fn git(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.current_dir(self.folder).args(arguments);
        // The user's settings, such as signing, are not the test's.
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        for (name, value) in [("NAME", "test"), ("EMAIL", "test@localhost")] {
            command.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.git(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert!(
            output.status.success(),
            "git {arguments:?}: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        said
    }

    fn commit(&self, program: &str) -> String {
        std::fs::write(self.folder.join("leak.py"), program).unwrap();
        self.run(&["add", "leak.py", "leak.yaml"]);
        self.run(&["commit", "--quiet", "--allow-empty", "--message", "change"]);
        self.run(&["rev-parse", "HEAD"])
    }
}

#[rstest]
#[case::torchleak_itself(false)]
#[case::the_script(true)]
fn git_bisect_run_finds_the_commit_that_brought_the_cycle_and_skips_what_does_not_import(
    #[case] by_script: bool,
) {
    if Command::new("git").arg("--version").output().is_err() {
        skipped("git bisect run", "there is no git");
        return;
    }
    let context = Context::new();
    let clean = "def setup(ctx):\n    return ctx\n\ndef step(ctx):\n    one = [ctx.torch.zeros(65536)]\n    return 1.0\n";
    let leaks = clean.replace("    return 1.0", "    one.append(one)\n    return 1.0");
    let broken = format!("import a_module_that_is_not_there\n{clean}");
    context.program_case("leak", clean, "device: cpu");
    let repository = Repository { folder: context.path() };
    repository.run(&["init", "--quiet"]);
    let versions = [clean, clean, clean, &broken, clean, &leaks, &leaks];
    let commits: Vec<String> = (0..)
        .zip(versions)
        .map(|(number, program)| repository.commit(&format!("# version {number}\n{program}")))
        .collect();
    repository.run(&["bisect", "start", &commits[6], &commits[0]]);
    let runs = tempfile::tempdir().unwrap();
    let mut command = repository.git(&["bisect", "run"]);
    if by_script {
        command.args([SCRIPT, "leak.yaml", "--device", "cpu"]).env("RUNS", runs.path());
        command.env("TORCHLEAK", env!("CARGO_BIN_EXE_torchleak"));
        command.env("BUILD", "echo built >> .git/builds && ! grep --quiet not_there leak.py");
    } else {
        command.args([env!("CARGO_BIN_EXE_torchleak"), "run", "leak.yaml", "--exit-code", "bisect"]);
        command.args(["--device", "cpu", "--runs"]).arg(runs.path());
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains(&format!("{} is the first bad commit", commits[5])), "{said}");
    let log = repository.run(&["bisect", "log"]);
    assert!(log.contains(&format!("git bisect skip {}", commits[3])), "{log}");
    let tested = std::fs::read_dir(runs.path()).unwrap().count();
    if by_script {
        // Of the commit that does not build nothing was run.
        let built = std::fs::read_to_string(context.path().join(".git/builds")).unwrap().lines().count();
        assert_eq!(built, tested + 1, "{log}");
    }
}

#[test]
fn the_bisection_script_stops_git_where_it_is_called_in_a_wrong_way() {
    let context = Context::new();
    let script = |arguments: &[&str]| {
        let mut command = Command::new(SCRIPT);
        command.args(arguments).current_dir(context.path()).env("GIT_CEILING_DIRECTORIES", "/");
        Finished::of(command.env("TORCHLEAK", env!("CARGO_BIN_EXE_torchleak")).output().unwrap())
    };
    let alone = script(&[]);
    assert_eq!(alone.code, 128);
    assert!(alone.stdout.contains("git bisect run /path/to/ci/bisect.sh"), "{}", alone.stdout);
    // Outside of a repository, too.
    assert_eq!(script(&["leak.yaml"]).code, 128);
    Repository { folder: context.path() }.run(&["init", "--quiet"]);
    assert_eq!(script(&["no-such-case"]).code, 128);
}
