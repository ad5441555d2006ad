//! From a case to its variants: each condition under which it leaks, switched one at a time.

use serde_json::{Value, json};
use torchleak_protocol::{Activation, Block, CheckpointMode, DisableApi, DisableSite, Dtype, Optimizer};

use super::laws::Quantity;
use crate::case::{Body, Document, Resolved, TensorDtype};

/// Something of a case that can be otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    pub name: &'static str,
    /// What the case has.
    pub base: String,
    /// What it could have instead.
    pub switches: Vec<Switch>,
}

/// One other value of a condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Switch {
    pub value: String,
    edits: Vec<(&'static str, Option<Value>)>,
    /// Whether what the case declares in `retains` still says what is kept: sizes only scale it, and another
    /// program may keep something else.
    keeps_prediction: bool,
    /// Whether the value is simpler than the case's own, so that a minimal case prefers it.
    pub simpler: bool,
    /// The quantity that the switch changes, with its new amount.
    pub amount: Option<(Quantity, u64)>,
}

impl Switch {
    fn new(value: impl Into<String>, edits: impl Into<Vec<(&'static str, Option<Value>)>>) -> Self {
        let (value, edits) = (value.into(), edits.into());
        Self { value, edits, keeps_prediction: false, simpler: false, amount: None }
    }

    fn simpler(self, simpler: bool) -> Self {
        Self { simpler, ..self }
    }

    fn keeping_prediction(self) -> Self {
        Self { keeps_prediction: true, ..self }
    }

    /// Makes the switch one of a size.
    fn amount(self, quantity: Quantity, amount: u64) -> Self {
        Self { amount: Some((quantity, amount)), ..self.keeping_prediction() }
    }

    /// Turns the switch in a case.
    pub fn turn(&self, document: &mut Document) {
        for (path, value) in &self.edits {
            match value {
                Some(value) => document.set(path, value.clone()),
                None => document.remove(path),
            }
        }
        // Where only generator states were predicted, nothing is left to predict, and a case cannot say so.
        if document.get("retains").is_some_and(|retains| !keeps_anything(retains)) {
            document.remove("retains");
        }
    }

    /// The case's document with the switch turned, as a case of its own whose verdict is looked for.
    pub fn variant(&self, condition: &Condition, document: &Document) -> Document {
        let mut variant = document.clone();
        self.turn(&mut variant);
        if !self.keeps_prediction {
            variant.remove("retains");
        }
        variant.set("name", json!(self.name(condition)));
        variant
            .set("summary", json!(format!("{} with {} = {}.", named(document), condition.name, self.value)));
        variant
    }

    /// The variant's name, which is that of a case.
    fn name(&self, condition: &Condition) -> String {
        let name = format!("{}-{}", condition.name, self.value).to_lowercase();
        let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join("-")
    }
}

fn named(document: &Document) -> &str {
    document.get("name").and_then(Value::as_str).unwrap_or_default()
}

fn keeps_anything(retains: &Value) -> bool {
    retains["rng_states"].as_u64() > Some(0)
        || retains["tensors"].as_array().is_some_and(|all| !all.is_empty())
}

/// The conditions of a case. One with a program of its own has no model to switch anything in.
pub fn conditions(case: &Resolved) -> Vec<Condition> {
    let mut found = match &case.body {
        Body::Llama3(block) => model_conditions(block),
        Body::File { .. } => Vec::new(),
    };
    let base = u64::from(case.steps);
    let others = [u64::from(case.warmup) + 3, 2 * base];
    found.push(size("steps", "steps", base, others, |switch, _| switch.keeping_prediction()));
    found
}

/// The amount of each quantity in the case itself.
pub fn amounts(case: &Resolved) -> Vec<(Quantity, u64)> {
    let Body::Llama3(block) = &case.body else { return Vec::new() };
    vec![
        (Quantity::Layers, u64::from(block.model.layers)),
        (Quantity::Tokens, u64::from(block.input.batch) * u64::from(block.input.seq)),
        (Quantity::DtypeBytes, element_size(block.dtype)),
    ]
}

fn model_conditions(block: &Block) -> Vec<Condition> {
    let mut found = vec![compile(block), disable(block)];
    found.extend(site(block));
    found.push(checkpoint(block));
    if block.checkpoint.mode == CheckpointMode::Selective {
        found.push(policy(&block.checkpoint.policy));
    }
    if block.checkpoint.mode != CheckpointMode::None {
        found.push(flag("early-stop", "checkpoint/early_stop", block.checkpoint.early_stop));
        found.push(rng_states(block.checkpoint.preserve_rng_state));
    }
    found.extend(unusual(block));
    found.push(dtype(block.dtype));
    let (layers, batch, seq) = (block.model.layers, block.input.batch, block.input.seq);
    let (all_layers, sequences, length) = (u64::from(layers), u64::from(batch), u64::from(seq));
    found.push(size("layers", "model/layers", all_layers, few(layers), |switch, layers| {
        switch.amount(Quantity::Layers, layers).simpler(layers < all_layers)
    }));
    found.push(size("batch", "input/batch", sequences, few(batch), |switch, batch| {
        switch.amount(Quantity::Tokens, batch * length).simpler(batch < sequences)
    }));
    // A sequence of a few tokens keeps less than what counts as flat.
    let others = if seq >= 8 { [length / 4, length / 2] } else { [2 * length, 4 * length] };
    found.push(size("seq", "input/seq", length, others, |switch, seq| {
        switch.amount(Quantity::Tokens, seq * sequences).simpler(seq < length)
    }));
    found
}

/// Two other counts: one, and something between, or larger ones where there are no two below.
fn few(base: u32) -> [u64; 2] {
    match base {
        0 | 1 => [2, 3],
        2 => [1, 3],
        3 => [1, 2],
        more => [1, u64::from(more / 2)],
    }
}

/// A condition that is a number. `further` says what else is known of a switch to another one.
fn size(
    name: &'static str,
    path: &'static str,
    base: u64,
    others: [u64; 2],
    further: impl Fn(Switch, u64) -> Switch,
) -> Condition {
    let others = others.into_iter().filter(|other| *other != base);
    let switches =
        others.map(|other| further(Switch::new(other.to_string(), [(path, Some(json!(other)))]), other));
    Condition { name, base: base.to_string(), switches: switches.collect() }
}

fn flag(name: &'static str, path: &'static str, base: bool) -> Condition {
    let word = |on| if on { "on" } else { "off" };
    let switch = Switch::new(word(!base), [(path, Some(json!(!base)))]).simpler(base);
    Condition { name, base: word(base).to_owned(), switches: vec![switch] }
}

fn rng_states(base: bool) -> Condition {
    let mut condition = flag("preserve-rng-state", "checkpoint/preserve_rng_state", base);
    if base {
        for switch in &mut condition.switches {
            // The states are what the key counts, so what stays without them is known.
            switch.edits.push(("retains/rng_states", None));
            switch.keeps_prediction = true;
        }
    }
    condition
}

fn compile(block: &Block) -> Condition {
    let base = block.compile.block.clone().unwrap_or_else(|| "none".to_owned());
    // The slowest come first, so that the others run beside them.
    let others = ["inductor", "eager", "none"].into_iter().filter(|other| *other != base);
    let switches = others
        .map(|other| Switch::new(other, [("compile/block", Some(json!(other)))]).simpler(other == "none"))
        .collect();
    Condition { name: "compile", base, switches }
}

/// Where a decorator can be: without checkpointing there is no recompute function.
fn possible_site(block: &Block, mode: CheckpointMode) -> DisableSite {
    if mode == CheckpointMode::None { DisableSite::BlockForward } else { block.compile.site }
}

fn decorator(api: Option<DisableApi>, site: DisableSite) -> Value {
    api.map_or(json!("none"), |api| json!({"api": api, "site": site}))
}

fn disable(block: &Block) -> Condition {
    let site = possible_site(block, block.checkpoint.mode);
    let apis = [None, Some(DisableApi::Public), Some(DisableApi::Private)];
    let others = apis.into_iter().filter(|api| *api != block.compile.disable);
    let switches = others
        .map(|api| {
            let edits = [("compile/disable", Some(decorator(api, site)))];
            Switch::new(word(api), edits).simpler(api.is_none())
        })
        .collect();
    Condition { name: "disable", base: word(block.compile.disable), switches }
}

/// None without a decorator, which would have to be somewhere.
fn site(block: &Block) -> Option<Condition> {
    let api = block.compile.disable?;
    let other = match block.compile.site {
        DisableSite::RecomputeFn => DisableSite::BlockForward,
        DisableSite::BlockForward => DisableSite::RecomputeFn,
    };
    let switch = Switch::new(word(other), [("compile/disable", Some(decorator(Some(api), other)))]);
    Some(Condition { name: "site", base: word(block.compile.site), switches: vec![switch] })
}

fn checkpoint(block: &Block) -> Condition {
    let base = block.checkpoint.mode;
    let modes = [CheckpointMode::None, CheckpointMode::Full, CheckpointMode::Selective];
    let switches = modes.into_iter().filter(|mode| *mode != base).map(|mode| {
        let mut value = word(mode);
        let mut edits = vec![("checkpoint/mode", Some(json!(mode)))];
        if mode != CheckpointMode::Selective {
            edits.push(("checkpoint/policy", None));
        }
        let site = possible_site(block, mode);
        if block.compile.disable.is_some() && site != block.compile.site {
            edits.push(("compile/disable", Some(decorator(block.compile.disable, site))));
            value.push_str(&format!(", site = {}", word(site)));
        }
        let simpler = mode == CheckpointMode::None || base == CheckpointMode::Selective;
        Switch::new(value, edits).simpler(simpler)
    });
    Condition { name: "checkpoint", base: word(base), switches: switches.collect() }
}

fn policy(base: &Activation) -> Condition {
    let shown = |policy: &Activation| match policy {
        Activation::Ops(ops) => ops.join(" "),
        policy => word(policy),
    };
    let switches = [Activation::AllMm, Activation::EverySecondMm]
        .into_iter()
        .filter(|other| other != base)
        .map(|other| {
            let edits = [("checkpoint/policy", Some(json!(other)))];
            Switch::new(shown(&other), edits).simpler(other == Activation::AllMm)
        });
    Condition { name: "policy", base: shown(base), switches: switches.collect() }
}

fn dtype(base: Dtype) -> Condition {
    let others = [Dtype::Bfloat16, Dtype::Float32, Dtype::Float64].into_iter().filter(|other| *other != base);
    let switches = others.map(|other| {
        Switch::new(word(other), [("dtype", Some(json!(other)))])
            .amount(Quantity::DtypeBytes, element_size(other))
            .simpler(other == Dtype::default())
    });
    Condition { name: "dtype", base: word(base), switches: switches.collect() }
}

/// What few cases have, and then only their authors know whether the leak needs it.
fn unusual(block: &Block) -> Vec<Condition> {
    let mut found = Vec::new();
    let mut push = |name, base: String, value: &str, path| {
        found.push(Condition {
            name,
            base,
            switches: vec![Switch::new(value, [(path, None)]).simpler(true)],
        });
    };
    if block.optimizer != Optimizer::default() {
        push("optimizer", word(block.optimizer), &word(Optimizer::default()), "optimizer");
    }
    if let Some(vocab) = block.model.vocab {
        push("vocab", vocab.to_string(), "none", "model/vocab");
    }
    if block.model.share_weights {
        push("share-weights", "on".to_owned(), "off", "model/share_weights");
    }
    found
}

/// The word of a case file for a value.
fn word(value: impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        // An absent choice is `none` in a case file.
        _ => "none".to_owned(),
    }
}

