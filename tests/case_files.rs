//! Case files, good and bad: every error names its place and says what to write instead.

use std::{fs, path::Path, path::PathBuf};

use rstest::rstest;
use torchleak::case::{Case, CaseError, Catalog};

/// A small good case. Bad ones are made by replacing one line of it.
const GOOD: &str = "\
name: good
summary: A block output is held by a cycle.
model: {block: llama3, layers: 4, dim: 256, heads: 8, kv_heads: 4, ffn_dim: 512}
input: {batch: 2, seq: 128}
steps: 6
warmup: 2
checkpoint:
  mode: selective
compile:
  disable: {api: torch._disable_dynamo, site: recompute-fn}
arms: [uncollected, collected]
retains:
  tensors:
    - {name: block output, shape: [batch*seq, dim], per: layer}
  rng_states: 1
expect:
  - {torch: \">=2.6\", verdict: reproduced}
";

/// Compares with `snapshots/case_files__NAME.snap`.
fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(true);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

fn refused(yaml: &str) -> CaseError {
    match Case::from_bytes("good.yaml", yaml.as_bytes()) {
        Err(error) => error,
        Ok(_) => panic!("accepted:\n{yaml}"),
    }
}

fn changed(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    GOOD.replace(from, to)
}

#[test]
fn the_documents_examples_are_good() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let document = include_str!("../docs/case-format.md");
    let block = |from: &str| -> String {
        let lines = document.lines().skip_while(|line| line.trim() != from);
        lines.map_while(|line| line.strip_prefix("    ")).map(|line| format!("{line}\n")).collect()
    };
    fs::write(dir.join("list-keeps-payload.py"), "").unwrap();
    load(dir, "list-keeps-payload.yaml", block("name: list-keeps-payload").as_bytes()).unwrap();
    let arms = changed("arms: [uncollected, collected]\n", &block("arms:"));
    assert_eq!(load(dir, "good.yaml", arms.as_bytes()).unwrap().spec.arms.len(), 4);
    let (start, _) = GOOD.split_once("expect:").unwrap();
    let on = format!("{start}{}{}", block("on:"), block("expect:"));
    load(dir, "good.yaml", on.as_bytes()).unwrap();
}

#[test]
fn the_good_case_is_good() {
    Case::from_bytes("good.yaml", GOOD.as_bytes()).unwrap();
}

