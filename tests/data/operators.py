"""A model that is no model: every operator that slapoc knows a rule for, one family to a module.

Each module takes the hidden stream, [batch, sequence, 15], and gives it back with something added. Sizes are odd and
differ where they can, so that no dimension is taken for another one. Rows of the batch do not touch each other:
micro-batches and data parallelism may cut it anywhere. Nothing jumps, and little is steep: the last bits of a parameter
move the losses of ten steps by no more.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB = 29
WIDTH = 15  # 5 heads of 3
POSITIONS = 65


def parameter(*shape: int, mean: float = 0.0, std: float = 0.25) -> nn.Parameter:
    return nn.Parameter(mean + std * torch.randn(shape))


class Operators(nn.Module):
    """All of the modules below, one after the other, and a cross-entropy."""

    def __init__(self):
        super().__init__()
        self.lookup = Lookup()
        self.sums = Sums()
        self.products = Products()
        self.powers = Powers()
        self.activations = Activations()
        self.projections = Projections()
        self.batched = Batched()
        self.softmaxes = Softmaxes()
        self.windows = Windows()
        self.pieces = Pieces()
        self.reorder = Reorder()
        self.reductions = Reductions()
        self.masks = Masks()
        self.casts = Casts()
        self.gathers = Gathers()
        self.norms = Norms()
        self.drops = Drops()
        self.attention = Attention()
        self.grouped = GroupedAttention()
        self.final = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        x = self.lookup(input_ids)
        x = self.projections(self.activations(self.powers(self.products(self.sums(x)))))
        x = self.pieces(self.windows(self.softmaxes(self.batched(x))))
        x = self.casts(self.masks(self.reductions(self.reorder(x)), input_ids))
        x = self.drops(self.norms(self.gathers(x, input_ids)))
        x = self.grouped(self.attention(x, input_ids))
        logits = self.head(self.final(x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100), logits


class Lookup(nn.Module):
    """An embedding with a padding index, which some tokens have, and the first rows of another table."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH, padding_idx=3)
        self.positions = parameter(POSITIONS, WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) + self.positions[: ids.shape[1]]


class Sums(nn.Module):
    """`a ± b`, with factors and numbers. Broadcast: leading dimensions, one in the middle, and a scalar."""

    def __init__(self):
        super().__init__()
        self.row, self.column, self.point = parameter(WIDTH), parameter(5, 1), parameter()

    def forward(self, x: Tensor) -> Tensor:
        x = torch.add(x, self.row, alpha=0.5)
        x = torch.sub(x, x.mean(1, keepdim=True), alpha=0.25)
        x = torch.sub(self.point, x, alpha=-1)
        x = torch.add(torch.add(x, 2.0, alpha=0.125), 1, alpha=2) - 1.25
        x = 1 - torch.rsub(-x, 0.5, alpha=0.75) + 0
        x = self.column - x.view(*x.shape[:2], 5, 3)
        return x.flatten(-2)


class Products(nn.Module):
    """`a · b` and `a / b`, both ways round, and by numbers."""

    def __init__(self):
        super().__init__()
        self.middle, self.lead, self.outer = parameter(5, 1, mean=1), parameter(3, mean=1), parameter(1, 5, 1, mean=2)
        self.factor, self.divisor = parameter(mean=1), parameter(mean=2)

    def forward(self, x: Tensor) -> Tensor:
        y = x.view(*x.shape[:2], 5, 3)
        y = self.factor * (self.lead * (y * self.middle)) / self.outer
        y = y * y.mean(2, keepdim=True) * 0.5 + self.middle * self.lead / (y * y + 1.5) / self.divisor
        return x + (y * 1 / 1.0 / 3).reshape(x.shape) + 1 / self.divisor


