//! `torchleak titan-log`, as a user meets it. The logs are made here, by the formats of torchtitan in 2024, 2025 and 2026
//! and from published figures; none is a copy of a log that somebody has published.

mod support;
#[path = "support/titan_lines.rs"]
mod titan_lines;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Context, Finished};
use titan_lines::{coloured, gzip, line, published_log, step};

const GIB: f64 = (1_u64 << 30) as f64;

fn write(context: &Context, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = context.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn piped(context: &Context, log: &[u8], options: &[&str]) -> Finished {
    let mut command = context.command();
    command.args(["titan-log", "-"]).args(options);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let log = log.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&log));
    let finished = Finished::of(child.wait_with_output().unwrap());
    let _ = writer.join().unwrap();
    finished
}

fn document(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}\n{}", finished.stdout, finished.stderr))
}

fn json_of(log: &[u8], options: &[&str]) -> Value {
    document(&piped(&Context::new(), log, &[&["--format", "json"], options].concat()))
}

/// Growth in GiB per step of the first rank.
fn growth(document: &Value) -> f64 {
    document["ranks"][0]["growth_bytes_per_step"].as_f64().unwrap_or(f64::NAN) / GIB
}

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn the_published_figures_grow_by_2_16_gib_per_step_and_each_collect_freed_32_times_64_mib() {
    let context = Context::new();
    write(&context, "train.log", published_log(1));
    let finished = context.run(["titan-log", "train.log"]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    assert!(
        finished.stdout.contains("grows by 2.16 GiB per step from step 10 to step 20"),
        "{}",
        finished.stdout
    );
    assert!(finished.stdout.contains("2147483648 bytes, which is 32 x 64 MiB"), "{}", finished.stdout);
    snapshot("titan_log_of_the_published_figures", &finished.stdout);
}

#[test]
fn the_published_figures_as_json() {
    let document = json_of(published_log(1).as_bytes(), &[]);
    snapshot("titan_log_of_the_published_figures_as_json", &format!("{document:#}"));
    assert_eq!(document["ranks"][0]["freed_bytes_per_collect"], 2_147_483_648_u64);
    assert!((growth(&document) - 2.157).abs() < 1e-6);
}

#[rstest]
#[case::plain(published_log(1).into_bytes(), 1)]
#[case::coloured(coloured(&published_log(1)).into_bytes(), 1)]
#[case::ends_of_line_of_windows(published_log(1).replace('\n', "\r\n").into_bytes(), 1)]
#[case::gzip(gzip(published_log(1).as_bytes()), 1)]
#[case::two_gzip_files_in_one({
    let log = published_log(1);
    let (one, other) = log.as_bytes().split_at(log.len() / 2);
    [gzip(one), gzip(other)].concat()
}, 1)]
#[case::eight_ranks(published_log(8).into_bytes(), 8)]
#[case::eight_ranks_coloured_and_compressed(gzip(coloured(&published_log(8)).as_bytes()), 8)]
#[case::torchruns_own_role(published_log(2).replace("[rank", "[default").into_bytes(), 2)]
#[case::no_prefix(published_log(1).replace("[rank0]:", "").into_bytes(), 1)]
#[case::eight_ranks_without_a_prefix((0..8).fold(published_log(8), |log, rank| log.replace(&format!("[rank{rank}]:"), "")).into_bytes(), 1)]
#[case::bytes_that_are_no_text([b"\xff\xfe\x80\n".as_slice(), published_log(1).as_bytes(), b"\xc3"].concat(), 1)]
fn every_form_of_the_log_gives_the_same_numbers(#[case] log: Vec<u8>, #[case] ranks: usize) {
    let context = Context::new();
    write(&context, "log", &log);
    let of_a_file = document(&context.run(["titan-log", "log", "--format", "json"]));
    let document = json_of(&log, &[]);
    assert_eq!(of_a_file["ranks"], document["ranks"], "a file and a pipe differ");
    assert_eq!(document["verdict"], "grows", "{document:#}");
    let all = document["ranks"].as_array().unwrap();
    assert_eq!(all.len(), ranks);
    for rank in all {
        assert_eq!(rank["growth_bytes_per_step"], (2.157 * GIB).round() as i64, "{rank:#}");
        assert!(rank["remarks"].to_string().contains("2147483648 bytes, which is 32 x 64 MiB"), "{rank:#}");
    }
    assert_eq!(all[0]["freed_bytes_per_collect"], 2_147_483_648_u64);
    assert_eq!(all[0]["cycle_files"]["count"], 20);
}

