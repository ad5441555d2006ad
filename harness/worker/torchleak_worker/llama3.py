"""The llama3 model: a block that computes what `transformers`' LlamaDecoderLayer computes."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .errors import ProgramError

NORM_EPS = 1e-5
ROPE_THETA = 500_000.0
INIT_STD = 0.02


class Projection(nn.Linear):
    """A linear layer without bias, whose weight is drawn once, directly from a normal distribution."""

    def __init__(self, inputs: int, outputs: int, **factory) -> None:
        super().__init__(inputs, outputs, bias=False, **factory)

    def reset_parameters(self) -> None:
        """Draw the weight. `nn.Linear` calls this while it is constructed."""
        nn.init.normal_(self.weight, std=INIT_STD)


def rotary_tables(
    seq: int, head_dim: int, *, theta: float = ROPE_THETA, device=None, dtype=None
) -> tuple[Tensor, Tensor]:
    """Return the cosine and the sine of every position's angles, each `[seq, head_dim]`.

    The angles are computed in float32 whatever `dtype` is: bfloat16 cannot represent positions above 256.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim
    positions = torch.arange(seq, dtype=torch.float32, device=device)
    angles = torch.outer(positions, 1.0 / theta**exponents)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply the rotary embedding to `x`, `[batch, heads, seq, head_dim]`.

    Pairs are (i, i + head_dim / 2), as in `transformers`; Meta's interleaved pairs (2i, 2i + 1) are the same
    up to a permutation of the rows of wq and wk.
    """
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Causal self-attention in which `heads / kv_heads` query heads share a key and value head."""

    def __init__(self, dim: int, heads: int, kv_heads: int, head_dim: int, **factory) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.group = heads // kv_heads
        self.wq = Projection(dim, heads * head_dim, **factory)
        self.wk = Projection(dim, kv_heads * head_dim, **factory)
        self.wv = Projection(dim, kv_heads * head_dim, **factory)
        self.wo = Projection(heads * head_dim, dim, **factory)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Attend over `x`, `[batch, seq, dim]`; the result has the same shape."""
        batch, seq, _ = x.shape
        heads = (batch, seq, -1, self.head_dim)
        q = self.wq(x).view(heads).transpose(1, 2)
        k = self.wk(x).view(heads).transpose(1, 2)
        v = self.wv(x).view(heads).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if self.group > 1:
            # The keys are repeated here because `enable_gqa` makes SDPA leave its fused CPU kernel, which
            # would materialize [seq, seq] scores.
            k = k.repeat_interleave(self.group, dim=1)
            v = v.repeat_interleave(self.group, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(batch, seq, -1))


class FeedForward(nn.Module):
    """The SwiGLU feed-forward layer."""

    def __init__(self, dim: int, ffn_dim: int, **factory) -> None:
        super().__init__()
        self.w1 = Projection(dim, ffn_dim, **factory)
        self.w2 = Projection(ffn_dim, dim, **factory)
        self.w3 = Projection(dim, ffn_dim, **factory)

    def forward(self, x: Tensor) -> Tensor:
        """Map `x`, `[batch, seq, dim]`, to the same shape. The order of evaluation is w1, w3, w2."""
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """One transformer block. Its forward is exactly seven `aten.mm`: wq wk wv wo w1 w3 w2.

    The order matters: the policy that saves every second `mm` saves the seventh, and nothing after it makes
    the recomputation go that far.
    """

    def __init__(
        self, dim: int, heads: int, kv_heads: int, head_dim: int, ffn_dim: int, device=None, dtype=None
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        self.attention_norm = nn.RMSNorm(dim, eps=NORM_EPS, **factory)
        self.attention = Attention(dim, heads, kv_heads, head_dim, **factory)
        self.ffn_norm = nn.RMSNorm(dim, eps=NORM_EPS, **factory)
        self.feed_forward = FeedForward(dim, ffn_dim, **factory)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Map `x`, `[batch, seq, dim]`, to the same shape; `cos` and `sin` come from `rotary_tables`."""
        h = x + self.attention(self.attention_norm(x), cos, sin)
        return h + self.feed_forward(self.ffn_norm(h))


class Llama3(nn.Module):
    """A stack of blocks, with an embedding and an output head if `vocab` is given.

    Args:
        layers: How often a block is applied.
        dim: Width of the residual stream.
        heads: Query heads.
        kv_heads: Key and value heads; divides `heads`.
        head_dim: Width of a head; even, and independent of `dim / heads`.
        ffn_dim: Width of the feed-forward layer.
        seq: Tokens per sequence, for the rotary tables.
        share_weights: Apply one block `layers` times instead of `layers` blocks once.
        vocab: Size of the vocabulary, or None to work on `[batch, seq, dim]` directly.
        device: Where the parameters are created.
        dtype: Of the parameters and of the activations.

    Raises:
        ProgramError: The sizes do not fit each other.
    """

    def __init__(
        self,
        *,
        layers: int,
        dim: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        ffn_dim: int,
        seq: int,
        share_weights: bool = False,
        vocab: int | None = None,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        if heads % kv_heads:
            raise ProgramError(f"kv_heads {kv_heads} does not divide heads {heads}")
        if head_dim % 2:
            raise ProgramError(f"head_dim {head_dim} is odd; the rotary embedding turns pairs")
        factory = {"device": device, "dtype": dtype}
        self.layers = layers
        self.heads = heads
        self.head_dim = head_dim
        self.embedding = self.norm = self.head = None
        if vocab is not None:
            self.embedding = nn.Embedding(vocab, dim, **factory)
            self.norm = nn.RMSNorm(dim, eps=NORM_EPS, **factory)
            self.head = Projection(dim, vocab, **factory)
        self.blocks = nn.ModuleList(
            Block(dim, heads, kv_heads, head_dim, ffn_dim, **factory)
            for _ in range(1 if share_weights else layers)
        )
        cos, sin = rotary_tables(seq, head_dim, **factory)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x: Tensor, run_block: Callable[..., Tensor]) -> Tensor:
        """Run the stack.

        Args:
            x: `[batch, seq]` token numbers with a vocabulary, else `[batch, seq, dim]`.
            run_block: Called as `run_block(block, x, cos, sin)` for each layer; see `checkpointing`.

        Returns:
            `[batch, seq, vocab]` logits with a vocabulary, else `[batch, seq, dim]`.
        """
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in range(self.layers):
            x = run_block(self.blocks[layer % len(self.blocks)], x, self.cos, self.sin)
        if self.head is not None:
            x = self.head(self.norm(x))
        return x
