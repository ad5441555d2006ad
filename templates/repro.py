{%- for line in head %}
# {{ line }}
{%- endfor %}
{%- match body %}
{%- when Body::Program with (own) %}
{{ own.text }}

# What follows drives the program above.
{%- if counts_host %}
import ctypes
{%- endif %}
import gc
import random
import statistics
from types import SimpleNamespace

import torch
{%- when Body::Llama3 with (block) %}

{% if counts_host -%}
import ctypes
{% endif -%}
import functools
import gc
import statistics

import torch
from torch import nn
{%- if block.is_checkpointed() %}
from torch.utils import checkpoint
{%- endif %}

LAYERS, DIM, HEADS, KV_HEADS, HEAD_DIM, FFN_DIM = {{ block.sizes() }}
BATCH, SEQ, DEVICE, DTYPE = {{ block.input.batch }}, {{ block.input.seq }}, "{{ device() }}", torch.{{ dtype }}
{%- if let Some(vocab) = block.model.vocab %}
VOCAB = {{ vocab }}
{%- endif %}
linear = functools.partial(nn.Linear, bias=False)


class Block(nn.Module):
    """The block of llama3, without rotary embedding: seven matrix products, wq wk wv wo w1 w3 w2."""

    def __init__(self):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(DIM), nn.RMSNorm(DIM)
        self.wq, self.wo = linear(DIM, HEADS * HEAD_DIM), linear(HEADS * HEAD_DIM, DIM)
        self.wk, self.wv = linear(DIM, KV_HEADS * HEAD_DIM), linear(DIM, KV_HEADS * HEAD_DIM)
        self.w1, self.w2, self.w3 = linear(DIM, FFN_DIM), linear(FFN_DIM, DIM), linear(DIM, FFN_DIM)

    def forward(self, x):
        h = self.attention_norm(x)
        q, k, v = [w(h).view(BATCH, SEQ, -1, HEAD_DIM).transpose(1, 2) for w in (self.wq, self.wk, self.wv)]
{%- if block.shares_heads() %}
        k, v = [heads.repeat_interleave(HEADS // KV_HEADS, dim=1) for heads in (k, v)]
{%- endif %}
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(attended.transpose(1, 2).reshape(BATCH, SEQ, -1))
        h = self.ffn_norm(x)
        return x + self.w2(nn.functional.silu(self.w1(h)) * self.w3(h))
{%- if block.saves_every_second_mm() %}


def contexts():
    """The policy of torchtitan: every second mm is saved, counted apart in forward and recomputation."""
    counts = {False: 0, True: 0}
{%- if cuda %}
    attention = [f"_scaled_dot_product_{kind}_attention" for kind in ("flash", "efficient", "cudnn")]
    attention = [getattr(torch.ops.aten, name).default for name in attention]
{%- else %}
    attention = [torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default]
{%- endif %}

    def policy(ctx, op, *args, **kwargs):
        is_mm = op is torch.ops.aten.mm.default
        counts[ctx.is_recompute] += is_mm
        if (is_mm and counts[ctx.is_recompute] % 2 == 1) or op in attention:
            return checkpoint.CheckpointPolicy.MUST_SAVE
        return checkpoint.CheckpointPolicy.PREFER_RECOMPUTE

    return checkpoint.create_selective_checkpoint_contexts(policy)
{%- else if let Some(operators) = block.saved_operators() %}


def contexts():
    return checkpoint.create_selective_checkpoint_contexts([{{ operators }}])
{%- endif %}
{%- if let Some(api) = block.disable_on_recompute() %}


def decorated(self, recompute_fn, *args, frame_init=checkpoint._CheckpointFrame.__init__, **kwargs):
    """Decorates the closure of each checkpointed call, where pytorch PR 153300 did it in torch itself."""
    frame_init(self, {{ api }}(recompute_fn), *args, **kwargs)


checkpoint._CheckpointFrame.__init__ = decorated
{%- else if let Some(api) = block.disable_on_forward() %}


Block.forward = {{ api }}(Block.forward)
{%- endif %}
{%- if let Some(backend) = block.compile.block %}


@torch.compile(backend="{{ backend }}")
def run_block(block, x):
    return {{ block.call() }}
{%- endif %}


def train_step(model, optimizer):
{%- if block.model.vocab.is_some() %}
    *blocks, embedding, norm, head = model
    tokens = torch.randint(VOCAB, (BATCH, SEQ + 1), device=DEVICE)
    x = embedding(tokens[:, :-1])
{%- else %}
    x = torch.randn(BATCH, SEQ, DIM, device=DEVICE, dtype=DTYPE)
{%- endif %}
    for block in {{ block.stack() }}:
{%- if block.checkpoint.early_stop || !block.is_checkpointed() %}
        x = {% if block.compile.block.is_some() %}run_block(block, x){% else %}{{ block.call() }}{% endif %}
{%- else %}
        with checkpoint.set_checkpoint_early_stop(False):
            x = {% if block.compile.block.is_some() %}run_block(block, x){% else %}{{ block.call() }}{% endif %}
{%- endif %}
{%- if block.model.vocab.is_some() %}
    logits = head(norm(x)).flatten(0, 1).float()
    nn.functional.cross_entropy(logits, tokens[:, 1:].flatten()).backward()
{%- else %}
    x.float().square().mean().backward()
{%- endif %}
    optimizer.step()
    optimizer.zero_grad()
{%- endmatch %}


{% if counts_host -%}
class Mallinfo2(ctypes.Structure):
    _fields_ = [("fields", ctypes.c_size_t * 10)]


def bytes_in_use():
    """The bytes that the C allocator has handed out: uordblks + hblkhd of glibc 2.33 or later."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Mallinfo2
    fields = mallinfo2().fields
    return fields[7] + fields[4]
{%- else -%}
def bytes_in_use():
    """The bytes that torch's caching allocator has handed out."""
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()
{%- endif %}


def main():
    warmup, steps, flat = {{ warmup }}, {{ measured }}, {{ flat }}  # flat: bytes per step that still count as no growth
    kept = {{ kept() }}
    torch.set_num_threads({{ threads }})
    torch.manual_seed({{ seed }})
{%- if body.is_program() %}
    random.seed({{ seed }})
{%- endif %}
    gc.disable()
{%- match body %}
{%- when Body::Program with (own) %}
    ctx = SimpleNamespace(torch=torch, device=torch.device("{{ device() }}"), dtype=torch.{{ dtype }}, steps=warmup + steps)
    ctx.seed, ctx.rank, ctx.world_size, ctx.dims = {{ seed }}, 0, 1, {{ own.dims() }}
    state = setup(ctx)
{%- else %}
    model = nn.ModuleList({{ modules() }}).to(DEVICE, DTYPE)
    optimizer = torch.optim.{{ optimizer() }}
{%- endmatch %}
{%- if once %}
    gc.collect()
{%- endif %}
    for _ in range(warmup):
        {{ call() }}
{%- if once %}
    before = bytes_in_use()
    objects = gc.collect()
    freed_once = before - bytes_in_use()
    print(f"after {warmup} steps gc.collect() found {objects} objects and freed {freed_once} bytes")
{%- else %}
    gc.collect()
{%- endif %}
    levels = [bytes_in_use()]
    for number in range(warmup + 1, warmup + steps + 1):
        {{ call() }}
        levels.append(bytes_in_use())
        print(f"step {number}: {levels[-1]} bytes in use, {levels[-1] - levels[-2]:+}")
    gc.collect()
    freed = levels[-1] - bytes_in_use()
    growth = statistics.median(after - before for before, after in zip(levels, levels[1:]))
    print(f"growth per step: {growth:.0f} bytes; gc.collect() freed {freed} bytes, {freed / steps:.0f} per step")
    share = freed / max(1, levels[-1] - levels[0])  # Of what grew.
    if growth <= flat:
{%- if once %}
        # Python's own garbage of {{ warmup }} steps is allowed for, with 512 bytes an object.
        verdict = "one-off" if freed_once > {{ warmup }} * flat + 512 * objects else "fixed"
{%- else %}
        verdict = "fixed"
{%- endif %}
    elif growth < 0.9 * kept or 0.1 < share < 0.9:
        verdict = "inconclusive"
    else:
        verdict = "reproduced" if share >= 0.9 else "uncollectable"
    print(f"verdict: {verdict}")
    return {"fixed": 0, "inconclusive": 125}.get(verdict, 1)


if __name__ == "__main__":
    raise SystemExit(main())
