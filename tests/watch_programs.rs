//! `torchleak watch` on a program that others wrote: a Llama of transformers with its own gradient checkpointing.

mod support;

use rstest::rstest;
use support::{Context, python_with_transformers};

/// A small Llama with random weights, and nothing that has to be downloaded. With an argument, torch's own
/// `recompute_fn` gets the decorator of pytorch PR 153300, in memory.
const TRAIN: &str = r#"
import inspect, sys, torch
import torch.utils.checkpoint as checkpoint
if len(sys.argv) > 1:
    source = inspect.getsource(checkpoint)
    planted = source.replace("    def recompute_fn(", "    @torch._disable_dynamo\n    def recompute_fn(")
    assert planted != source
    exec(compile(planted, checkpoint.__file__, "exec"), vars(checkpoint))
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
config = LlamaConfig(vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=4,
                     num_attention_heads=4, num_key_value_heads=2)
model = LlamaForCausalLM(config)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(24):
    tokens = torch.randint(0, 256, (2, 64))
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"#;

#[rstest]
#[case::as_released(None, "fixed")]
#[case::with_the_decorator(Some("plant"), "reproduced")]
fn a_llama_of_transformers_is_judged_unedited(#[case] plant: Option<&str>, #[case] verdict: &str) {
    let Some(python) = python_with_transformers("a_llama_of_transformers_is_judged_unedited") else { return };
    let context = Context::new();
    context.write("train.py", TRAIN);
    let mut arguments = vec![
        "watch",
        "--mode",
        "compare",
        "--round",
        "6",
        "--format",
        "json",
        "--output",
        "report.json",
        "--",
        &python,
        "train.py",
    ];
    arguments.extend(plant);
    let watched = context.run(arguments);
    assert_eq!(watched.code, 0, "{}", watched.stderr);
    let text = std::fs::read_to_string(context.path().join("report.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["verdict"], verdict, "{}", watched.stderr);
    // Each of four layers keeps the state of the random number generator, 5056 bytes, beside what transformers passes.
    let growth = document["ranks"][0]["growth_bytes_per_step"].as_f64().unwrap();
    let told = watched.stderr.contains("`torch._disable_dynamo` stored its wrapper on `recompute_fn`");
    assert_eq!((growth > 4.0 * 5056.0, told), (plant.is_some(), plant.is_some()), "{}", watched.stderr);
}
