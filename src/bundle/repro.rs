//! `repro.py`: one file that shows what a case shows, with torch alone.

use std::collections::BTreeMap;

use askama::Template;
use torchleak_protocol::{
    Activation, Block, CheckpointMode, Device, DisableApi, DisableSite, Dtype, Optimizer, Start,
};

use crate::case::{Body as CaseBody, Case, Resolved, Verdict};
use crate::measure::Place;
use crate::run::judged_memory;
use crate::verdict::FLAT_BYTES;

/// Columns of the comment at the top.
const WIDTH: usize = 108;

/// A script of this case on this device. It says by itself what it saw; `seen` is what the run saw.
///
/// # Errors
/// The template fails, which would be a mistake of torchleak's.
pub fn script(case: &Case, resolved: &Resolved, seen: Verdict) -> askama::Result<String> {
    let (body, dtype, optimizer) = match &resolved.body {
        CaseBody::Llama3(block) => (Body::Llama3(Llama(block)), block.dtype, block.optimizer),
        CaseBody::File { text, dtype, dims, .. } => {
            (Body::Program(Own { text: text.trim(), dims }), *dtype, Optimizer::Sgd)
        }
    };
    let (place, predicted) = judged_memory(resolved.prediction.as_ref(), resolved.device);
    let repro = Repro {
        head: head(case),
        body,
        cuda: resolved.device == Device::Cuda,
        dtype: name_of(dtype),
        optimizer,
        warmup: resolved.warmup,
        measured: resolved.steps - resolved.warmup,
        seed: resolved.seed,
        threads: resolved.threads,
        flat: resolved.tolerance.unwrap_or(FLAT_BYTES as u64),
        counts_host: place == Place::Host,
        predicted: predicted
            .map(|predicted| Predicted { bytes: predicted.total, terms: terms(resolved, predicted.total) }),
        once: seen == Verdict::OneOff || resolved.start == Start::Spawn,
    };
    let text = repro.render()?;
    // The tags of the template leave an empty line at the top.
    Ok(text.trim_start().lines().map(|line| line.trim_end().to_owned() + "\n").collect())
}

/// What is told at the top: the case, and how to run it.
fn head(case: &Case) -> Vec<String> {
    let summary = case.spec.summary.split(". ").next().unwrap_or_default().trim_end_matches('.');
    let mut paragraphs = vec![format!("{}: {summary}.", case.name())];
    if !case.spec.upstream.is_empty() {
        let references: Vec<String> = case.spec.upstream.iter().map(ToString::to_string).collect();
        paragraphs.push(format!("See {}.", references.join(", ")));
    }
    paragraphs.push(
        "`python repro.py` needs torch only. It trains without the garbage collector, prints the bytes in use after each \
         step and what one gc.collect() then frees, and exits with 0 (nothing is kept), 1 (something is) or 125 (unclear)."
            .to_owned(),
    );
    paragraphs.iter().flat_map(|paragraph| wrapped(paragraph)).collect()
}

fn wrapped(text: &str) -> Vec<String> {
    text.split_whitespace().fold(Vec::<String>::new(), |mut lines, word| {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
        lines
    })
}

/// The predicted bytes in words: the tensors that they are, where those are all in the memory that counts.
fn terms(resolved: &Resolved, bytes: u64) -> String {
    let Some(prediction) =
        resolved.prediction.as_ref().filter(|prediction| prediction.total_bytes() == bytes)
    else {
        return "what lies in this memory".to_owned();
    };
    let terms = prediction.terms.iter();
    let terms: Vec<String> =
        terms.map(|term| format!("{} x {:?} {} {}", term.count, term.shape, term.dtype, term.name)).collect();
    terms.join(" + ")
}

fn name_of(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Float32 => "float32",
        Dtype::Bfloat16 => "bfloat16",
        Dtype::Float64 => "float64",
    }
}

/// The script's template.
#[derive(Template)]
#[template(path = "repro.py", escape = "none")]
struct Repro<'a> {
    head: Vec<String>,
    body: Body<'a>,
    cuda: bool,
    dtype: &'static str,
    optimizer: Optimizer,
    warmup: u32,
    measured: u32,
    seed: u64,
    threads: u32,
    /// Growth in bytes per step that still counts as none.
    flat: u64,
    /// Whether the C allocator's bytes are counted, and not the GPU's.
    counts_host: bool,
    predicted: Option<Predicted>,
    /// Whether what is kept once is told apart from what is not kept.
    once: bool,
}

enum Body<'a> {
    Llama3(Llama<'a>),
    Program(Own<'a>),
}

/// A case's own program.
struct Own<'a> {
    text: &'a str,
    dims: &'a BTreeMap<String, u64>,
}

impl Own<'_> {
    /// As Python writes it.
    fn dims(&self) -> String {
        let dims: Vec<String> = self.dims.iter().map(|(name, size)| format!("\"{name}\": {size}")).collect();
        format!("{{{}}}", dims.join(", "))
    }
}

struct Predicted {
    bytes: u64,
    terms: String,
}

impl Body<'_> {
    fn is_program(&self) -> bool {
        matches!(self, Self::Program(_))
    }
}