fn element_size(dtype: Dtype) -> u64 {
    TensorDtype::from(dtype).size()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use torchleak_protocol::Device;

    use super::*;
    use crate::case::{Case, Catalog, HEADLINE};

    fn shipped(name: &str) -> Case {
        Catalog::shipped().unwrap().get(name).unwrap().clone()
    }

    /// The variant of the headline with that name, on the CPU.
    fn variant(name: &str) -> Resolved {
        let case = shipped(HEADLINE);
        let document = case.document(Device::Cpu).unwrap();
        let all = conditions(&case.resolved(Device::Cpu));
        let mut variants = all.iter().flat_map(|condition| {
            condition.switches.iter().map(|switch| switch.variant(condition, &document))
        });
        let found = variants.find(|variant| variant.get("name") == Some(&json!(name)));
        case.with_document(&found.unwrap_or_else(|| panic!("no variant {name}")))
            .unwrap()
            .resolved(Device::Cpu)
    }

    fn block(case: &Resolved) -> &Block {
        match &case.body {
            Body::Llama3(block) => block,
            Body::File { .. } => panic!("the headline has a model"),
        }
    }

    #[test]
    fn every_variant_of_every_model_is_a_case_with_a_name_of_its_own_that_trains_something_else() {
        for case in Catalog::shipped().unwrap().cases().iter().filter(|case| case.spec.model.is_some()) {
            let resolved = case.resolved(Device::Cpu);
            let document = case.document(Device::Cpu).unwrap();
            let mut names = BTreeSet::new();
            for condition in &conditions(&resolved) {
                for switch in &condition.switches {
                    match case.with_document(&switch.variant(condition, &document)) {
                        Ok(variant) => {
                            let variant = variant.resolved(Device::Cpu);
                            assert!(names.insert(variant.name.clone()), "{} comes twice", variant.name);
                            let as_in_case =
                                (variant.steps, &variant.body) == (resolved.steps, &resolved.body);
                            assert!(!as_in_case, "{} is the case itself", variant.name);
                        }
                        // Without checkpointing the decorator has one site only.
                        Err(error) => assert_eq!(condition.name, "site", "{error}"),
                    }
                }
            }
        }
    }

    #[test]
    fn without_checkpointing_the_decorator_moves_to_the_only_site_that_there_is() {
        let variant = variant("checkpoint-none-site-block-forward");
        assert_eq!(block(&variant).checkpoint.mode, CheckpointMode::None);
        assert_eq!(block(&variant).compile.site, DisableSite::BlockForward);
        assert_eq!(block(&variant).compile.disable, Some(DisableApi::Private));
    }

    #[test]
    fn sizes_scale_the_prediction_and_what_may_keep_something_else_has_none() {
        let bytes = |name: &str| variant(name).prediction.map(|prediction| prediction.total_bytes());
        assert_eq!(bytes("layers-1"), Some(256 * 512 * 4 + 5056));
        assert_eq!(bytes("dtype-float64"), Some(2 * (256 * 512 * 8 + 5056)));
        assert_eq!(bytes("preserve-rng-state-off"), Some(2 * 256 * 512 * 4));
        assert_eq!(bytes("early-stop-off"), None);
    }

    #[test]
    fn where_only_generator_states_are_kept_nothing_is_predicted_without_them() {
        let case = shipped("full-ac-disable");
        let document = case.document(Device::Cpu).unwrap();
        let all = conditions(&case.resolved(Device::Cpu));
        let condition = all.iter().find(|condition| condition.name == "preserve-rng-state").unwrap();
        let variant = case.with_document(&condition.switches[0].variant(condition, &document)).unwrap();
        assert_eq!(variant.prediction(Device::Cpu), None);
    }

    #[test]
    fn of_a_program_only_the_steps_are_known() {
        let all = conditions(&shipped("disable-closure-private").resolved(Device::Cpu));
        assert_eq!(all.iter().map(|condition| condition.name).collect::<Vec<_>>(), ["steps"]);
    }

    #[test]
    fn two_other_counts_are_smaller_where_there_are_two() {
        assert_eq!([1, 2, 3, 4, 32].map(few), [[2, 3], [1, 3], [1, 2], [1, 2], [1, 16]]);
    }
}
