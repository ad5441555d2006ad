//! From a line of a log to what it says. Lines can be torn, mixed, coloured, or no text at all.

use std::sync::LazyLock;

use regex::{Captures, Regex, bytes};

use super::event::{Event, Fact, Point, Rank};
use super::prefix::{moment, prefixes};

const GIB: f64 = (1_u64 << 30) as f64;

/// More than any device has; a larger number was torn or invented.
const MOST_GIB: f64 = 1_048_576.0;

/// Words of which a line that matters has at least one. Most lines of a log are left at that.
static TELLING: LazyLock<bytes::Regex> = LazyLock::new(|| words(&[&["step:"], OTHERS.as_slice()].concat()));

/// Those of all lines but a step's.
static OTHER: LazyLock<bytes::Regex> = LazyLock::new(|| words(&OTHERS));

const OTHERS: [&str; 11] = [
    "[GC]",
    "Memory changed during GC",
    "Reference cycle includes",
    "Tensors found in garbage",
    "Force GC to perform",
    " capacity: ",
    "memory allocation retries",
    "out of memory",
    "n_layers=",
    "local batch size",
    "Model llama3 ",
];

fn words(words: &[&str]) -> bytes::Regex {
    let escaped: Vec<String> = words.iter().map(|word| regex::escape(word)).collect();
    bytes::Regex::new(&escaped.join("|")).expect("a valid pattern")
}

/// In June 2025 it was `[GC] Peforming periodical GC collection. 0.06 seconds.`
static COLLECTED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\[GC\] (.{1,200}?)\.?(?: took)? ([0-9]{1,9}(?:\.[0-9]{1,9})?) seconds"));

static FORCED: LazyLock<Regex> = LazyLock::new(|| pattern(r"Force GC to perform [^.]{1,100}"));

static FREED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Memory changed during GC, (-?[0-9]{1,19}) bytes freed"));

static CYCLE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Reference cycle includes a \w{1,20} Tensor see visualization of cycle (\S+)"));

static CAPACITY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r" capacity: .{0,200} with ([0-9]{1,9}(?:\.[0-9]{1,9})?)GiB memory"));

static RETRIES: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\b([0-9]{1,18}) \w{1,20} memory allocation retries"));

static FACTS: LazyLock<[(Fact, Regex); 5]> = LazyLock::new(|| {
    [
        (Fact::Layers, pattern(r"\bn_layers=([0-9]{1,9})\b")),
        (Fact::Dim, pattern(r"[( ,]dim=([0-9]{1,9})\b")),
        (Fact::LocalBatch, pattern(r"\blocal batch size ([0-9]{1,9})\b")),
        (Fact::SequenceLength, pattern(r"\bsequence length ([0-9]{1,9})\b")),
        (Fact::TotalSteps, pattern(r"\btotal steps ([0-9]{1,9})\b")),
    ]
});

/// The layers of torchtitan's llama3 models, whose name a log tells even where it tells no layers.
static FLAVOUR: LazyLock<Regex> = LazyLock::new(|| pattern(r"Model llama3 (\w{1,20}) size: "));
const FLAVOURS: [(&str, u64); 4] = [("debugmodel", 6), ("8B", 32), ("70B", 80), ("405B", 126)];

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a valid pattern")
}