#[rstest]
#[case::unknown_key("steps: 6", "step: 6")]
#[case::unknown_nested_key("kv_heads: 4", "kv-head: 4")]
#[case::unknown_word("mode: selective", "mode: selectiv")]
#[case::unknown_api("torch._disable_dynamo", "torch.disable_dynamo")]
#[case::unknown_verdict("verdict: reproduced", "verdict: leaks")]
#[case::unknown_arm("[uncollected, collected]", "[uncollected, colected]")]
#[case::wrong_type("steps: 6", "steps: six")]
#[case::negative_number("steps: 6", "steps: -6")]
#[case::number_too_large("seq: 128", "seq: 99999999999999999999")]
#[case::list_for_a_mapping("input: {batch: 2, seq: 128}", "input: [2, 128]")]
#[case::word_for_a_mapping("input: {batch: 2, seq: 128}", "input: large")]
#[case::mapping_for_a_list("arms: [uncollected, collected]", "arms: {uncollected: {}}")]
#[case::missing_key("summary: A block output is held by a cycle.\n", "")]
#[case::missing_value("steps: 6", "steps:")]
#[case::key_written_twice("warmup: 2", "warmup: 2\nwarmup: 3")]
#[case::heads_do_not_divide_dim("heads: 8, kv_heads: 4", "heads: 7, kv_heads: 7")]
#[case::kv_heads_do_not_divide_heads("kv_heads: 4", "kv_heads: 3")]
#[case::odd_head_dim("heads: 8, kv_heads: 4", "heads: 8, head_dim: 33")]
#[case::odd_derived_head_dim("dim: 256, heads: 8", "dim: 24, heads: 8")]
#[case::zero_heads("heads: 8, kv_heads: 4", "heads: 0")]
#[case::absurd_size("layers: 4", "layers: 4000000000")]
#[case::warmup_beyond_steps("warmup: 2", "warmup: 6")]
#[case::too_many_steps("steps: 6", "steps: 10001")]
#[case::too_few_steps_to_measure("steps: 6", "steps: 4")]
#[case::range_without_operator("\">=2.6\"", "2.6")]
#[case::bad_version("\">=2.6\"", "\">=two\"")]
#[case::bad_size("steps: 6", "memory: 12 bananas")]
#[case::bad_reference("steps: 6", "upstream: [153300]")]
#[case::bad_name("name: good", "name: Not Good")]
#[case::unknown_dimension("batch*seq", "batch*seqs")]
#[case::retention_overflows("batch*seq", "batch*seq*18446744073709551615")]
#[case::unknown_holder("per: layer}", "per: layer, held_by: rust}")]
#[case::retention_of_nothing("batch*seq", "0*seq")]
#[case::no_full_collect("[uncollected, collected]", "[uncollected, collected: {generation: 1}]")]
#[case::generation_three("[uncollected, collected]", "[uncollected, collected, collected: {generation: 3}]")]
#[case::site_without_checkpointing("mode: selective", "mode: none")]
#[case::policy_without_selective("mode: selective", "mode: full\n  policy: all-mm")]
#[case::bad_operator("mode: selective", "mode: selective\n  policy: [aten.mm.default, mm]")]
#[case::unreachable_expectation("  - {torch", "  - {verdict: fixed}\n  - {torch")]
#[case::nothing_expected("  - {torch: \">=2.6\", verdict: reproduced}", "  []")]
#[case::program_beside_a_model("steps: 6", "program: leak.py")]
#[case::one_rank_in_parallel("steps: 6", "steps: 6\nparallel: ddp")]
#[case::too_many_ranks("steps: 6", "steps: 6\nranks: 65")]
#[case::unknown_parallelism("steps: 6", "steps: 6\nranks: 2\nparallel: fsdp")]
#[case::program_outside_its_folder("steps: 6", "program: ../leak.py")]
#[case::replacement_is_checked("steps: 6", "steps: 6\non: {cuda: {steps: 3}}")]
#[case::two_documents("verdict: reproduced}", "verdict: reproduced}\n---\nname: other")]
#[case::unknown_anchor("steps: 6", "steps: *many")]
#[case::wrong_value_through_an_anchor("name: good", "name: &n good\nseed: *n")]
#[case::tab_for_indentation("  mode: selective", "\tmode: selective")]
#[case::tab_below_a_value("summary: A block", "\tsummary: A block")]
#[case::unclosed_bracket("[uncollected, collected]", "[uncollected, collected")]
fn a_bad_case_is_refused_with_place_and_hint(#[context] ctx: Context, #[case] from: &str, #[case] to: &str) {
    let name = ctx.description.expect("every row is named");
    let error = refused(&changed(from, to));
    let drawn = error.render(false, 100);
    let at = error.problems()[0].at.unwrap_or_else(|| panic!("no place: {drawn}"));
    let place = format!("good.yaml:{}:{}", at.line, at.column);
    assert!(drawn.contains(&place), "{place} is not in\n{drawn}");
    assert!(error.to_string().starts_with(&place), "{error}");
    snapshot(name, &drawn);
}

type Context = rstest::Context;

#[test]
fn several_problems_are_told_together() {
    let yaml = changed("heads: 8, kv_heads: 4", "heads: 7, kv_heads: 3").replace("warmup: 2", "warmup: 5");
    let error = refused(&yaml);
    assert_eq!(error.problems().len(), 3);
    snapshot("several_problems", &error.render(false, 100));
}

#[test]
fn a_terminal_gets_colours_and_a_file_gets_none() {
    let error = refused(&changed("steps: 6", "step: 6"));
    assert!(error.render(true, 80).contains('\u{1b}'));
    assert!(!error.render(false, 80).contains('\u{1b}'));
}

