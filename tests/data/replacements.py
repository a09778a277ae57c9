"""Other writings of modules, for `module.replace("….pt2")`: right ones, and ones that lose something each.

Sizes are those of `gpt2-odd.pt2`: width 20, 4 heads, inner width 80, every dropout 0.1. A class takes the hidden stream,
[batch, sequence, 20], unless its `inputs` say otherwise. The weights in these archives are noise: a replaced module's own
weights take their places.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, INNER, DROPOUT = 20, 4, 80, 0.1


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape))


class Affine(nn.Module):
    """`Conv1D` of Hugging Face as a product and an addition; weights are [in, out]."""

    def __init__(self, inner: int, outer: int, bias: bool = True):
        super().__init__()
        self.weight = parameter(inner, outer)
        if bias:
            self.bias = parameter(outer)

    def forward(self, x: Tensor) -> Tensor:
        x = x @ self.weight
        return x + self.bias if hasattr(self, "bias") else x


def gelu(x: Tensor) -> Tensor:
    """In steps, in an order of its own."""
    return x * (torch.tanh(math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x)) + 1) * 0.5


class Mlp(nn.Module):
    """GPT-2's MLP with its activation as one operator."""

    def __init__(self, act=lambda x: F.gelu(x, approximate="tanh"), inner: int = INNER, p: float = DROPOUT):
        super().__init__()
        self.c_fc, self.c_proj = Affine(WIDTH, inner), Affine(inner, WIDTH)
        self.act, self.p = act, p

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return F.dropout(self.c_proj(self.act(self.c_fc(x))) * scale, self.p)


class Fused(Affine):
    """Product and bias as one operator on a matrix, as `Conv1D` has them."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.flatten(0, 1), self.weight).unflatten(0, x.shape[:2])


class Renamed(nn.Module):
    """The same under other names."""

    def __init__(self):
        super().__init__()
        self.up, self.down = Fused(WIDTH, INNER), Fused(INNER, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.down(F.gelu(self.up(x), approximate="tanh")), DROPOUT)


class NoBias(nn.Module):
    """One of the two biases is gone."""

    def __init__(self):
        super().__init__()
        self.c_fc, self.c_proj = Affine(WIDTH, INNER), Affine(INNER, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")), DROPOUT)


class Unread(Mlp):
    """Has both biases, and never reads one of them."""

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.c_fc(x), approximate="tanh")
        return F.dropout(x @ self.c_proj.weight, DROPOUT)


class Fresh(Mlp):
    """Has a parameter more than what it replaces."""

    def __init__(self):
        super().__init__()
        self.gain = parameter(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * self.gain)


class Linear(nn.Module):
    """`F.linear`, whose weight is [out, in]."""

    def __init__(self):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")), DROPOUT)


class Attention(nn.Module):
    """GPT-2's attention; `is_causal` in place of the mask that the model computes."""

    causal, scale = True, None

    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = Affine(WIDTH, 3 * WIDTH), Affine(WIDTH, WIDTH)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(
            q, k, v, dropout_p=DROPOUT, is_causal=self.causal, scale=self.scale
        )

    def forward(self, hidden: Tensor) -> Tensor:
        heads = (part.unflatten(2, (HEADS, -1)).transpose(1, 2) for part in self.c_attn(hidden).chunk(3, dim=2))
        x = self.attend(*heads).transpose(1, 2).flatten(2)
        return F.dropout(self.c_proj(x), DROPOUT)


class Eager(Attention):
    """Attention in steps, with a mask of its own."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        size = q.shape[-2]
        future = torch.ones(size, size, dtype=torch.bool).tril().logical_not()
        scores = scores.masked_fill(future, torch.finfo(scores.dtype).min)
        return F.dropout(scores.softmax(-1), DROPOUT) @ v


class Everywhere(Attention):
    """Without a mask."""

    causal = False


class Unscaled(Attention):
    scale = 1.0


class Masked(Attention):
    """Takes the model's mask as an input."""

    inputs = ("hidden", "mask")

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        self.mask = mask
        try:
            return super().forward(hidden)
        finally:
            del self.mask

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, dropout_p=DROPOUT)


