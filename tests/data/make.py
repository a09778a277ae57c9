#!/usr/bin/env python3
"""Make every archive the tests read: the small models, and the broken archives in `bad/`.

    python tests/data/make.py            # from the repository's root; needs examples/gpt2/requirements.txt

The same versions give the same bytes. `tests/oracles/make.py` comes after.
"""

import random
import struct
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
BAD = DATA / "bad"
OTHERS = DATA / "replacements"
EXPORT = ROOT / "examples" / "gpt2" / "export.py"
sys.path.insert(0, str(EXPORT.parent))
import export as exporter
import patterns
from operators import VOCAB, Operators
from patterns import Patterns
from replacements import REPLACEMENTS, Gated, samples

warnings.filterwarnings("ignore", message="No complete tensor found")  # `window` below is part of a storage on purpose

MODELS = {
    ROOT / "examples/gpt2/gpt2-tiny.pt2": "--layers 3 --width 64 --heads 4 --vocab 256 --positions 128 --dropout 0.1",
    ROOT / "examples/llama/llama-bytes.pt2": "--family llama --layers 2 --width 16 --heads 4 --kv-heads 2 "
    "--intermediate 44 --vocab 256 --positions 128 --dropout 0.1 --short-traces",
    DATA / "gpt2-odd.pt2": "--layers 2 --width 20 --heads 4 --vocab 37 --positions 19 --dropout 0.1",
    DATA / "gpt2-short.pt2": "--layers 1 --width 12 --heads 2 --vocab 11 --positions 16 --dropout 0.1",
    DATA / "gpt2-eager.pt2": "--layers 2 --width 12 --heads 2 --vocab 11 --positions 16 --dropout 0 --attention eager "
    "--short-traces",
    DATA / "bert-tiny.pt2": "--family bert --layers 2 --width 24 --heads 4 --vocab 41 --positions 19 --dropout 0.1",
    DATA / "opt-tiny.pt2": "--family opt --layers 2 --width 24 --heads 4 --vocab 41 --positions 19 --dropout 0.1",
    DATA / "llama-tiny.pt2": "--family llama --layers 2 --width 24 --heads 4 --kv-heads 2 --intermediate 36 --vocab 41 "
    "--positions 19 --dropout 0.1",
    DATA / "llama-odd.pt2": "--family llama --layers 1 --width 12 --heads 3 --kv-heads 1 --vocab 11 --positions 13 "
    "--dropout 0.1 --tied --short-traces",
}


def main() -> None:
    for file, options in MODELS.items():
        subprocess.run([sys.executable, EXPORT, *options.split(), "-o", file], check=True)
    made = [(Misc, 23), (Counters, 17), (Grouped, 19), (Names, 13), (Shared, 13), (Operators, VOCAB)]
    made += [(Patterns, patterns.VOCAB), (Gated, 23)]
    for model, vocab in made:
        save(model, DATA / f"{model.__name__.lower()}.pt2", vocab)
    OTHERS.mkdir(exist_ok=True)
    for name, make in REPLACEMENTS.items():
        save_part(make, OTHERS / f"{name}.pt2")
    BAD.mkdir(exist_ok=True)
    make_inplace(BAD / "inplace.pt2")
    make_ignored(BAD / "ignored.pt2")
    make_small()
    make_broken(BAD / "small.pt2")


# Models of our own.


class Misc(nn.Module):
    """Operators that no model family here uses, in an order that has no meaning beyond the test.

    `mix` is called twice; `gain` is a parameter of the root; `window` a buffer that is not saved, `offset` one that is.
    """

    def __init__(self, vocab: int = 23, width: int = 12):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.mix = nn.Conv1d(width, width, kernel_size=3, padding=1)
        self.norm = nn.GroupNorm(3, width)
        self.gain = nn.Parameter(torch.linspace(0.5, 1.5, width))
        self.head = nn.Linear(width, vocab)
        # A view that starts inside a longer storage.
        self.register_buffer("window", torch.hann_window(width + 2)[1:-1], persistent=False)
        self.register_buffer("offset", torch.full((width,), 0.125))

    def forward(self, input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embed(input_ids) * self.window + self.offset
        x = x + 0.1 * torch.cumsum(x, dim=1)
        x = self.norm(self.mix(x.transpose(1, 2)))
        x = self.mix(F.softplus(x)).transpose(1, 2)
        x = 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))
        variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
        x = (x - mean) * torch.rsqrt(variance + 1e-5) * self.gain
        logits = self.head(x * torch.tensor([1.25]))
        picked = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        return (torch.logsumexp(logits, dim=-1) - picked).mean(), logits


