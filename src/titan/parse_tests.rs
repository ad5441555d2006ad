use proptest::prelude::*;
use rstest::rstest;

use super::*;

/// What a line says, in words that are short to compare.
fn said(line: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    read_line(line, &mut |rank, event| {
        let rank = rank.map_or_else(String::new, |rank| format!("{rank}: "));
        let event = match event {
            Event::Step(point) => format!(
                "step {} {:.2}GiB {:?} {:?} {:?}",
                point.step,
                point.memory / GIB,
                point.percent,
                point.tps,
                point.at.map(|at| (at % 86_400.0 * 1e3).round() / 1e3)
            ),
            other => format!("{other:?}"),
        };
        all.push(rank + &event);
    });
    all
}

#[rstest]
#[case::torchtitan_of_2024(
    "2024-08-21 22:00:01,250 - root - INFO - step: 10  loss:  8.1  memory: 36.90GiB(46.63%)  wps: 1,004  mfu: 1.29%",
    "step 10 36.90GiB Some(46.63) None Some(79201.25)"
)]
#[case::torchtitan_of_2025(
    "[rank0]:[titan] 2025-05-28 00:00:07,816 - root - INFO - step:  1  loss: -1.0000  memory: 36.90GiB(46.63%)  tps: 4  \
     tflops: 0.90  mfu: 0.29%",
    "rank 0: step 1 36.90GiB Some(46.63) Some(4.0) Some(7.816)"
)]
#[case::torchtitan_of_2026(
    "[rank12]:[titan] 2026-05-18 00:01:00,346 - torchtitan.observability.metrics - INFO - step: 67  loss:  2.73186  \
     grad_norm:  0.3138  memory:  9.47GiB(65.02%)  tps: 7,228  tflops: 0.52  mfu: N/A",
    "rank 12: step 67 9.47GiB Some(65.02) Some(7228.0) Some(60.346)"
)]
#[case::colours(
    "[rank0]:\x1b[32m[titan] 2025-06-16 00:00:00,000 - root - INFO\x1b[0m - \x1b[31mstep: 200  \x1b[32mloss:  6.1384  \
     \x1b[38;2;54;234;195mmemory: 49.66GiB(52.28%)  \x1b[34mtps: 5,856  \x1b[36mtflops: 339.16  \x1b[35mmfu: \
     34.29%\x1b[39m",
    "rank 0: step 200 49.66GiB Some(52.28) Some(5856.0) Some(0.0)"
)]
#[case::torchruns_own_role(
    "[default3]:step:  5  loss: 1.0  memory:  1.00GiB(1.00%)",
    "default3: step 5 1.00GiB Some(1.0) None None"
)]
#[case::no_role("[3]:step:  5  memory:  1.00GiB(1.00%)", "rank 3: step 5 1.00GiB Some(1.0) None None")]
#[case::labels_of_srun(
    "17: [rank0]:step:  5  memory:  1.00GiB(1.00%)",
    "task 17 rank 0: step 5 1.00GiB Some(1.0) None None"
)]
#[case::torchleaks_own(
    "step:  3  loss: 12.27130  memory:  0.15GiB  tps: 16,384",
    "step 3 0.15GiB None Some(16384.0) None"
)]
#[case::cut_in_the_percentage("step: 20  loss: 1.0  memory: 90.29GiB(9", "step 20 90.29GiB None None None")]
#[case::a_moment_that_never_was(
    "2025-13-45 29:00:00 step: 2  memory: 1.00GiB(1%)",
    "step 2 1.00GiB Some(1.0) None None"
)]
fn step_lines_of_all_years_are_read(#[case] line: &str, #[case] expected: &str) {
    assert_eq!(said(line.as_bytes()), [expected]);
}

#[rstest]
#[case::old_words(
    "[rank0]:[titan] 2025-06-16 22:30:48,735 - root - INFO - [GC] Peforming periodical GC collection. 0.06 seconds.",
    r#"rank 0: Collected { reason: "Peforming periodical GC collection", seconds: 0.06 }"#
)]
#[case::periodic(
    "[GC] Performing periodic GC collection took 0.25 seconds",
    r#"Collected { reason: "Performing periodic GC collection", seconds: 0.25 }"#
)]
#[case::forced(
    "[GC] Force GC to perform collection to get the debug information. took 1.50 seconds",
    r#"Collected { reason: "Force GC to perform collection to get the debug information", seconds: 1.5 }"#
)]
#[case::forced_alone(
    "Force GC to perform collection to get the debug information.",
    r#"Collected { reason: "Force GC to perform collection to get the debug information", seconds: 0.0 }"#
)]
#[case::freed(
    "[rank0]:[titan] 2025-05-28 21:13:37,816 - torch.utils.viz._cycles - WARNING - CUDA Memory changed during GC, 2147483648 bytes freed.",
    "rank 0: Freed(2147483648)"
)]
#[case::freed_less_than_nothing("CUDA Memory changed during GC, -512 bytes freed.", "Freed(-512)")]
#[case::cycle(
    "[WARNING] Reference cycle includes a CUDA Tensor see visualization of cycle /tmp/tmpeideu9gl.html",
    r#"CycleFile("/tmp/tmpeideu9gl.html")"#
)]
#[case::no_tensors("No CUDA Tensors found in garbage", "NoTensors")]
#[case::capacity("CUDA capacity: NVIDIA H100 with 1.00GiB memory", "Capacity(1073741824.0)")]
#[case::retries("[titan] - root - WARNING - 12 CUDA memory allocation retries.", "Retries(12)")]
#[case::out_of_memory(
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "OutOfMemory"
)]
#[case::the_model("Model llama3 8B size: 8,030,261,248 total parameters", "Fact(Layers, 32)")]
fn other_lines_are_read(#[case] line: &str, #[case] expected: &str) {
    assert_eq!(said(line.as_bytes()), [expected]);
}

