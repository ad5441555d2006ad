//! Logs as torchtitan writes them, made here by its formats and from published figures.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

/// The figures that torchtitan's pull request 1230 gives of llama3 8B: memory at three steps, and what each forced
/// collect freed. Everything around them is made up in the format of May 2025.
const PUBLISHED: [(u32, f64); 3] = [(1, 42.16), (10, 68.72), (20, 90.29)];

/// A line as torchtitan's logger writes it, so many seconds after the job began.
pub fn line(rank: u32, seconds: f64, message: &str) -> String {
    let minutes = (seconds / 60.0).floor();
    format!(
        "[rank{rank}]:[titan] 2025-05-28 {:02}:{:02}:{:06.3} - root - INFO - {message}\n",
        9 + (minutes / 60.0) as u32,
        minutes as u32 % 60,
        seconds - 60.0 * minutes
    )
    // Python's logging separates the milliseconds by a comma.
    .replacen('.', ",", 1)
}

pub fn step(step: u32, gib: f64) -> String {
    format!(
        "step: {step:2}  loss: {:7.4}  memory: {gib:5.2}GiB({:.2}%)  tps: 5,769  tflops: 334.11  mfu: 33.78%",
        12.0 - f64::from(step) / 20.0,
        gib / 95.0 * 100.0
    )
}

/// The log with the published figures, of so many ranks, of which torchtitan's debug mode reports rank 0 alone.
pub fn published_log(ranks: u32) -> String {
    let mut log = String::new();
    for rank in 0..ranks {
        log += &line(rank, 0.0, "[GC] Initial GC collection took 0.01 seconds");
        log += &line(
            rank,
            1.0,
            "Building llama3 8B with TransformerModelArgs(dim=4096, n_layers=32, n_heads=32, n_kv_heads=8)",
        );
        log += &line(rank, 2.0, "CUDA capacity: NVIDIA H100 with 95.00GiB memory");
        log += &line(rank, 2.5, "Model llama3 8B size: 8,030,261,248 total parameters");
        log += &line(
            rank,
            3.0,
            "Trainer is initialized with local batch size 1, global batch size 8, sequence length 8192, total steps 1000 \
             (warmup 200).",
        );
    }
    for number in 1..=20_u32 {
        let seconds = 3.0 + 1.5 * f64::from(number);
        for rank in 0..ranks {
            if rank == 0 {
                let cycle = format!(
                    "Reference cycle includes a CUDA Tensor see visualization of cycle /tmp/tmp{number:08}.html"
                );
                log += &line(rank, seconds, &cycle);
                log += &line(rank, seconds, "CUDA Memory changed during GC, 2147483648 bytes freed.");
            }
            let forced =
                "[GC] Force GC to perform collection to get the debug information. took 0.35 seconds";
            log += &line(rank, seconds, forced);
            if let Some((_, gib)) = PUBLISHED.iter().find(|(step, _)| *step == number) {
                log += &line(rank, seconds + f64::from(rank) / 100.0, &step(number, *gib));
            }
        }
    }
    log
}

/// Colours where torchtitan puts them.
pub fn coloured(log: &str) -> String {
    let mut text = log.to_owned();
    for (field, colour) in [
        ("step: ", "\x1b[31m"),
        ("loss: ", "\x1b[32m"),
        ("memory: ", "\x1b[38;2;54;234;195m"),
        ("tps: ", "\x1b[34m"),
        ("mfu: ", "\x1b[35m"),
    ] {
        text = text.replace(field, &format!("{colour}{field}"));
    }
    text.replace("%\n", "%\x1b[39m\n")
}

pub fn gzip(log: &[u8]) -> Vec<u8> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::fast());
    writer.write_all(log).unwrap();
    writer.finish().unwrap()
}