class Counters(nn.Module):
    """A model that changes its own buffers: batch normalisation in training mode, with running statistics."""

    def __init__(self, vocab: int = 17, width: int = 10):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, vocab)

    def forward(self, input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        x = self.norm(self.embed(input_ids).transpose(1, 2)).transpose(1, 2)
        logits = self.head(x)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


class Attention(nn.Module):
    """Attention with fewer key and value heads than query heads; from three layers, or from one whose sections differ."""

    def __init__(self, width: int, heads: int, groups: int, fused: bool):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        sizes = [heads * self.size, groups * self.size, groups * self.size]
        if fused:
            self.qkv = nn.Linear(width, sum(sizes))
        else:
            self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, size) for size in sizes)
        self.o_proj = nn.Linear(width, width)
        self.sizes = sizes

    def forward(self, x: Tensor) -> Tensor:
        if hasattr(self, "qkv"):
            q, k, v = self.qkv(x).split(self.sizes, dim=-1)
        else:
            q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        batch, seq, width = x.shape
        q = q.view(batch, seq, self.heads, self.size).transpose(1, 2)
        k, v = (self.repeated(part.view(batch, seq, self.groups, self.size).transpose(1, 2)) for part in (k, v))
        x = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(x.transpose(1, 2).reshape(batch, seq, width))

    def repeated(self, part: Tensor) -> Tensor:
        batch, groups, seq, size = part.shape
        many = part[:, :, None].expand(batch, groups, self.heads // groups, seq, size)
        return many.reshape(batch, self.heads, seq, size)


class Grouped(nn.Module):
    """Two residual blocks of grouped-query attention: projections apart, and fused in one layer."""

    def __init__(self, vocab: int = 19, width: int = 24):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.apart = Attention(width, heads=4, groups=2, fused=False)
        self.fused = Attention(width, heads=4, groups=2, fused=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embed(input_ids)
        x = x + self.apart(x)
        x = x + self.fused(x)
        logits = self.head(x)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


class Shared(nn.Module):
    """Two tables and a head that are one parameter, as in models of sequence to sequence."""

    def __init__(self, vocab: int = 13, width: int = 10):
        super().__init__()
        self.source = nn.Embedding(vocab, width)
        self.target = nn.Embedding(vocab, width)
        self.mix = nn.Linear(width, width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.target.weight = self.head.weight = self.source.weight

    def forward(self, input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(torch.tanh(self.mix(self.source(input_ids))) + self.target(input_ids))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


class InPlace(nn.Module):
    """An in-place addition that the export below leaves in the graph."""

    def __init__(self):
        super().__init__()
        self.head = nn.Embedding(7, 6)

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        logits = self.head(input_ids).clone()
        logits.add_(1.0)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten().clamp(max=5))


class Small(nn.Module):
    """The smallest model that trains; the broken archives are copies of it with one thing changed."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 6)
        self.head = nn.Linear(6, 7)

    def forward(self, input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(self.embed(input_ids))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


class Tracked(nn.Module):
    """A buffer that becomes the sum of what a step sees, which no micro-batch knows; a loss without classes."""

    def __init__(self, vocab: int = 7, width: int = 6):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.head = nn.Linear(width, 1)
        self.register_buffer("seen", torch.zeros(width))

    def forward(self, input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embed(input_ids)
        self.seen.copy_(x.sum((0, 1)))
        rating = self.head(x).squeeze(-1)
        return ((rating - labels) * (rating - labels)).sum(), rating


class Penalty(nn.Module):
    """A loss that is made of a parameter alone: the same in every micro-batch, and a sum over the parameter's pieces."""

    def __init__(self, vocab: int = 7, width: int = 6):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(self.embed(input_ids)) + labels.unsqueeze(-1)
        return (self.head.weight * self.head.weight).sum(), logits


class Sampled(nn.Module):
    """What is drawn from libtorch's own generator has no derivative here."""

    def __init__(self, vocab: int = 7, width: int = 6):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.head = nn.Linear(width, vocab)

    def forward(self, input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(torch.bernoulli(torch.sigmoid(self.embed(input_ids))))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


def save(model_class: type[nn.Module], file: Path, vocab: int) -> None:
    torch.manual_seed(1)
    model = model_class().train()
    for parameter in model.parameters():
        if parameter.dim() > 1 and model_class is not Operators:  # which sets its own
            nn.init.normal_(parameter, std=0.3)
    sample = exporter.random_inputs(("input_ids", "labels"), vocab, 4, 8)
    program = exporter.export(model, sample, positions=64)
    if model_class is Operators:
        shorten_traces(program)
    torch.export.save(program, file)
    exporter.refuse_machine_paths(file)
    print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")


def save_part(make, file: Path) -> None:
    """A module without a loss; batch and sequence of its inputs vary."""
    torch.manual_seed(1)
    module = make().train()
    sample = samples(module, batch=3, seq=6)
    varying = {"mask": (0, 2, 3), "channels": (0, 2)}
    dynamic = {name: dict.fromkeys(varying.get(name, (0, 1)), Dim.AUTO) for name in sample}
    program = torch.export.export(module, (), sample, dynamic_shapes=dynamic).run_decompositions({})
    for node in program.graph.nodes:
        exporter.tidy(node)
    exporter.shorten_traces(program)
    torch.export.save(program, file)
    exporter.refuse_machine_paths(file)


def shorten_traces(program: torch.export.ExportedProgram) -> None:
    """Only the model's innermost line of every trace: with so many nodes the rest would be a quarter of the file."""
    for node in program.graph.nodes:
        node.meta.pop("torch_fn", None)
        trace = node.meta.get("stack_trace", "")
        if (start := trace.rfind('File "operators.py"')) > 0:
            node.meta["stack_trace"] = trace[start:]


def make_small() -> None:
    """Models that say in one line what cannot be scheduled; the first is what the broken archives are made of."""
    for model in [Small, Tracked, Penalty, Sampled]:
        save(model, BAD / f"{model.__name__.lower()}.pt2", vocab=7)


def make_inplace(file: Path) -> None:
    """`torch.export.export` alone, without the decompositions that remove in-place operators."""
    torch.manual_seed(1)
    model = InPlace().train()
    sample = exporter.random_inputs(("input_ids", "labels"), 6, 3, 4)
    program = torch.export.export(model, (), sample)
    assert any("add_" in str(node.target) for node in program.graph.nodes)
    for node in program.graph.nodes:
        exporter.tidy(node)
    torch.export.save(program, file)
    exporter.refuse_machine_paths(file)


def make_ignored(file: Path) -> None:
    """One tensor given as both inputs: the graph reads `labels` for both and ignores `input_ids`, without a word."""
    torch.manual_seed(1)
    sample = exporter.random_inputs(("input_ids", "labels"), 7, 4, 8)
    sample["labels"] = sample["input_ids"]
    torch.export.save(exporter.export(Small().train(), sample, positions=64), file)
    exporter.refuse_machine_paths(file)


# Archives that are not archives of a model, or not whole.


def make_broken(good: Path) -> None:
    content = good.read_bytes()
    (BAD / "truncated.pt2").write_bytes(content[: len(content) * 2 // 3])
    (BAD / "random.pt2").write_bytes(random.Random(0).randbytes(4096))
    (BAD / "empty.pt2").write_bytes(b"")
    entries = read(good)
    write(BAD / "zip.pt2", {"hello.txt": b"a zip file, but no model\n"})
    write(BAD / "noweights.pt2", {name: data for name, data in entries.items() if not name.endswith("/weight_1")})
    write(BAD / "short.pt2", change(entries, "/weight_1", lambda data: data[:-4]))
    write(BAD / "schema.pt2", change(entries, "model.json", lambda data: swap(data, b'"major": 8', b'"major": 9')))
    write(BAD / "json.pt2", change(entries, "model.json", lambda data: data[: len(data) // 2]))


def change(entries: dict[str, bytes], suffix: str, edit) -> dict[str, bytes]:
    assert any(name.endswith(suffix) for name in entries), suffix
    return {name: edit(data) if name.endswith(suffix) else data for name, data in entries.items()}


def swap(data: bytes, old: bytes, new: bytes) -> bytes:
    assert data.count(old) == 1, old
    return data.replace(old, new)


def read(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(file: Path, entries: dict[str, bytes]) -> None:
    """A zip as torch writes it: entries stored, their data aligned to 64 bytes, no date."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system = 0
            header = archive.fp.tell() + 30 + len(name.encode()) + 4
            padding = -header % 64
            info.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
            archive.writestr(info, data)


if __name__ == "__main__":
    main()