#[test]
fn text_of_the_file_cannot_steer_the_terminal() {
    let error = refused(&changed("steps: 6", "\"st\\e[2Jep\": 6 # \u{1b}]0;title\u{7}"));
    let error_drawn = error.render(false, 80);
    assert!(!error_drawn.contains(['\u{1b}', '\u{7}']), "{error_drawn:?}");
}

#[test]
fn anchors_are_allowed() {
    let yaml = changed("steps: 6\nwarmup: 2", "steps: &n 6\nwarmup: 2\nseed: *n");
    assert_eq!(Case::from_bytes("good.yaml", yaml.as_bytes()).unwrap().spec.seed, 6);
}

#[test]
fn an_alias_bomb_is_refused_at_once() {
    let mut yaml = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let uses = vec![format!("*a{}", level - 1); 9].join(", ");
        yaml.push_str(&format!("a{level}: &a{level} [{uses}]\n"));
    }
    // No key of a case nests, so only many aliases and deep brackets reach the budget at all.
    let aliases = format!("upstream: [&r a/b#1{}]\n{GOOD}", ", *r".repeat(5000));
    let merges = format!("on: {{cpu: &c {{threads: 1}}, cuda: {{{}}}}}\n{GOOD}", "<<: *c, ".repeat(5000));
    let brackets = format!("name: {}", "[".repeat(100_000));
    for (bomb, in_budget) in
        [(format!("{GOOD}{yaml}"), true), (aliases, false), (merges, false), (brackets, true)]
    {
        let started = std::time::Instant::now();
        let drawn = refused(&bomb).render(false, 80);
        assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
        assert!(in_budget || drawn.contains("too large once it is expanded"), "{drawn}");
    }
}

/// Writes a file and loads it, with its folder taken out of the rendered error.
fn load(folder: &Path, name: &str, bytes: &[u8]) -> Result<Case, String> {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    attempt(&path)
}

fn attempt(path: &Path) -> Result<Case, String> {
    let folder = path.parent().unwrap().display().to_string();
    Case::load(path).map_err(|error| error.render(false, 300).replace(&format!("{folder}/"), ""))
}

#[test]
fn files_that_hold_no_case_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let mut latin1 = changed("A block output", "A bl\u{f6}ck output").into_bytes();
    let at = latin1.iter().position(|byte| *byte == 0xc3).unwrap();
    latin1.remove(at);
    fs::create_dir(dir.join("folder.yaml")).unwrap();
    let all = [
        load(dir, "empty.yaml", b""),
        load(dir, "comments.yaml", b"# nothing\n\n"),
        load(dir, "latin1.yaml", &latin1),
        load(dir, "large.yaml", &vec![b'#'; (1 << 20) + 1]),
        load(dir, "binary.yaml", b"\x00\x01\x02"),
        load(dir, "other.yaml", GOOD.as_bytes()),
        attempt(&dir.join("missing.yaml")),
        attempt(&dir.join("folder.yaml")),
    ];
    let all: Vec<String> = all.into_iter().map(Result::unwrap_err).collect();
    snapshot("files_that_hold_no_case", &all.join("\n"));
}

#[cfg(unix)]
#[test]
fn an_unreadable_file_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("good.yaml");
    fs::write(&path, GOOD).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    // The superuser reads everything, so there the file is no error.
    if fs::read(&path).is_err() {
        assert!(attempt(&path).unwrap_err().contains("permission denied"));
    }
    // A device would never end.
    assert!(Case::load(Path::new("/dev/zero")).unwrap_err().to_string().contains("not a regular file"));
}

const PROGRAM: &str = "\
name: own
summary: A list holds what it should not.
program: own.py
dims: {n: 1024}
retains:
  tensors:
    - {name: payload, shape: [n, 4], dtype: int64, per: step, count: 3}
expect: [{verdict: reproduced}]
";

