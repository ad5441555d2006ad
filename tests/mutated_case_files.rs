//! No case file, however broken, makes the reader panic: it gives an error or a checked case.

use proptest::{prelude::*, test_runner::Config};
use torchleak::case::{Case, Catalog};

/// A case that uses most keys and little prose.
const DENSE: &str = "\
name: dense
summary: &s A block output is held by a cycle.
upstream: [pytorch/pytorch#153300]
when: named
model: &m {block: llama3, layers: 4, dim: 256, heads: 8, kv_heads: 4, ffn_dim: 512, vocab: 1000}
input: {batch: 2, seq: 128}
dtype: bfloat16
steps: 6
warmup: 2
seed: 3
threads: 2
optimizer: adamw
checkpoint: {mode: selective, policy: [aten.mm.default], early_stop: true, preserve_rng_state: false}
compile: {disable: {api: torch._disable_dynamo, site: recompute-fn}, block: aot_eager}
arms: [uncollected, collected, collected: {generation: 1}, periodic: {gc_freq: 5, generation: 0}]
imports: cold
retains: {tensors: [{name: block output, shape: [batch*seq, 2*dim], dtype: int64, per: layer, count: 2, held_by: c++}], rng_states: 1}
expect:
  - {torch: \">=2.6,<2.9\", python: \">=3.12\", device: cpu, verdict: reproduced}
  - {verdict: one-off}
tolerance: 4KiB
memory: 2GiB
on: {cpu: {model: {<<: *m, layers: 2}, input: {batch: 1, seq: 16}, dtype: float32, threads: 1}, cuda: {steps: 8}}
";

#[test]
fn the_dense_case_is_good() {
    Case::from_bytes("dense.yaml", DENSE.as_bytes()).unwrap();
}

/// Tokens that mean something to YAML or sit at an edge of a type.
const TOKENS: &[&str] = &[
    "-1",
    "0",
    "18446744073709551616",
    "1e999",
    ".nan",
    "~",
    "null",
    "true",
    "",
    "[",
    "]",
    "{",
    "}",
    "[]",
    "{}",
    "- ",
    ": ",
    "? ",
    "&a ",
    "*a",
    "<<: *a",
    "!!binary ",
    "!!int ",
    "!x ",
    "|",
    ">-\n",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "# ",
    "\t",
    "\"",
    "'",
    "\\",
    "\u{feff}",
    "\u{0}",
    "\u{1b}",
    "\u{85}",
    "\u{2028}",
    "\u{1f4a5}",
    "batch*seq*",
    ">=",
    "==2.*",
    "on:\n",
    "program: x.py\n",
    "collected: ",
    "head_dim: 1,",
    "4GiB",
    "../",
];

#[derive(Debug, Clone)]
enum Mutation {
    Byte(usize, u8),
    Delete(usize, usize),
    Insert(usize, &'static str),
    Replace(usize, &'static str),
    Repeat(usize, usize, usize),
    Swap(usize, usize),
    Cut(usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = || 0_usize..4000;
    let token = || prop::sample::select(TOKENS);
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Mutation::Byte(at, byte)),
        (at(), 1_usize..40).prop_map(|(at, length)| Mutation::Delete(at, length)),
        (at(), token()).prop_map(|(at, token)| Mutation::Insert(at, token)),
        (at(), token()).prop_map(|(at, token)| Mutation::Replace(at, token)),
        (at(), 1_usize..60, 1_usize..20).prop_map(|(at, length, times)| Mutation::Repeat(at, length, times)),
        (at(), at()).prop_map(|(a, b)| Mutation::Swap(a, b)),
        at().prop_map(Mutation::Cut),
    ]
}

/// The bytes of the word at or after `at`.
fn word(bytes: &[u8], at: usize) -> std::ops::Range<usize> {
    let part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.*>=".contains(byte);
    let start = bytes[at..].iter().position(part).map_or(bytes.len(), |skip| at + skip);
    let end = bytes[start..].iter().position(|byte| !part(byte)).map_or(bytes.len(), |length| start + length);
    start..end
}

fn mutate(bytes: &mut Vec<u8>, mutation: &Mutation) {
    if bytes.is_empty() {
        return;
    }
    let size = bytes.len();
    let span = |at: usize, length: usize| at % size..(at % size + length).min(size);
    match *mutation {
        Mutation::Byte(at, byte) => bytes[at % size] = byte,
        Mutation::Delete(at, length) => drop(bytes.drain(span(at, length))),
        Mutation::Insert(at, token) => drop(bytes.splice(at % size..at % size, token.bytes())),
        Mutation::Replace(at, token) => {
            let word = word(bytes, at % size);
            drop(bytes.splice(word, token.bytes()));
        }
        Mutation::Repeat(at, length, times) => {
            let piece = bytes[span(at, length)].repeat(times);
            drop(bytes.splice(at % size..at % size, piece));
        }
        Mutation::Swap(a, b) => bytes.swap(a % size, b % size),
        Mutation::Cut(at) => bytes.truncate(at % size),
    }
}

#[test]
fn ten_thousand_mutated_case_files_give_an_error_or_a_case() {
    let shipped = Catalog::shipped().unwrap();
    // A case in memory that names a program is always refused, so its mutations would test little.
    let without_program = shipped.cases().iter().filter(|case| case.program_source.is_none());
    let mut seeds: Vec<String> = without_program.map(|case| case.source.clone()).collect();
    // The shipped files are mostly comment and summary; a dense one is hit where it matters.
    seeds.extend([DENSE.to_owned(), DENSE.to_owned()]);
    let mut runner = proptest::test_runner::TestRunner::new(Config {
        cases: 10_000,
        failure_persistence: None,
        ..Config::default()
    });
    let inputs = (prop::sample::select(seeds), prop::collection::vec(mutation(), 1..6));
    let accepted = std::cell::Cell::new(0);
    runner
        .run(&inputs, |(seed, mutations)| {
            let mut bytes = seed.into_bytes();
            for mutation in &mutations {
                mutate(&mut bytes, mutation);
            }
            match Case::from_bytes("mutated.yaml", &bytes) {
                Ok(case) => {
                    accepted.set(accepted.get() + 1);
                    for device in [torchleak_protocol::Device::Cpu, torchleak_protocol::Device::Cuda] {
                        let resolved = case.resolved(device);
                        prop_assert!(resolved.steps >= resolved.warmup + 3 || !case.runs_on(device));
                    }
                }
                Err(error) => {
                    prop_assert!(!error.problems().is_empty());
                    let drawn = error.render(false, 80);
                    prop_assert!(drawn.contains("mutated.yaml"), "{}", drawn);
                }
            }
            Ok(())
        })
        .unwrap();
    // Mutations that are all refused at the first byte would test little.
    assert!((500..9_500).contains(&accepted.get()), "{} of 10,000 were accepted", accepted.get());
}