impl Repro<'_> {
    fn device(&self) -> &'static str {
        if self.cuda { "cuda" } else { "cpu" }
    }

    fn optimizer(&self) -> &'static str {
        match self.optimizer {
            Optimizer::Sgd => "SGD(model.parameters(), lr=1e-3)",
            Optimizer::Adamw => "AdamW(model.parameters(), lr=3e-4)",
        }
    }

    fn llama(&self) -> Option<&Block> {
        match &self.body {
            Body::Llama3(block) => Some(block),
            Body::Program(_) => None,
        }
    }

    fn modules(&self) -> String {
        let Some(block) = self.llama() else { return String::new() };
        let count = if block.model.share_weights { "1" } else { "LAYERS" };
        if block.model.vocab.is_none() {
            return format!("Block() for _ in range({count})");
        }
        let ends = "nn.Embedding(VOCAB, DIM), nn.RMSNorm(DIM), linear(DIM, VOCAB)";
        format!("[*(Block() for _ in range({count})), {ends}]")
    }

    /// The predicted bytes with what they are.
    fn kept(&self) -> String {
        match &self.predicted {
            Some(Predicted { bytes, terms }) => format!("{bytes}  # predicted bytes per step: {terms}"),
            None => "0  # nothing is predicted".to_owned(),
        }
    }

    fn call(&self) -> &'static str {
        if self.body.is_program() { "step(state)" } else { "train_step(model, optimizer)" }
    }
}

/// A block, as the template asks of it.
struct Llama<'a>(&'a Block);

impl std::ops::Deref for Llama<'_> {
    type Target = Block;

    fn deref(&self) -> &Block {
        self.0
    }
}

impl Llama<'_> {
    fn sizes(&self) -> String {
        let model = &self.model;
        let sizes = [model.layers, model.dim, model.heads, model.kv_heads, model.head_dim, model.ffn_dim];
        sizes.map(|size| size.to_string()).join(", ")
    }

    /// The blocks in the order in which they are applied.
    fn stack(&self) -> String {
        let blocks = if self.model.vocab.is_some() { "blocks" } else { "model" };
        if self.model.share_weights { format!("[*{blocks}] * LAYERS") } else { blocks.to_owned() }
    }

    /// The call of one block.
    fn call(&self) -> String {
        if self.is_checkpointed() {
            format!("checkpoint.checkpoint(block, x, use_reentrant=False{})", self.options())
        } else {
            "block(x)".to_owned()
        }
    }

    fn shares_heads(&self) -> bool {
        self.model.kv_heads < self.model.heads
    }

    fn is_checkpointed(&self) -> bool {
        self.checkpoint.mode != CheckpointMode::None
    }

    fn is_selective(&self) -> bool {
        self.checkpoint.mode == CheckpointMode::Selective
    }

    fn saves_every_second_mm(&self) -> bool {
        self.is_selective() && self.checkpoint.policy == Activation::EverySecondMm
    }

    /// The operators whose outputs are saved, where a list says so.
    fn saved_operators(&self) -> Option<String> {
        let names = match &self.checkpoint.policy {
            Activation::EverySecondMm => return None,
            Activation::AllMm => vec!["aten.mm.default".to_owned()],
            Activation::Ops(names) => names.clone(),
        };
        let operators: Vec<String> = names.iter().map(|name| format!("torch.ops.{name}")).collect();
        self.is_selective().then(|| operators.join(", "))
    }

    /// Further arguments of the checkpoint.
    fn options(&self) -> String {
        let contexts = if self.is_selective() { ", context_fn=contexts" } else { "" };
        let rng = if self.checkpoint.preserve_rng_state { "" } else { ", preserve_rng_state=False" };
        format!("{contexts}{rng}")
    }

    fn disable_on_recompute(&self) -> Option<&'static str> {
        self.disable(DisableSite::RecomputeFn).filter(|_| self.is_checkpointed())
    }

    fn disable_on_forward(&self) -> Option<&'static str> {
        self.disable(DisableSite::BlockForward)
    }

    fn disable(&self, site: DisableSite) -> Option<&'static str> {
        (self.compile.site == site).then_some(self.compile.disable?).map(|api| match api {
            DisableApi::Private => "torch._disable_dynamo",
            DisableApi::Public => "torch.compiler.disable",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Catalog;

    #[test]
    fn the_script_of_every_shipped_case_fits_a_screen_or_two() {
        for case in Catalog::shipped().unwrap().cases() {
            for device in [Device::Cpu, Device::Cuda].into_iter().filter(|device| case.runs_on(*device)) {
                let text = script(case, &case.resolved(device), Verdict::Reproduced).unwrap();
                let lines = text.lines().count();
                assert!(lines < 120, "{}: {lines} lines", case.name());
                assert!(!text.contains("{{") && !text.contains("{%"), "{text}");
            }
        }
    }

    #[test]
    fn a_script_holds_only_what_its_case_uses() {
        let shipped = Catalog::shipped().unwrap();
        let text = |name: &str| {
            let case = shipped.get(name).unwrap();
            script(case, &case.resolved(Device::Cpu), Verdict::Fixed).unwrap()
        };
        let headline = text("sac-disable-recompute");
        assert!(headline.contains("torch._disable_dynamo(recompute_fn)"));
        assert!(
            headline
                .contains("kept = 1058688  # predicted bytes per step: 2 x [256, 512] float32 block output")
        );
        let stock = text("sac-stock");
        assert!(
            stock.contains("def contexts()")
                && !stock.contains("recompute_fn")
                && stock.contains("nothing is predicted")
        );
        assert!(!text("full-ac-disable").contains("contexts"));
        assert!(text("no-ac-disable").contains("Block.forward = torch._disable_dynamo(Block.forward)"));
        assert!(!text("no-ac-disable").contains("checkpoint.checkpoint"));
        assert!(text("sac-disable-no-early-stop").contains("set_checkpoint_early_stop(False)"));
        assert!(text("fx-wrap-lazy-import").contains("one-off"));
    }
}
