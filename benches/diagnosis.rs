//! The cycle diagnosis against torch's own graph and against CPython's bare walk, on the same garbage
//! in the same Python process.
//!
//! The probe runs inside an interpreter, so a Python program does the calls and reports their time, and
//! criterion asks it. It needs an environment with torch: `TORCHLEAK_PYTHON`, or the one that
//! `torchleak env add` makes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

/// Garbage objects: one step of about 30 layers is 4,000.
const SIZES: [u32; 2] = [17_000, 170_000];

struct Server {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Server {
    fn start(python: &str, bundle: &Path, objects: u32) -> Self {
        let worker = Path::new(env!("CARGO_MANIFEST_DIR")).join("harness/worker");
        let paths = [worker.clone(), worker.join("tests"), bundle.to_owned()];
        let mut process = Command::new(python)
            .arg(worker.join("benches/serve.py"))
            .arg(objects.to_string())
            .env("PYTHONPATH", std::env::join_paths(paths).expect("a path without a colon"))
            .env("OMP_NUM_THREADS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the interpreter starts");
        let input = process.stdin.take().expect("stdin is piped");
        let output = BufReader::new(process.stdout.take().expect("stdout is piped"));
        let mut server = Self { process, input, output };
        let ready = server.line();
        assert!(ready.starts_with("ready"), "the server said {ready:?}");
        server
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the server answers");
        line.trim().to_owned()
    }

    fn time(&mut self, call: &str, repeats: u64) -> Duration {
        writeln!(self.input, "{call} {repeats}").expect("the server reads");
        Duration::from_secs_f64(self.line().parse().expect("the server answers with seconds"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn python() -> String {
    if let Some(python) = std::env::var("TORCHLEAK_PYTHON").ok().filter(|python| !python.is_empty()) {
        let binary = Path::new(&python).join("bin/python");
        return if binary.exists() { binary.display().to_string() } else { python };
    }
    let added =
        Command::new(env!("CARGO_BIN_EXE_torchleak")).args(["env", "add"]).output().expect("torchleak runs");
    String::from_utf8(added.stdout).expect("a path").trim().to_owned()
}

fn diagnosis(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bundle = torchleak::worker::unpack(folder.path()).expect("the worker is unpacked");
    let python = python();
    let mut group = criterion.benchmark_group("garbage");
    group.sample_size(10);
    for objects in SIZES {
        let mut server = Server::start(&python, &bundle, objects);
        for call in ["cycles", "get_referents", "create_graph"] {
            group.bench_function(BenchmarkId::new(call, objects), |bencher| {
                bencher.iter_custom(|repeats| server.time(call, repeats));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, diagnosis);
criterion_main!(benches);
