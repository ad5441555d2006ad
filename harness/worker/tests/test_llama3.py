"""The block against an independent implementation of a llama layer, on the same weights."""

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from torchleak_worker.errors import ProgramError
from torchleak_worker.llama3 import NORM_EPS, ROPE_THETA, Block, Llama3, rotary_tables

THEIR_NAMES = {
    "attention_norm.weight": "input_layernorm.weight",
    "attention.wq.weight": "self_attn.q_proj.weight",
    "attention.wk.weight": "self_attn.k_proj.weight",
    "attention.wv.weight": "self_attn.v_proj.weight",
    "attention.wo.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "feed_forward.w1.weight": "mlp.gate_proj.weight",
    "feed_forward.w3.weight": "mlp.up_proj.weight",
    "feed_forward.w2.weight": "mlp.down_proj.weight",
}


def their_layer(dim, heads, kv_heads, head_dim, ffn_dim, seq, attention):
    config = LlamaConfig(
        hidden_size=dim,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=ffn_dim,
        rms_norm_eps=NORM_EPS,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        max_position_embeddings=seq,
        attn_implementation=attention,
    )
    return LlamaDecoderLayer(config, layer_idx=0), LlamaRotaryEmbedding(config)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("dim", "heads", "kv_heads", "head_dim", "ffn_dim", "seq"),
    [
        pytest.param(64, 4, 4, 16, 128, 32, id="multi-head"),
        pytest.param(64, 8, 2, 8, 128, 32, id="grouped"),
        pytest.param(64, 4, 1, 16, 96, 37, id="odd-seq"),
        pytest.param(96, 2, 1, 16, 32, 300, id="narrow-heads"),
    ],
)
def test_block_agrees_with_transformers(dim, heads, kv_heads, head_dim, ffn_dim, seq, attention):
    torch.manual_seed(1)
    theirs, rotary = their_layer(dim, heads, kv_heads, head_dim, ffn_dim, seq, attention)
    ours = Block(dim, heads, kv_heads, head_dim, ffn_dim)
    # Weights of unit gain: with the small initial ones, the residual would hide a wrong attention.
    for name, parameter in theirs.named_parameters():
        scale = 1.0 if "norm" in name else parameter.shape[-1] ** -0.5
        torch.nn.init.normal_(parameter, std=scale)
    state = theirs.state_dict()
    ours.load_state_dict({mine: state[name] for mine, name in THEIR_NAMES.items()})

    x = torch.randn(2, seq, dim)
    direction = torch.randn(2, seq, dim)
    ours_x = x.clone().requires_grad_()
    theirs_x = x.clone().requires_grad_()
    cos, sin = rotary_tables(seq, head_dim)
    out = ours(ours_x, cos, sin)
    mask = torch.full((seq, seq), torch.finfo(torch.float32).min).triu(1)[None, None]
    their_out = theirs(
        theirs_x,
        attention_mask=mask if attention == "eager" else None,
        position_embeddings=rotary(x, torch.arange(seq)[None]),
    )
    out.backward(direction)
    their_out.backward(direction)

    close(out, their_out, "output")
    close(ours_x.grad, theirs_x.grad, "input's gradient")
    their_parameters = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        close(parameter.grad, their_parameters[THEIR_NAMES[name]].grad, name)


def close(ours, theirs, what):
    """Agree to float32 rounding, relative to the tensor's own size: sums of products cancel."""
    error = (ours - theirs).abs().max() / theirs.abs().max()
    assert error < 4e-6, f"{what}: {error:.2e}"


def test_rotary_tables_are_accurate_at_far_positions_in_bfloat16():
    cos, _ = rotary_tables(8192, 16, dtype=torch.bfloat16)
    exact, _ = rotary_tables(8192, 16)
    assert cos.dtype is torch.bfloat16
    assert torch.equal(cos, exact.bfloat16())


def small(**changes):
    sizes = {
        "layers": 3,
        "dim": 32,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 8,
        "ffn_dim": 48,
        "seq": 5,
    }
    return Llama3(**sizes | changes)


def run(block, *inputs):
    return block(*inputs)


def test_shared_weights_are_one_block_applied_for_every_layer():
    torch.manual_seed(0)
    shared, apart = small(share_weights=True), small()
    for block in apart.blocks:
        block.load_state_dict(shared.blocks[0].state_dict())
    x = torch.randn(2, 5, 32)
    assert len(shared.blocks) == 1
    assert torch.equal(shared(x, run), apart(x, run))


def test_vocabulary_adds_an_embedding_and_a_head():
    model = small(vocab=11)
    assert model(torch.randint(11, (2, 5)), run).shape == (2, 5, 11)


@pytest.mark.parametrize("changes", [{"kv_heads": 3}, {"head_dim": 7}])
def test_sizes_that_do_not_fit_are_refused(changes):
    with pytest.raises(ProgramError):
        small(**changes)