#[test]
fn a_log_that_is_cut_anywhere_gives_what_is_left_of_it() {
    let log = published_log(2);
    let bytes = log.as_bytes();
    for from in (0..200).step_by(13) {
        for until in (bytes.len() - 150..bytes.len()).step_by(11) {
            let mut shown = torchleak::titan::Log::new(torchleak::titan::Rows::All);
            bytes[from..until].split(|byte| *byte == b'\n').for_each(|line| shown.line(line));
            let judged = torchleak::titan::judge(&shown, &torchleak::titan::Options::default());
            // Rank 0 is whole in all of them; rank 1's last line is cut.
            let growth = judged.ranks[0].growth().unwrap() / GIB;
            assert!((growth - 2.157).abs() < 1e-6, "bytes {from} to {until}: {growth}");
        }
    }
}

#[test]
fn compressed_data_that_end_early_are_read_as_far_as_they_go() {
    let log: String = (1..2000)
        .map(|number| line(0, f64::from(number), &step(number, 10.0 + f64::from(number) / 100.0)))
        .collect();
    let whole = gzip(log.as_bytes());
    let document = json_of(&whole[..whole.len() * 2 / 3], &[]);
    assert_eq!(document["verdict"], "grows");
    assert!((growth(&document) - 0.01).abs() < 1e-4, "{document:#}");
    assert!(document["notes"][0].as_str().unwrap().contains("the compressed data end early"), "{document:#}");
}

#[test]
fn a_flat_log_says_what_reserved_memory_cannot_show() {
    let context = Context::new();
    let mut log = String::new();
    for number in 1..=60 {
        if number % 5 == 0 {
            log += &line(0, f64::from(number), "[GC] Performing periodic GC collection took 0.06 seconds");
        }
        log += &line(0, f64::from(number), &step(number * 10, 49.66));
    }
    let finished = piped(&context, log.as_bytes(), &[]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    snapshot("titan_log_of_a_flat_run", &finished.stdout);
}

#[test]
fn several_ranks_a_restart_torn_lines_and_an_out_of_memory_error() {
    let mut log = String::new();
    for number in 1..=30_u32 {
        for rank in [1, 0] {
            let gib = 20.0 + f64::from(number) * if rank == 0 { 1.5 } else { 0.5 };
            log += &line(rank, f64::from(number), &step(number * 10, gib));
        }
    }
    log += "[rank0]:torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";
    // The job is started again from the checkpoint of step 200.
    for number in 21..=35_u32 {
        for rank in [0, 1] {
            let gib = f64::from(number) * if rank == 0 { 1.5 } else { 0.5 } - 5.0;
            log += &line(rank, 100.0 + f64::from(number), &step(number * 10, gib));
        }
    }
    log += "[rank0]:[titan] 2025-05-28 09:10:00,000 - root - INFO - step: 360  loss:  1.0[rank1]:[titan] 2025-05-28 \
            09:10:00,000 - root - INFO - step: 360  loss:  1.0000  mem\n";
    let finished = piped(&Context::new(), log.as_bytes(), &[]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    snapshot("titan_log_of_ranks_restarts_and_torn_lines", &finished.stdout);
}

#[test]
fn rows_are_shown_as_asked() {
    let log: String = (1..=100).map(|number| line(0, f64::from(number), &step(number, 10.0))).collect();
    let rows =
        |options: &[&str]| json_of(log.as_bytes(), options)["ranks"][0]["table"].as_array().unwrap().len();
    assert_eq!(rows(&[]), 12);
    assert_eq!(rows(&["--every", "10"]), 11, "1, 11, .. 91 and the last");
    assert_eq!(rows(&["--all"]), 100);
}

#[rstest]
#[case::growth_above_the_limit("1GiB", published_log(1), 1)]
#[case::growth_below_the_limit("3GiB", published_log(1), 0)]
#[case::flat_only_because_collects_free_it("1GiB", {
    let each = |number: u32| line(0, f64::from(number), "CUDA Memory changed during GC, 2147483648 bytes freed.") + &line(0, f64::from(number), &step(number, 49.66));
    (1..=20).map(each).collect()
}, 1)]
#[case::flat("1KiB", (1..=20).map(|number| line(0, f64::from(number), &step(number, 49.66))).collect(), 0)]
#[case::too_few_lines("1GiB", line(0, 1.0, &step(1, 49.66)), 4)]
#[case::nothing("1GiB", "no such line\n".to_owned(), 4)]
fn the_exit_code_says_whether_it_leaks(#[case] limit: &str, #[case] log: String, #[case] code: i32) {
    let finished = piped(&Context::new(), log.as_bytes(), &["--fail-on-leak", limit]);
    assert_eq!(finished.code, code, "{}\n{}", finished.stdout, finished.stderr);
}