#[test]
fn a_program_lies_beside_its_case() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let missing = load(dir, "own.yaml", PROGRAM.as_bytes()).unwrap_err();
    fs::write(dir.join("own.py"), "def setup(ctx): ...\n").unwrap();
    let case = load(dir, "own.yaml", PROGRAM.as_bytes()).unwrap();
    assert_eq!(case.program_source.as_deref(), Some("def setup(ctx): ...\n"));
    let held = case.prediction(torchleak_protocol::Device::Cuda).unwrap();
    assert_eq!((held.device_bytes, held.host_bytes), (1024 * 4 * 8 * 3, 0));
    let program = case.resolved(torchleak_protocol::Device::Cpu).program(dir).unwrap();
    let torchleak_protocol::Program::File { path, .. } = program else { panic!("{program:?}") };
    assert_eq!(PathBuf::from(path), dir.join("own.py"));

    let by_cpp = load(dir, "own.yaml", PROGRAM.replace("count: 3", "count: 3, held_by: c++").as_bytes());
    let held = by_cpp.unwrap().prediction(torchleak_protocol::Device::Cpu).unwrap();
    assert_eq!((held.device_bytes, held.cpp_bytes), (1024 * 4 * 8 * 3, 1024 * 4 * 8 * 3));

    let before = case.content_hash();
    fs::write(dir.join("own.py"), "def setup(ctx): pass\n").unwrap();
    assert_ne!(attempt(&dir.join("own.yaml")).unwrap().content_hash(), before);

    let no_layers = PROGRAM.replace("per: step", "per: layer");
    let no_layers = load(dir, "own.yaml", no_layers.as_bytes()).unwrap_err();
    #[cfg(unix)]
    {
        let elsewhere = tempfile::NamedTempFile::new().unwrap();
        fs::remove_file(dir.join("own.py")).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), dir.join("own.py")).unwrap();
        let linked = load(dir, "own.yaml", PROGRAM.as_bytes()).unwrap_err();
        snapshot("programs", &[missing, no_layers, linked].join("\n"));
    }
}

/// Compares a committed file with what the code makes of it, or writes it anew where that is asked for.
fn is_current(file: &str, current: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("TORCHLEAK_BLESS").is_some() {
        fs::write(&path, current).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == current, "{file} is old: run this test with TORCHLEAK_BLESS=1");
}

#[test]
fn the_committed_schema_is_current() {
    is_current("cases/schema.json", &torchleak::case::schema_text());
}

#[test]
fn the_committed_index_of_the_cases_is_current() {
    is_current("cases/README.md", &torchleak::case::index(&Catalog::shipped().unwrap()));
}

#[test]
fn every_shipped_case_names_the_schema_for_editors() {
    for case in Catalog::shipped().unwrap().cases() {
        assert!(
            case.source.starts_with("# yaml-language-server: $schema=./schema.json\n"),
            "{}",
            case.name()
        );
    }
}

#[test]
fn the_list_names_every_case_with_its_bytes() {
    let shipped = Catalog::shipped().unwrap();
    snapshot("list", &torchleak::case::list(&shipped, 110));
    let json = torchleak::case::list_json(&shipped);
    assert_eq!(json.as_array().unwrap().len(), shipped.cases().len());
    let headline =
        json.as_array().unwrap().iter().find(|case| case["name"] == torchleak::case::HEADLINE).unwrap();
    assert_eq!(headline["predicted_bytes_per_step"]["cpu"], 1_058_688);
    assert_eq!(headline["expect"][0]["verdict"], "reproduced");
}

#[test]
fn two_cases_of_one_name_cannot_run_together() {
    let folder = tempfile::tempdir().unwrap();
    let shipped = Catalog::shipped().unwrap();
    let path = folder.path().join("sac-stock.yaml");
    fs::write(&path, &shipped.get("sac-stock").unwrap().source).unwrap();
    let path = path.display().to_string();
    let error = shipped.select(&["sac-stock", &path]).unwrap_err();
    assert!(error.to_string().contains(":2:1: the name `sac-stock` is taken by `sac-stock`"), "{error}");
    assert_eq!(shipped.select(&[&path, &path]).unwrap().len(), 1);
    let error = shipped.select(&["sac-stok"]).unwrap_err();
    assert!(error.render(false, 200).contains("did you mean `sac-stock`?"), "{error}");
}
