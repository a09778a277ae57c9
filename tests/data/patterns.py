"""A model of expressions that patterns look for, one way of writing them to a module.

Each module takes the hidden stream, [batch, sequence, 12], and gives it back with something added.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB = 13
WIDTH = 12
HEADS = 2


class Patterns(nn.Module):
    """All of the modules below, one after the other, and a cross-entropy."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.erf = Erf()
        self.gated = Gated()
        self.norm = WideNorm()
        self.attention = Attention(divided=False)
        self.divided = Attention(divided=True)
        self.views = Views()
        self.diamond = Diamond()
        self.conv = Convolution()
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embed(input_ids)
        x = x + self.gated(self.erf(x))
        x = x + self.attention(self.norm(x))
        x = x + self.divided(x)
        x = x + self.conv(self.diamond(self.views(x)))
        logits = self.head(x)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


class Erf(nn.Module):
    """GELU by the error function."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


class Gated(nn.Module):
    """SwiGLU with SiLU spelled out."""

    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate(x)
        return self.up(x) * (gate * torch.sigmoid(gate))


class WideNorm(nn.Module):
    """A norm computed in a wider type, and rounded before its weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.double()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class Attention(nn.Module):
    """Attention operator by operator, without a mask."""

    def __init__(self, divided: bool):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.divided = divided

    def forward(self, x: Tensor) -> Tensor:
        size = WIDTH // HEADS
        q, k, v = (layer(x).view(*x.shape[:2], HEADS, size) for layer in (self.query, self.key, self.value))
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        scores = q @ k.transpose(-1, -2)
        scores = scores / math.sqrt(size) if self.divided else scores * size**-0.5
        x = F.softmax(scores, dim=-1) @ v
        return x.transpose(1, 2).flatten(2)


class Views(nn.Module):
    """A product in two dimensions and an activation in three; two transposes that cancel."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(WIDTH))
        self.weight = nn.Parameter(torch.zeros(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.mm(x.view(-1, WIDTH), self.weight) + self.bias
        y = F.gelu(y.view(x.shape))
        return torch.tanh(y.transpose(1, 2).transpose(1, 2)) + x


class Diamond(nn.Module):
    """Two ways from one value to one sum, with unrelated operators between; one factor that is used twice, and another
    one that is rounded."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.linspace(-0.5, 0.5, WIDTH, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        shared = torch.sigmoid(x)
        other = torch.cos(x)
        left = torch.tanh(shared)
        other = other * 3.0
        right = torch.exp(shared * 0.25)
        return left * right + other * 0.25 + self.scale.exp().to(x.dtype) * x


class Convolution(nn.Module):
    """Convolution, ReLU, and a number that is added."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return (F.relu(self.conv(x.transpose(1, 2))) + 1.5).transpose(1, 2)
