//! What must hold between the keys of a case.
//!
//! Written against [`garde::Validate`] by hand, because most rules span several keys. Each finding is
//! reported at the path of the key to change, which the YAML parser maps back to line and column.

use garde::{Path, Report, Validate};
use torchleak_protocol::{Activation, CheckpointMode, Device, DisableSite, Input, Parallel};

use super::{
    arms::Arm,
    error::with_hint,
    model::{Model, Sections},
    retains::{Retains, is_dimension},
    spec::Spec,
};

/// What is known about a file before it is read.
#[derive(Debug, Default)]
pub struct Context {
    /// The file's name without its ending, which the case's name must equal.
    pub stem: Option<String>,
}

impl Validate for Spec {
    type Context = Context;

    fn validate_into(&self, context: &Context, parent: &mut dyn FnMut() -> Path, report: &mut Report) {
        let mut check = Check { root: parent(), report };
        check.identity(self, context);
        check.body(self);
        check.training(self);
        check.ranks(self);
        check.arms(&self.arms);
        check.expectations(self);
        for device in self.device.devices() {
            check.device(self, device);
        }
    }
}

/// More ranks than a machine has GPUs or cores tell nothing that fewer do not.
const MOST_RANKS: u32 = 64;

/// Time and memory of a slope grow with the square of the steps.
const MOST_STEPS: u32 = 10_000;

/// Steps after warm-up that a slope needs.
const FEWEST_MEASURED: u32 = 3;

/// What is allowed for each number of a case that depends on no other.
const RANGES: [(&str, u32, u32); 12] = [
    ("ranks", 1, MOST_RANKS),
    ("threads", 1, 1024),
    ("layers", 1, 1024),
    ("dim", 1, 131_072),
    ("heads", 1, 4096),
    ("kv_heads", 1, 4096),
    ("head_dim", 2, 8192),
    ("ffn_dim", 1, 1 << 20),
    ("vocab", 1, 1 << 22),
    ("batch", 1, 65_536),
    ("seq", 1, 1 << 22),
    ("gc_freq", 1, u32::MAX),
];

/// What is allowed for a key, in words. None for a key that is no number, or one of another size.
pub(super) fn limits(key: &str) -> Option<String> {
    match key {
        "steps" => Some(format!("`warmup` + {FEWEST_MEASURED} to {MOST_STEPS}")),
        "warmup" => Some(format!("0 to `steps` - {FEWEST_MEASURED}")),
        _ => RANGES.iter().find(|(known, ..)| *known == key).map(|(_, low, high)| format!("{low} to {high}")),
    }
}

struct Check<'a> {
    root: Path,
    report: &'a mut Report,
}