#[rstest]
#[case::no_file(&["titan-log", "nowhere.log"], "nowhere.log")]
#[case::a_folder(&["titan-log", "."], "is a folder")]
#[case::zstd(&["titan-log", "log.zst"], "zstd -dc")]
#[case::a_compressed_log_cannot_be_followed(&["titan-log", "--follow", "log.gz"], "--follow")]
#[case::no_size(&["titan-log", "x", "--fail-on-leak", "much"], "--fail-on-leak")]
#[case::no_layers(&["titan-log", "x", "--layers", "0"], "--layers")]
#[case::both_kinds_of_rows(&["titan-log", "x", "--all", "--every", "2"], "--all")]
fn what_cannot_be_read_has_exit_code_2_and_says_what_to_try(#[case] arguments: &[&str], #[case] said: &str) {
    let context = Context::new();
    write(&context, "log.zst", b"\x28\xb5\x2f\xfd\x00\x00\x00");
    write(&context, "log.gz", gzip(b"step"));
    let finished = context.run(arguments);
    assert_eq!(finished.code, 2, "{}", finished.stderr);
    assert!(finished.stderr.contains(said), "{}", finished.stderr);
    assert_eq!(finished.stdout, "");
}

#[test]
fn nothing_of_a_log_steers_the_terminal() {
    let mut log = published_log(1);
    log += "[GC] \x1b]0;owned\x07\u{202e} \x08 took 1.00 seconds\n";
    log +=
        "Reference cycle includes a CUDA Tensor see visualization of cycle /tmp/\x1b[2J\u{9b}31m\x07x.html\n";
    log += "[rank\x1b[5m1]:step: 1  memory: 1.00GiB(\x1b[1m1%)\n";
    let finished = piped(&Context::new(), log.as_bytes(), &[]);
    let steers = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!finished.stdout.contains(steers), "{:?}", finished.stdout);
}