class Block(nn.Module):
    """A whole block of GPT-2."""

    has_residual = True
    eps = 1e-5

    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH, eps=self.eps), nn.LayerNorm(WIDTH, eps=self.eps)
        self.attn, self.mlp = Attention(), Mlp()

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attn(self.ln_1(hidden))
        x = self.mlp(self.ln_2(hidden))
        return x + hidden if self.has_residual else x


class Straight(Block):
    """Drops the second residual addition."""

    has_residual = False


class Steady(Block):
    """Another epsilon in the norms."""

    eps = 1e-3


class Gate(nn.Module):
    """Two inputs of one type, which are not alike; one table under two names."""

    inputs = ("x", "gate")

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.register_buffer("shift", torch.full((WIDTH,), 0.25))

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return self.proj(x) * torch.sigmoid(gate + self.shift) - gate


class Swapped(Gate):
    """The same, with its inputs in the other order and read in the other order."""

    inputs = ("gate", "x")

    def forward(self, gate: Tensor, x: Tensor) -> Tensor:
        opened = torch.sigmoid(gate + self.shift)
        return opened * self.proj(x) - gate


class Alone(Gate):
    """One of the two inputs is missing."""

    inputs = ("x",)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x, x)


class Mix(nn.Module):
    """The convolution that `misc.pt2` calls twice, as a sum of shifted products; channels before positions."""

    inputs = ("channels",)

    def __init__(self):
        super().__init__()
        self.weight, self.bias = parameter(12, 12, 3), parameter(12)

    def forward(self, channels: Tensor) -> Tensor:
        wide = F.pad(channels, (1, 1))
        seq = channels.shape[2]
        taps = (self.weight[:, :, tap] @ wide[:, :, tap : tap + seq] for tap in range(3))
        return sum(taps) + self.bias.unsqueeze(1)


class Head(nn.Module):
    """A head of 37 entries; in `gpt2-odd.pt2` its table is that of the embedding."""

    def __init__(self):
        super().__init__()
        self.weight = parameter(37, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.t()


class Gated(nn.Module):
    """A model whose module `gate` takes two hidden streams."""

    def __init__(self, vocab: int = 23):
        super().__init__()
        self.embed, self.other = nn.Embedding(vocab, WIDTH), nn.Embedding(vocab, WIDTH)
        self.gate = Gate()
        self.head = nn.Linear(WIDTH, vocab)

    def forward(self, input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(self.gate(self.embed(input_ids), self.other(input_ids)))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


# By the name of the archive.
class GateUp(nn.Module):
    """Llama's MLP of `llama-tiny.pt2` with both projections of its input in one."""

    width, inner = 24, 36

    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(self.width, 2 * self.inner, bias=False)
        self.down = nn.Linear(self.inner, self.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


REPLACEMENTS = {
    "mlp": Mlp,
    "mlp-plain": lambda: Mlp(act=gelu),
    "mlp-renamed": Renamed,
    "mlp-linear": Linear,
    "mlp-nobias": NoBias,
    "mlp-unread": Unread,
    "mlp-fresh": Fresh,
    "mlp-relu": lambda: Mlp(act=F.relu),
    "mlp-erf": lambda: Mlp(act=F.gelu),
    "mlp-leaky": lambda: Mlp(act=lambda x: F.leaky_relu(gelu(x))),
    "mlp-wide": lambda: Mlp(inner=INNER + 2),
    "mlp-sure": lambda: Mlp(p=0.0),
    "attention": Attention,
    "attention-eager": Eager,
    "attention-everywhere": Everywhere,
    "attention-unscaled": Unscaled,
    "attention-masked": Masked,
    "block": Block,
    "block-straight": Straight,
    "block-steady": Steady,
    "mix": Mix,
    "head": Head,
    "gate": Gate,
    "gate-swapped": Swapped,
    "gate-alone": Alone,
    "gate-up": GateUp,
}


def samples(module: nn.Module, batch: int, seq: int) -> dict[str, Tensor]:
    """One tensor for every input: a mask is [batch, 1, seq, seq], everything else a hidden stream."""
    causal = torch.ones(seq, seq, dtype=torch.bool).tril().expand(batch, 1, seq, seq)
    names = getattr(module, "inputs", ("hidden",) if isinstance(module, Attention | Block) else ("x",))
    shapes = {"channels": (batch, 12, seq)}
    stream = (batch, seq, getattr(module, "width", WIDTH))
    return {name: causal.clone() if name == "mask" else torch.randn(shapes.get(name, stream)) for name in names}