impl Check<'_> {
    /// Reports a finding at a dotted path; a segment of digits is an index.
    fn report(&mut self, path: &str, message: impl std::fmt::Display) {
        let mut at = self.root.clone();
        for segment in path.split('.') {
            at = match segment.parse::<usize>() {
                Ok(index) => at.join(index),
                Err(_) => at.join(segment),
            };
        }
        // Two devices can share the section that is wrong. One report is enough.
        let error = garde::Error::new(message);
        if !self.report.iter().any(|(path, known)| *path == at && *known == error) {
            self.report.append(at, error);
        }
    }

    /// Checks a number whose key is among [`RANGES`].
    fn range(&mut self, path: &str, value: u32) -> bool {
        let key = path.rsplit('.').next().unwrap_or(path);
        let known = RANGES.iter().find(|(known, ..)| *known == key);
        let &(_, low, high) = known.unwrap_or(&("", 0, u32::MAX));
        let within = (low..=high).contains(&value);
        if !within {
            self.report(path, with_hint(format!("`{key}` is {value}"), format!("allowed: {low} to {high}")));
        }
        within
    }

    fn identity(&mut self, spec: &Spec, context: &Context) {
        let name = &spec.name;
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > 80 || name.starts_with('-') || !name.chars().all(allowed) {
            let hint = "small letters, digits and dashes, at most 80, beginning with a letter or digit";
            self.report("name", with_hint(format!("`{name}` cannot name a case"), hint));
        } else if let Some(stem) = &context.stem
            && stem != name
        {
            self.report(
                "name",
                with_hint(
                    format!("the case is named `{name}`, but its file `{stem}`"),
                    "give both the same name; a case is looked up by it",
                ),
            );
        }
        if spec.summary.trim().is_empty() {
            self.report("summary", with_hint("the summary is empty", "say in a sentence what holds what"));
        }
    }

    /// A case has a model or a program.
    fn body(&mut self, spec: &Spec) {
        let Some(program) = &spec.program else {
            let missing = "give `model` and `input`, or `program` with a Python file beside this one";
            if spec.model.is_none() {
                self.report("model", with_hint("there is neither a `model` nor a `program`", missing));
            } else if spec.input.is_none() {
                self.report(
                    "input",
                    with_hint("`model` comes without `input`", "give `input: {batch: B, seq: S}`"),
                );
            }
            if !spec.dims.is_empty() {
                let hint = "a model's dimensions have names already: batch, seq, dim, heads and so on";
                self.report("dims", with_hint("`dims` belongs to a `program` case", hint));
            }
            return;
        };
        if !is_plain_python_name(program) {
            let hint = "name a file in the same folder, for example `program: leak.py`";
            self.report(
                "program",
                with_hint(format!("`{program}` is not a Python file beside the case"), hint),
            );
        }
        let on = |part: fn(&super::model::Replacement) -> bool| {
            [&spec.on.cpu, &spec.on.cuda].into_iter().flatten().any(part)
        };
        let foreign = [
            ("model", spec.model.is_some()),
            ("input", spec.input.is_some()),
            ("checkpoint", spec.checkpoint.is_some()),
            ("compile", spec.compile.is_some()),
            ("optimizer", spec.optimizer != Default::default()),
            ("parallel", spec.parallel != Parallel::None),
            ("on", on(|on| on.model.is_some()) || on(|on| on.input.is_some())),
        ];
        for (key, _) in foreign.into_iter().filter(|(_, present)| *present) {
            let hint = "a program builds its own model; keep one of the two";
            self.report(key, with_hint(format!("`{key}` has no effect beside `program`"), hint));
        }
        for (name, size) in &spec.dims {
            if !is_dimension(name) {
                let hint = "small letters, digits and `_`, at most 40";
                self.report("dims", with_hint(format!("`{name}` cannot name a dimension"), hint));
            } else if *size == 0 {
                self.report(
                    &format!("dims.{name}"),
                    with_hint(format!("`{name}` is 0"), "allowed: 1 and above"),
                );
            }
        }
    }

    fn ranks(&mut self, spec: &Spec) {
        self.range("ranks", spec.ranks);
        if spec.ranks == 1 && spec.parallel != Parallel::None {
            let hint = "give `ranks: 2` or more, or leave `parallel` out";
            self.report("parallel", with_hint("one rank has nobody to be parallel with", hint));
        }
    }

    fn training(&mut self, spec: &Spec) {
        let mode = spec.checkpoint.as_ref().map(|section| section.mode).unwrap_or_default();
        if let Some(policy) = spec.checkpoint.as_ref().and_then(|section| section.policy.as_ref()) {
            if mode != CheckpointMode::Selective {
                let hint = "say `mode: selective`, or leave the policy out";
                self.report(
                    "checkpoint.policy",
                    with_hint("only selective checkpointing has a policy", hint),
                );
            }
            if let Activation::Ops(ops) = &policy.0 {
                let hint = "write names as torch does, for example `aten.mm.default`";
                if ops.is_empty() {
                    self.report("checkpoint.policy", with_hint("the list of operators is empty", hint));
                }
                for (index, op) in ops.iter().enumerate().filter(|(_, op)| !is_operator(op)) {
                    let path = format!("checkpoint.policy.{index}");
                    self.report(&path, with_hint(format!("`{op}` is not the name of an operator"), hint));
                }
            }
        }
        let Some(compile) = &spec.compile else { return };
        let site = compile.disable.0.map(|at| at.site);
        if site == Some(DisableSite::RecomputeFn) && mode == CheckpointMode::None {
            let hint = "choose a checkpoint mode, or `site: block-forward`";
            self.report("compile.disable", with_hint("without checkpointing nothing is recomputed", hint));
        }
        if let Some(backend) = &compile.block.0
            && !is_word(backend)
        {
            let hint = "for example `eager`, `aot_eager` or `inductor`";
            self.report(
                "compile.block",
                with_hint(format!("`{backend}` is not the name of a backend"), hint),
            );
        }
    }

    fn arms(&mut self, arms: &[Arm]) {
        if !arms.contains(&Arm::Uncollected) || !arms.iter().any(|arm| arm.collects_fully()) {
            let hint = "list `uncollected` and `collected` (generation 2); others may come beside them";
            self.report("arms", with_hint("a verdict compares `uncollected` with a full `collected`", hint));
        }
        for (index, arm) in arms.iter().enumerate() {
            if arms[..index].contains(arm) {
                let hint = "list each arm once";
                self.report(&format!("arms.{index}"), with_hint(format!("`{arm}` is listed twice"), hint));
            }
            let (generation, gc_freq) = match *arm {
                Arm::Uncollected => (0, 1),
                Arm::Collected { generation } => (generation, 1),
                Arm::Periodic { gc_freq, generation } => (generation, gc_freq),
            };
            if generation > 2 {
                let hint = "allowed: 0, 1, 2; 2 is a full collect";
                self.report(
                    &format!("arms.{index}"),
                    with_hint(format!("`generation` is {generation}"), hint),
                );
            }
            if gc_freq == 0 {
                self.report(&format!("arms.{index}"), with_hint("`gc_freq` is 0", "allowed: 1 and above"));
            }
        }
    }

    fn expectations(&mut self, spec: &Spec) {
        if spec.expect.is_empty() {
            let hint = "for example `- {torch: \">=2.6\", verdict: reproduced}`";
            self.report("expect", with_hint("no verdict is expected", hint));
        }
        let last = spec.expect.len().saturating_sub(1);
        for (index, line) in spec.expect.iter().enumerate() {
            if line.is_catch_all() && index != last {
                let hint = "the first line that matches wins; move this one to the end";
                let message = "this line matches everything, so those below it never do";
                self.report(&format!("expect.{index}"), with_hint(message, hint));
            }
            if let Some(device) = line.device
                && !spec.device.allows(device)
            {
                let hint = "the case never runs on that device; see `device`";
                self.report(&format!("expect.{index}.device"), with_hint("this line never matches", hint));
            }
        }
    }

    /// What depends on the device, with `on:` applied.
    fn device(&mut self, spec: &Spec, device: Device) {
        let sections = Sections::of(spec, device);
        let on = spec.on.device(device);
        let name = match device {
            Device::Cpu => "cpu",
            Device::Cuda => "cuda",
        };
        // A finding belongs to the place that the section was taken from.
        let place = |key: &str, replaced: bool| {
            if replaced { format!("on.{name}.{key}") } else { key.to_owned() }
        };
        let mut sizes_are_good = true;
        if let Some(model) = sections.model {
            sizes_are_good &= self.model(&place("model", on.is_some_and(|on| on.model.is_some())), model);
        }
        if let Some(input) = sections.input {
            sizes_are_good &= self.input(&place("input", on.is_some_and(|on| on.input.is_some())), input);
        }
        let steps = place("steps", on.is_some_and(|on| on.steps.is_some()));
        if sections.steps > MOST_STEPS {
            let hint = format!(
                "at most {MOST_STEPS}: a slope compares every pair of steps, and a leak shows within a few"
            );
            self.report(&steps, with_hint(format!("`steps` is {}", sections.steps), hint));
        } else {
            self.measured_steps(&steps, sections.steps, spec.warmup);
        }
        self.range(&place("threads", on.is_some_and(|on| on.threads.is_some())), sections.threads);
        if let Some(retains) = sections.retains
            && sizes_are_good
        {
            let path = place("retains", on.is_some_and(|on| on.retains.is_some()));
            self.retains(&path, retains, spec, device);
        }
    }

    fn measured_steps(&mut self, path: &str, steps: u32, warmup: u32) {
        let measured = steps.saturating_sub(warmup);
        if measured < FEWEST_MEASURED {
            let path = if warmup >= steps { "warmup" } else { path };
            self.report(
                path,
                with_hint(
                    format!("{steps} steps with a warm-up of {warmup} leave {measured} to measure"),
                    format!("a slope needs at least {FEWEST_MEASURED} steps after warm-up"),
                ),
            );
        }
    }

    fn model(&mut self, path: &str, model: &Model) -> bool {
        let found = self.report.iter().count();
        let at = |key: &str| format!("{path}.{key}");
        self.range(&at("layers"), model.layers);
        let dim = self.range(&at("dim"), model.dim);
        let heads = self.range(&at("heads"), model.heads);
        self.range(&at("ffn_dim"), model.ffn_dim);
        if let Some(vocab) = model.vocab {
            self.range(&at("vocab"), vocab);
        }
        let (width, count) = (model.dim, model.heads);
        match model.head_dim {
            Some(size) if self.range(&at("head_dim"), size) && size % 2 == 1 => {
                let hint = "rotary embedding turns pairs of elements: choose an even width";
                self.report(&at("head_dim"), with_hint(format!("`head_dim` is {size}, which is odd"), hint));
            }
            None if dim && heads && width % count != 0 => self.report(
                &at("heads"),
                with_hint(
                    format!("{count} heads do not divide a dim of {width}"),
                    format!(
                        "{width} / {count} leaves {}; choose heads that divide dim, or give `head_dim`",
                        width % count
                    ),
                ),
            ),
            None if dim && heads && (width / count) % 2 == 1 => self.report(
                &at("heads"),
                with_hint(
                    format!("{count} heads of a dim of {width} are {} wide, which is odd", width / count),
                    "rotary embedding turns pairs of elements: choose other heads, or an even `head_dim`",
                ),
            ),
            _ => {}
        }
        if let Some(kv) = model.kv_heads
            && self.range(&at("kv_heads"), kv)
            && heads
            && count % kv != 0
        {
            self.report(
                &at("kv_heads"),
                with_hint(
                    format!("{kv} kv_heads do not divide {count} heads"),
                    format!(
                        "{count} / {kv} leaves {}; each key head serves the same number of heads",
                        count % kv
                    ),
                ),
            );
        }
        self.report.iter().count() == found
    }

    fn input(&mut self, path: &str, input: Input) -> bool {
        let batch = self.range(&format!("{path}.batch"), input.batch);
        let seq = self.range(&format!("{path}.seq"), input.seq);
        batch && seq
    }

    fn retains(&mut self, path: &str, retains: &Retains, spec: &Spec, device: Device) {
        let sections = Sections::of(spec, device);
        match retains.evaluate(&sections.dims(&spec.dims), sections.dtype, device) {
            Ok(prediction) if prediction.total_bytes() == 0 => {
                let hint = "leave `retains` out where nothing is kept";
                self.report(path, with_hint("this predicts 0 bytes", hint));
            }
            Ok(_) => {}
            Err(fault) => {
                let path = match fault.tensor {
                    Some(index) => format!("{path}.tensors.{index}.shape"),
                    None if retains.rng_states > 0 => format!("{path}.rng_states"),
                    None => path.to_owned(),
                };
                self.report(&path, fault.message);
            }
        }
    }
}

/// A file name that stays in its folder: no separator, no drive, and a name before `.py`.
fn is_plain_python_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    name.strip_suffix(".py").is_some_and(|stem| !stem.is_empty())
        && !name.starts_with('.')
        && name.len() <= 100
        && name.chars().all(plain)
}

fn is_operator(name: &str) -> bool {
    name.split('.').count() == 3 && name.split('.').all(is_word)
}

fn is_word(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.len() <= 100
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