#[test]
fn what_the_log_tells_of_the_training_is_read() {
    let line = "Trainer is initialized with local batch size 2, global batch size 16, sequence length 4096, total steps 10 (warmup 2).";
    assert_eq!(
        said(line.as_bytes()),
        ["Fact(LocalBatch, 2)", "Fact(SequenceLength, 4096)", "Fact(TotalSteps, 10)"]
    );
    let line = "Building llama3 8B with TransformerModelArgs(_enforced='x', dim=4096, n_layers=32, head_dim=128, n_heads=32)";
    assert_eq!(said(line.as_bytes()), ["Fact(Layers, 32)", "Fact(Dim, 4096)"]);
}

#[rstest]
#[case::validation("validate step: 10  loss:  6.1  memory: 49.66GiB(52.28%)  tps: 5,856")]
#[case::another_program("global_step: 10  memory: 49.66GiB(52.28%)")]
#[case::where_training_starts("[titan] Training starts at step 1.")]
#[case::the_end_of_a_torn_line("ss: 1.0  memory: 42.16GiB(44.38%)  tps: 4")]
#[case::a_capacity_of_nothing("CUDA capacity: X with 0GiB memory")]
#[case::freed_more_than_there_is("CUDA Memory changed during GC, 99999999999999999999 bytes freed.")]
fn other_programs_lines_say_nothing(#[case] line: &str) {
    assert_eq!(said(line.as_bytes()), [""; 0]);
}

#[rstest]
#[case::cut_in_the_memory("step: 20  loss: 1.0  memory: 90.2")]
#[case::cut_in_the_step("step: 2")]
#[case::a_number_that_is_none("step: 20  memory: 1e400GiB(10%)")]
#[case::less_than_nothing("step: 20  memory: -3.00GiB(10%)")]
#[case::not_a_number("step: 20  memory: NaNGiB(10%)")]
#[case::a_step_beyond_all("step: 99999999999999999999  memory: 3.00GiB(10%)")]
#[case::a_negative_step("step: -1  memory: 3.00GiB(10%)")]
fn torn_and_absurd_step_lines_are_told_as_such(#[case] line: &str) {
    assert_eq!(said(line.as_bytes()), ["Unreadable"]);
}

#[test]
fn a_line_that_another_process_tore_gives_the_whole_one() {
    let line = "[rank0]:step: 12  loss: 5.[rank1]:step: 12  loss: 5.1  memory: 42.16GiB(44.38%)  tps: 4";
    assert_eq!(
        said(line.as_bytes()),
        ["rank 0: Unreadable", "rank 1: step 12 42.16GiB Some(44.38) Some(4.0) None"]
    );
    let line = "step: 12  memory:  1.00GiB(1.00%)  tpstep: 13  lo";
    assert_eq!(said(line.as_bytes()), ["step 12 1.00GiB Some(1.0) None None"]);
}

#[test]
fn bytes_that_are_no_text_do_not_hide_a_step() {
    let mut line = b"\xff\xfe\x00[rank0]:step: 12  loss: \xc3\x28  memory:  1.00GiB(1.00%)".to_vec();
    assert_eq!(said(&line), ["rank 0: step 12 1.00GiB Some(1.0) None None"]);
    line.splice(0..0, b"\r 10%|#  \r".iter().copied());
    assert_eq!(said(&line), ["rank 0: step 12 1.00GiB Some(1.0) None None"]);
}

proptest! {
    #[test]
    fn no_line_makes_it_panic(line in proptest::collection::vec(any::<u8>(), 0..300)) {
        said(&line);
    }

    #[test]
    fn no_line_of_the_log_s_own_words_makes_it_panic(
        words in proptest::collection::vec(proptest::sample::select(vec![
            "step:", " ", "1", "9999999999", "memory:", "GiB", "(", "%)", "[rank", "]:", "[GC] ", " took ", " seconds",
            "\x1b[3", "1m", "\u{202e}", "é", "Memory changed during GC, ", " bytes freed", "2025-05-28 21:13:37", "tps:",
            "n_layers=", "-", ".", ",", "\r", "  ", "validate ", " capacity: ", " with ", "GiB memory",
        ]), 0..40),
    ) {
        said(words.concat().as_bytes());
    }
}