class Powers(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = parameter(WIDTH, mean=1)

    def forward(self, x: Tensor) -> Tensor:
        square = (x * self.weight).pow(2) + 1.0
        root = square.pow(0.5) - square.sqrt() * 0.5
        return x + root * torch.rsqrt(square).pow(3) + torch.exp(-square)


class Activations(nn.Module):
    """One activation for each sixth of a projection."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 42), nn.Linear(42, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        a, b, c, d, e, f = self.up(x).chunk(6, dim=-1)
        acts = [F.gelu(a), F.gelu(b, approximate="tanh"), F.relu(c), torch.sigmoid(d), F.silu(e), torch.tanh(f)]
        return x + self.down(torch.cat(acts, dim=-1))


class Projections(nn.Module):
    """`linear`, `addmm` and `mm` of matrices and of a vector; a bias as a row and as a scalar, with factors."""

    def __init__(self):
        super().__init__()
        self.inner, self.bias, self.point = parameter(WIDTH, 11), parameter(11), parameter()
        self.flat, self.vector = nn.Linear(11, 7), parameter(7)
        self.last = nn.Linear(7, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.addmm(self.bias, x.view(-1, WIDTH), self.inner)
        y = torch.addmm(self.point, torch.mm(y, self.inner.t()), self.inner, beta=0.5, alpha=0.25)
        return x + self.last(self.flat(y)).view(x.shape) + self.last(self.vector)


class Batched(nn.Module):
    """Matrix products of equal and of different rank; batch dimensions broadcast on either side."""

    def __init__(self):
        super().__init__()
        self.matrix, self.left = parameter(WIDTH, 7, std=0.03125), parameter(9, WIDTH, std=0.0625)
        self.vector, self.heads = parameter(WIDTH, std=0.0625), parameter(1, 5, 3, 7, std=0.125)
        self.wide = parameter(5, WIDTH, 7, std=0.125)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        y = x @ self.matrix
        x = x + torch.bmm(y, y.transpose(1, 2)) @ x + (x @ self.vector).unsqueeze(-1)
        summary = torch.matmul(self.left, x.transpose(1, 2))
        x = x + torch.matmul(summary.transpose(-2, -1), self.left)
        z = torch.matmul(x.view(batch, seq, 5, 3).permute(0, 2, 1, 3), self.heads)
        z = z + torch.matmul(x.unsqueeze(1), self.wide.unsqueeze(0)) + torch.matmul(x.unsqueeze(1), self.wide)
        z = torch.matmul(z, self.heads.transpose(-1, -2))
        return x + z.transpose(1, 2).reshape(batch, seq, WIDTH)


class Softmaxes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.125 * F.log_softmax(x, dim=1) + F.softmax(x, dim=1)
        x = x + F.softmax(x, dim=-1, dtype=torch.float64).to(x.dtype) + F.softmax(x, dim=2, dtype=torch.float32)
        return x - 0.125 * F.log_softmax(x, dim=-1)


class Windows(nn.Module):
    """Rows before and behind the sequence, and three windows that overlap: their gradients add."""

    def __init__(self):
        super().__init__()
        self.before, self.behind = parameter(1, 3, WIDTH), parameter(5, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        before, behind = self.before.expand(batch, -1, -1), self.behind.expand(batch, 5, WIDTH)
        whole = torch.cat([before, x, behind], dim=1)
        return 0.5 * whole[:, :seq] + whole[:, 3:-5] - 0.25 * whole[:, 8:]


class Pieces(nn.Module):
    """Slices that tile, parts of unequal size, one that nobody reads, every second element."""

    def __init__(self):
        super().__init__()
        self.tiles, self.parts = nn.Linear(WIDTH, 17), nn.Linear(17, 31)

    def forward(self, x: Tensor) -> Tensor:
        y = self.tiles(x)
        y = torch.cat((y[..., 13:], y[..., :4], -y[..., 4:13]), -1)
        small, middle, _, large = self.parts(y).split([3, 5, 8, 15], dim=2)
        first, second, rest = large.split(6, dim=-1)
        y = torch.cat([second, rest * small, small, middle[..., :-1], middle], dim=-1)
        return x + torch.cat([first, y[..., 2::3] - y[..., ::3], y[..., 17:19]], dim=-1)


class Reorder(nn.Module):
    """Views, copies of views, and dimensions of size 1 that come and go."""

    def __init__(self):
        super().__init__()
        self.weight = parameter(3, 1, 7, 5)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        weight = self.weight.permute(-1, 0, 2, 1).squeeze(3).sum(2)
        y = x.reshape(batch, seq, 3, 5).transpose(-1, -3).contiguous() * weight.t().unsqueeze(-1).permute(1, 0, 2)
        y = y.permute(0, 3, 1, 2).clone().unsqueeze(0).squeeze(0).squeeze(2)
        return x + y.flatten(2) - y.transpose(2, 3).reshape(batch, seq, -1)


class Reductions(nn.Module):
    """Sums and means, of the stream within a row of the batch and of parameters as a whole."""

    def __init__(self):
        super().__init__()
        self.matrix, self.other = parameter(9, 7), parameter(7, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = x.view(*x.shape[:2], 5, 3)
        scale = self.matrix.sum() * self.other.mean((0, 1)) + self.matrix.mean() + self.other.sum((-1, 0))
        x = x + scale * x.mean((1, -1), keepdim=True) + y.sum([1, 3]).mean(1)[:, None, None] / 32
        return x + (y.sum(-2, keepdim=True) * 0.25 - y.mean(-1).unsqueeze(-1)).flatten(2)


class Masks(nn.Module):
    """`masked_fill` and `where` with a number; the mask is smaller than the tensor, or the tensor than the mask."""

    def __init__(self):
        super().__init__()
        self.row, self.other = parameter(WIDTH), parameter(WIDTH)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        odd = (ids % 2 == 1).unsqueeze(-1)
        x = torch.where(odd, x, 0.0) + torch.where(odd, self.row, 0.25) + x.masked_fill(x > 1.0, 1.0)
        return x - self.other.masked_fill(odd, 0.125) + x.masked_fill(odd, 0.0)


class Casts(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = parameter(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.double() * (self.weight.double() + 0.5)
        return wide.to(x.dtype).float() + (x > 0).to(torch.float32) * (x * self.weight)


class Gathers(nn.Module):
    """Indexing: by ranges that take all there is, by ranges that transpose, by zeros, and by what is no range."""

    def __init__(self):
        super().__init__()
        self.table, self.grid, self.few = parameter(VOCAB, WIDTH), parameter(3, 5), parameter(1, 5)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        three, five = torch.arange(3), torch.arange(5)
        grid = self.grid[three[:, None], five] * self.grid[three, five[:, None]].t()
        grid = grid * self.few[torch.zeros(3, 1, dtype=torch.int64), five]
        return x + self.table[ids] + grid.flatten()


class Norms(nn.Module):
    """Layer norms: whole, without bias, without either, over two dimensions, and of what has no gradient."""

    def __init__(self):
        super().__init__()
        self.whole, self.scale = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH, bias=False)
        self.bare, self.two = nn.LayerNorm(WIDTH, elementwise_affine=False), nn.LayerNorm((5, 3), eps=1e-3)
        self.fixed = nn.LayerNorm(WIDTH)
        self.register_buffer("ramp", torch.linspace(-1, 1, WIDTH).pow(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.whole(x) + self.fixed(self.ramp)
        x = self.bare(x + self.scale(x))
        return x + self.two(x.view(*x.shape[:2], 5, 3)).view(x.shape)


class Drops(nn.Module):
    """Two sites that draw from one tensor."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x) - 0.25 * F.dropout(x, 0.3)


# Attention.


class Head(nn.Module):
    """A name for one attention."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, mask, **self.options)


class Attention(nn.Module):
    """Five heads of three. The result of one attention is the value of the next."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        nn.init.normal_(self.qkv.weight, std=0.2)
        self.prefix, self.slope = parameter(5, 7, 3), parameter(5, 1, 1)
        self.plain, self.causal = Head(), Head(is_causal=True, scale=0.75)
        self.floats, self.bools, self.window, self.everything = Head(), Head(), Head(), Head()
        self.dropped_causal = Head(dropout_p=0.1, is_causal=True)
        self.dropped_bools, self.dropped_floats = Head(dropout_p=0.1, scale=0.75), Head(dropout_p=0.1)
        self.prefixed, self.wide, self.learned = Head(is_causal=True), Head(), Head()

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        q, k, u = self.qkv(x).view(batch, seq, 15, 3).transpose(1, 2).split(5, dim=1)
        at = torch.arange(seq)
        distance = (at[:, None] - at).abs()
        keep = (ids % 5 != 0)[:, None, None, :] | (distance == 0)
        near = (distance < 4).expand(batch, 5, seq, seq)
        every = torch.ones(seq, seq, dtype=torch.bool)
        floats = distance * -0.125
        v = u + self.causal(q, k, self.plain(k, q, u))
        v = u - self.bools(q, k, self.floats(k, q, v, floats), keep)
        v = u + self.everything(q, k, self.window(k, q, v, near), every)
        v = u - self.dropped_bools(q, k, self.dropped_causal(k, q, v), keep)
        v = u + self.dropped_floats(q, k, v, floats)
        before = self.prefix.expand(batch, -1, -1, -1)
        v = u - self.prefixed(q, torch.cat([before, k], dim=2), torch.cat([before, v], dim=-2))
        v = self.wide(k, q, torch.cat([v, u[..., :2]], dim=-1))
        v = u + self.learned(q, k, v[..., :3] + v[..., 2:], floats * self.slope)
        return x + self.out(v.transpose(1, 2).reshape(batch, seq, WIDTH))


class GroupedAttention(nn.Module):
    """Four heads of queries, two of keys and values; and attention of three dimensions."""

    def __init__(self):
        super().__init__()
        self.query, self.memory, self.out = nn.Linear(WIDTH, 12), nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        q = self.query(x).view(batch, seq, 4, 3).transpose(1, 2)
        k, v = self.memory(x).view(batch, seq, 4, 3).transpose(1, 2).split(2, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        y = y + F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, enable_gqa=True)
        y = y.transpose(1, 2).flatten(2)
        return x + self.out(F.scaled_dot_product_attention(y, y, y))