#[test]
fn the_picture_shows_every_rank_with_axes_and_a_legend() {
    let context = Context::new();
    write(&context, "train.log", published_log(9));
    let finished = context.run(["titan-log", "train.log", "--svg", "memory.svg"]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let picture = std::fs::read_to_string(context.path().join("memory.svg")).unwrap();
    for text in [
        "training step",
        "peak reserved memory [GiB]",
        "rank 0: +2.16 GiB per step",
        "2 more ranks",
        "95.00 GiB",
    ] {
        assert!(picture.contains(text), "{text} is missing");
    }
    assert!(picture.matches("<polyline").count() >= 9);
    let finished = context.run(["titan-log", "train.log", "--svg", "nowhere/memory.svg"]);
    assert_eq!(finished.code, 4, "{}", finished.stderr);
    assert!(finished.stderr.contains("nowhere/memory.svg"), "{}", finished.stderr);
}

#[test]
fn torchleaks_own_lines_are_read() {
    let log = "# case uncollected\nstep:  1  loss: 12.27130  memory:  0.15GiB  tps: 16,384\n\
               [GC] Forced collection of generation 2 took 0.01 seconds\n";
    let document = json_of(log.as_bytes(), &[]);
    assert_eq!(document["step_lines"], 1);
    assert_eq!(document["ranks"][0]["gc"][0]["count"], 1);
}

/// A torchleak that follows a log.
struct Follower {
    child: Child,
}

impl Follower {
    fn start(mut command: Command) -> Self {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { child: command.spawn().unwrap() }
    }

    /// Reads what it says until a line has this text.
    fn says(&mut self, text: &str) {
        let limit = Instant::now() + Duration::from_secs(30);
        let stderr = self.child.stderr.as_mut().unwrap();
        let mut said = Vec::new();
        while !String::from_utf8_lossy(&said).contains(text) {
            assert!(Instant::now() < limit, "{}", String::from_utf8_lossy(&said));
            let mut byte = [0];
            if stderr.read(&mut byte).unwrap() == 0 {
                panic!("it ended: {}", String::from_utf8_lossy(&said));
            }
            said.extend(byte);
        }
    }

    fn ends_by(self, signal: Signal) -> Finished {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        Finished::of(self.child.wait_with_output().unwrap())
    }
}

#[rstest]
#[case::ctrl_c(Signal::INT)]
#[case::terminate(Signal::TERM)]
fn a_running_job_is_followed_through_rotation_and_truncation_until_ctrl_c(#[case] signal: Signal) {
    let context = Context::new();
    let mut command = context.command();
    command.args(["titan-log", "--follow", "train.log", "--format", "json"]);
    let mut follower = Follower::start(command);
    follower.says("waiting for it");
    let lines = |steps: std::ops::RangeInclusive<u32>| -> String {
        steps.map(|number| line(0, f64::from(number), &step(number, 10.0 + f64::from(number)))).collect()
    };
    let path = write(&context, "train.log", lines(1..=10));
    follower.says("step 10: 20.00 GiB");
    // A line arrives in two pieces.
    let text = lines(11..=11);
    let (one, other) = text.split_at(text.len() - 40);
    let append = |text: &str| {
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(text.as_bytes()).unwrap()
    };
    append(one);
    std::thread::sleep(Duration::from_millis(1200));
    append(other);
    follower.says("step 11: 21.00 GiB");
    // `logrotate` without and with `copytruncate`.
    std::fs::rename(&path, context.path().join("train.log.1")).unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    write(&context, "train.log", lines(12..=14));
    follower.says("step 14: 24.00 GiB");
    std::thread::sleep(Duration::from_millis(1200));
    write(&context, "train.log", lines(15..=16));
    follower.says("step 16: 26.00 GiB");
    let finished = follower.ends_by(signal);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let document = document(&finished);
    assert_eq!(document["step_lines"], 16, "{document:#}");
    assert_eq!(document["ranks"][0]["growth_bytes_per_step"], 1 << 30);
}

#[test]
fn a_pipe_by_its_path_is_read_to_its_end() {
    let context = Context::new();
    write(&context, "train.log", published_log(1));
    for option in ["--all", "--follow"] {
        let mut command = Command::new("bash");
        let script = format!("\"$1\" titan-log <(cat train.log) {option}");
        command.args(["-c", &script, "bash", env!("CARGO_BIN_EXE_torchleak")]).current_dir(context.path());
        let finished = Finished::of(command.output().unwrap());
        assert_eq!(finished.code, 0, "{}", finished.stderr);
        assert!(finished.stdout.contains("grows by 2.16 GiB per step"), "{}", finished.stdout);
    }
}

#[test]
fn ctrl_c_ends_a_silent_pipe_with_the_summary() {
    let context = Context::new();
    let mut command = context.command();
    command.args(["titan-log", "-"]).stdin(Stdio::piped());
    let mut follower = Follower::start(command);
    let mut input = follower.child.stdin.take().unwrap();
    input.write_all(published_log(1).as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(1000));
    let finished = follower.ends_by(Signal::INT);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    assert!(finished.stdout.contains("grows by 2.16 GiB per step"), "{}", finished.stdout);
    drop(input);
}

/// Deterministic noise between -1 and 1.
fn noise(seed: u64) -> f64 {
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ (mixed >> 32)) % 20_001) as f64 / 10_000.0 - 1.0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_known_slope_is_found_under_noise_torn_lines_and_shuffled_ranks(
        slopes in proptest::collection::vec(0.05..3.0_f64, 1..5),
        every in 1..20_u32,
        lines in 20..200_u32,
        seed: u64,
        torn_one_in in 5..50_u64,
    ) {
        let mut log = torchleak::titan::Log::new(torchleak::titan::Rows::Spaced);
        let mut behind: Vec<(u32, usize)> = (0..lines).flat_map(|line| (0..slopes.len()).map(move |rank| (line, rank))).collect();
        // Each rank's lines stay in order, and the ranks are up to 8 lines ahead of each other.
        behind.sort_by_key(|(line, rank)| (u64::from(*line) + seed.rotate_left(*rank as u32) % 8, *rank));
        for (number, rank) in behind {
            let at = number * every + 1;
            let of = seed ^ u64::from(number) << 20 ^ (rank as u64) << 50;
            let gib = 20.0 + slopes[rank] * f64::from(at) + 0.02 * noise(of);
            let text = line(rank as u32, f64::from(at), &step(at, gib));
            let text = text.trim_end().as_bytes();
            let cut = if of.is_multiple_of(torn_one_in) { text.len() * (of as usize % 97) / 97 } else { text.len() };
            log.line(&text[..cut]);
        }
        let judged = torchleak::titan::judge(&log, &torchleak::titan::Options::default());
        for (rank, slope) in judged.ranks.iter().filter(|rank| rank.track.rank.is_some()).zip(&slopes) {
            let found = rank.growth().map(|growth| growth / GIB);
            prop_assert!(found.is_some_and(|found| (found - slope).abs() < 0.005), "{found:?} is not {slope}");
        }
    }

    #[test]
    fn no_bytes_make_it_panic(
        pieces in proptest::collection::vec((0..6_usize, proptest::collection::vec(any::<u8>(), 0..20), 0..u32::MAX, 0..100_000_u32), 0..60),
    ) {
        let mut log = torchleak::titan::Log::new(torchleak::titan::Rows::Every(3));
        let mut text = Vec::new();
        for (kind, bytes, number, gib) in pieces {
            let gib = f64::from(gib);
            match kind {
                0 => text.extend(bytes),
                1 => text.push(b'\n'),
                2 => text.extend(line(number % 3, f64::from(number % 80_000), &step(number, gib)).into_bytes()),
                3 => text.extend(format!("step: {number}  memory: {gib}GiB\n").into_bytes()),
                4 => text.extend(format!("CUDA Memory changed during GC, -{number} bytes freed.\n").into_bytes()),
                _ => text.extend(format!("[GC] Force took {gib} seconds\nn_layers={number}").into_bytes()),
            }
        }
        text.split(|byte| *byte == b'\n').for_each(|line| log.line(line));
        let judged = torchleak::titan::judge(&log, &torchleak::titan::Options::default());
        let rows = torchleak::titan::Rows::Every(3);
        torchleak::report::titan_log_text(&judged, "x", rows, &[], true);
        torchleak::report::titan_log_document(&judged, "x", rows, &[]);
        torchleak::titan::svg(&judged, "x").unwrap();
    }
}