/// Reads a line and hands what it says, with the rank that says it, to `tell`.
pub fn read_line(line: &[u8], tell: &mut impl FnMut(Option<Rank>, Event<'_>)) {
    if !TELLING.is_match(line) {
        return;
    }
    let text = String::from_utf8_lossy(line);
    let plain = if text.contains('\x1b') { console::strip_ansi_codes(&text) } else { text.as_ref().into() };
    // A progress bar ends its lines with a carriage return.
    for part in plain.split('\r') {
        // Where a line was torn by another process's, each has a prefix of its own.
        let mut from = 0;
        let mut rank = None;
        for found in prefixes(part) {
            read_piece(&part[from..found.start], rank.as_ref(), tell);
            from = found.end;
            rank = Some(found.rank);
        }
        read_piece(&part[from..], rank.as_ref(), tell);
    }
}

/// Reads what one process wrote.
fn read_piece(text: &str, rank: Option<&Rank>, tell: &mut impl FnMut(Option<Rank>, Event<'_>)) {
    let mut tell = |event: Event<'_>| tell(rank.cloned(), event);
    steps(text, &mut tell);
    if OTHER.is_match(text.as_bytes()) {
        others(text, &mut tell);
    }
}

/// Reads what is no step's line.
fn others(text: &str, tell: &mut impl FnMut(Event<'_>)) {
    if let Some(found) = COLLECTED.captures(text) {
        tell(Event::Collected {
            reason: found.get(1).map_or("", |reason| reason.as_str()),
            seconds: number(&found, 2),
        });
    } else if !text.contains("[GC]")
        && let Some(found) = FORCED.find(text)
    {
        tell(Event::Collected { reason: found.as_str(), seconds: 0.0 });
    }
    if let Some(bytes) = FREED.captures(text).and_then(|found| found[1].parse().ok()) {
        tell(Event::Freed(bytes));
    }
    if let Some(found) = CYCLE.captures(text) {
        tell(Event::CycleFile(found.get(1).map_or("", |path| path.as_str())));
    }
    if text.contains("Tensors found in garbage") {
        tell(Event::NoTensors);
    }
    if let Some(found) = CAPACITY.captures(text) {
        let size = number(&found, 1);
        if size > 0.0 && size < MOST_GIB {
            tell(Event::Capacity(size * GIB));
        }
    }
    if text.contains("allocation retries")
        && let Some(times) = RETRIES.captures(text).and_then(|found| found[1].parse().ok())
    {
        tell(Event::Retries(times));
    }
    if text.contains("out of memory") && !text.contains("step:") {
        tell(Event::OutOfMemory);
    }
    facts(text, tell);
}

fn facts(text: &str, tell: &mut impl FnMut(Event<'_>)) {
    if !(text.contains("n_layers=") || text.contains("local batch size") || text.contains("Model llama3 ")) {
        return;
    }
    for (fact, pattern) in FACTS.iter() {
        if let Some(value) = pattern.captures(text).and_then(|found| found[1].parse().ok()) {
            tell(Event::Fact(*fact, value));
        }
    }
    if let Some(found) = FLAVOUR.captures(text)
        && let Some((_, layers)) = FLAVOURS.iter().find(|(name, _)| *name == &found[1])
    {
        tell(Event::Fact(Fact::Layers, *layers));
    }
}

/// A number that a pattern has found.
fn number(found: &Captures<'_>, group: usize) -> f64 {
    found.get(group).and_then(|text| text.as_str().parse().ok()).unwrap_or(0.0)
}

/// Every step in a text: two can stand in one line where the first was torn.
fn steps(text: &str, tell: &mut impl FnMut(Event<'_>)) {
    let mut starts = text.match_indices("step:").map(|(at, _)| at).peekable();
    while let Some(start) = starts.next() {
        let before = &text[..start];
        // `validate step:` tells of a pass without gradients, and `global_step:` is none of torchtitan's.
        if before.ends_with("validate ")
            || before.chars().next_back().is_some_and(|last| !last.is_whitespace())
        {
            continue;
        }
        let end = starts.peek().copied().unwrap_or(text.len());
        let section = &text[start + "step:".len()..end];
        tell(step(section, || moment(before)).map_or(Event::Unreadable, Event::Step));
    }
}

/// Reads what follows `step:`.
fn step(section: &str, at: impl FnOnce() -> Option<f64>) -> Option<Point> {
    let rest = section.trim_start();
    let (digits, rest) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    if !rest.starts_with([' ', '\t']) {
        return None;
    }
    let step = digits.parse().ok()?;
    let (gib, rest) = field(rest, "memory:")?.split_once("GiB")?;
    let gib: f64 = gib.parse().ok().filter(|gib| (0.0..MOST_GIB).contains(gib))?;
    let percent =
        rest.strip_prefix('(').and_then(|rest| rest.split_once("%)")).and_then(|(text, _)| text.parse().ok());
    let tps = field(rest, "tps:").and_then(|rest| rest.split_ascii_whitespace().next());
    Some(Point {
        step,
        memory: gib * GIB,
        percent: percent.filter(|percent| (f64::MIN_POSITIVE..=100.0).contains(percent)),
        tps: tps
            .and_then(|tps| tps.replace(',', "").parse().ok())
            .filter(|tps: &f64| tps.is_finite() && *tps > 0.0),
        at: at(),
    })
}

/// What follows a field's name.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    Some(text[text.find(name)? + name.len()..].trim_start())
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
