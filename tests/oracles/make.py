#!/usr/bin/env python3
"""Make the reference values: what PyTorch itself computes from the committed archives.

    python tests/oracles/make.py         # from the repository's root; needs examples/gpt2/requirements.txt

Reads the archives of `tests/data/make.py`. Writes the data sets `tests/data/CASE.safetensors`, and here for each case

  * `CASE.json`: sizes, and for each training run its options and the loss of every step, in float32. A loss is the one
    before the step's update. Where `clip` is a number, `norms` holds the total norm of each step before clipping;
  * `CASE.grads.safetensors`: the gradient of every parameter in the first step, and `loss`, in float64.

How the numbers come about, so that another trainer can agree with them:

  * the archive's own graph runs, under autograd, with the probability of every dropout set to 0;
  * float64 means: parameters and floating buffers are cast, and so is every floating dtype written in the graph
    (models cast their logits to float32);
  * tied parameters are one parameter, under the first of their names in the archive's signature; `aliases` has the others;
  * step s, row r reads row (s * batch + r) mod rows of the data set;
  * text: token = byte; row i = bytes[i * seq : (i + 1) * seq] of the whole windows; labels are a copy of the inputs;
  * one thread. With more threads the last bits of the losses move.
"""

import json
import random
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import transformers.modeling_outputs  # noqa: F401  the archives name its classes
from safetensors.torch import save_file
from torch import Tensor
from torch.export import ExportedProgram

# torch's notice about its own loading of weights.
warnings.filterwarnings("ignore", message="The given buffer is not writable")

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
HERE = ROOT / "tests" / "oracles"
TINY = "examples/gpt2/gpt2-tiny.pt2"
CORPUS = "examples/gpt2/corpus.txt"

ops = torch.ops.aten
# Operator to the position and name of its dropout probability.
DROPOUTS = {
    ops.native_dropout.default: (1, "p"),
    ops.dropout.default: (1, "p"),
    ops.scaled_dot_product_attention.default: (4, "dropout_p"),
}
IGNORED = -100  # a label that does not count


@dataclass(frozen=True)
class Run:
    optimizer: str
    lr: float
    steps: int = 10
    betas: tuple[float, float] | None = None
    eps: float | None = None
    weight_decay: float = 0.0
    clip: float | None = None


SGD = Run("sgd", lr=0.1)
ADAMW = Run("adamw", lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
CLIPPED = Run(**asdict(ADAMW) | {"clip": 0.5})
TEXT = Run(**asdict(ADAMW) | {"steps": 50})


@dataclass(frozen=True)
class Case:
    name: str
    archive: str
    batch: int
    seq: int
    vocab: int
    rows: int  # fewer than steps * batch: the trainer starts again, here in the middle of a batch
    labels: str  # "full", "ragged" or "masked"
    runs: tuple[Run, ...] = (ADAMW, SGD)


CASES = [
    Case("gpt2-tiny", TINY, batch=6, seq=16, vocab=256, rows=60, labels="full", runs=(ADAMW, SGD, CLIPPED)),
    Case("gpt2-tiny-ragged", TINY, batch=6, seq=16, vocab=256, rows=60, labels="ragged", runs=(ADAMW, SGD, CLIPPED)),
    Case("gpt2-odd", "tests/data/gpt2-odd.pt2", batch=6, seq=7, vocab=37, rows=20, labels="ragged"),
    Case("gpt2-eager", "tests/data/gpt2-eager.pt2", batch=6, seq=9, vocab=11, rows=60, labels="ragged"),
    Case("bert-tiny", "tests/data/bert-tiny.pt2", batch=6, seq=9, vocab=41, rows=60, labels="masked"),
    Case("opt-tiny", "tests/data/opt-tiny.pt2", batch=6, seq=11, vocab=41, rows=60, labels="ragged"),
    Case("llama-tiny", "tests/data/llama-tiny.pt2", batch=6, seq=13, vocab=41, rows=60, labels="ragged"),
    Case("misc", "tests/data/misc.pt2", batch=6, seq=9, vocab=23, rows=60, labels="full"),
    Case("counters", "tests/data/counters.pt2", batch=6, seq=9, vocab=17, rows=60, labels="full"),
    Case("operators", "tests/data/operators.pt2", batch=6, seq=13, vocab=29, rows=60, labels="ragged"),
]


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for case in CASES:
        data = data_set(case)
        save_file(data, DATA / f"{case.name}.safetensors")
        facts = dict(data=f"tests/data/{case.name}.safetensors", batch=case.batch, seq=case.seq, rows=case.rows)
        write(case.name, case.archive, facts, data, case.batch, case.runs)
    data, batch = text_windows(seq=64), 8
    facts = dict(data=CORPUS, batch=batch, seq=64, rows=len(data["input_ids"]))
    write("gpt2-tiny-text", TINY, facts, data, batch, (TEXT,), gradients=False)


def write(name: str, archive: str, facts: dict, data: dict, batch: int, runs: tuple[Run, ...], gradients=True) -> None:
    record = dict(archive=archive, **facts, aliases=aliases(ROOT / archive), torch=torch.__version__)
    if gradients:
        loss, grads = first_gradients(Model(ROOT / archive, torch.float64), next(batches(data, batch)))
        save_file({"loss": loss, **grads}, HERE / f"{name}.grads.safetensors")
        record["float64"] = dict(loss=loss.item(), norm=total_norm(grads.values()).item())
    record["runs"] = [train(Model(ROOT / archive, torch.float32), data, batch, run) for run in runs]
    (HERE / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    ends = [f"{run['optimizer']} {run['losses'][0]:.6f} to {run['losses'][-1]:.6f}" for run in record["runs"]]
    print(f"{name}: {'; '.join(ends)}", flush=True)


# The model: the archive's graph, called with its parameters as ordinary arguments.


class Model:
    def __init__(self, archive: Path, dtype: torch.dtype):
        program = torch.export.load(archive)
        set_dropout_to_zero(program)
        if dtype == torch.float64:
            widen_constants(program)
        program.graph_module.recompile()
        self.graph = program.graph_module
        canonical = aliases(archive)
        signature = program.graph_signature
        self.parameters: dict[str, Tensor] = {}
        self.arguments: list[Tensor | str] = []  # in the graph's order; a name stands for an input
        for spec in signature.input_specs:
            if spec.kind.name == "USER_INPUT":
                self.arguments.append(spec.arg.name)
            elif spec.kind.name == "PARAMETER":
                name = canonical.get(spec.target, spec.target)
                if name not in self.parameters:
                    value = program.state_dict[name].detach().to(dtype, copy=True)
                    self.parameters[name] = value.requires_grad_()
                self.arguments.append(self.parameters[name])
            else:
                value = (program.state_dict | program.constants)[spec.target].detach().clone()
                self.arguments.append(value.to(dtype) if value.is_floating_point() else value)
        kinds = [spec.kind.name for spec in signature.output_specs]
        self.loss_index = kinds.index("USER_OUTPUT")

    def loss(self, inputs: dict[str, Tensor]) -> Tensor:
        arguments = [inputs[value] if isinstance(value, str) else value for value in self.arguments]
        return self.graph(*arguments)[self.loss_index]


def set_dropout_to_zero(program: ExportedProgram) -> None:
    for node in program.graph.nodes:
        if node.target not in DROPOUTS:
            continue
        position, name = DROPOUTS[node.target]
        if len(node.args) > position:
            node.update_arg(position, 0.0)
        elif name in node.kwargs:
            node.update_kwarg(name, 0.0)


def widen_constants(program: ExportedProgram) -> None:
    """Every floating dtype among the graph's arguments becomes float64; assertions about dtypes go."""

    def widen(value):
        return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value

    for node in list(program.graph.nodes):
        if node.target is ops._assert_tensor_metadata.default:
            program.graph.erase_node(node)
            continue
        node.args = torch.fx.node.map_aggregate(node.args, widen)
        node.kwargs = torch.fx.node.map_aggregate(node.kwargs, widen)


def aliases(archive: Path) -> dict[str, str]:
    """The later names of tied parameters, each with the first name of the same weights in the signature."""
    with zipfile.ZipFile(archive) as file:
        root = file.namelist()[0].split("/")[0]
        graph = json.loads(file.read(f"{root}/models/model.json"))["graph_module"]
        config = json.loads(file.read(f"{root}/data/weights/model_weights_config.json"))["config"]
    names = [spec["parameter"]["parameter_name"] for spec in graph["signature"]["input_specs"] if "parameter" in spec]
    first: dict[str, str] = {}
    for name in names:
        first.setdefault(config[name]["path_name"], name)
    return {name: first[config[name]["path_name"]] for name in names if first[config[name]["path_name"]] != name}


# Training.


def train(model: Model, data: dict[str, Tensor], batch: int, run: Run) -> dict:
    parameters = list(model.parameters.values())
    if run.optimizer == "sgd":
        optimizer = torch.optim.SGD(parameters, lr=run.lr, weight_decay=run.weight_decay)
    else:
        options = dict(lr=run.lr, betas=run.betas, eps=run.eps, weight_decay=run.weight_decay)
        optimizer = torch.optim.AdamW(parameters, **options)
    losses, norms = [], []
    for _, inputs in zip(range(run.steps), batches(data, batch)):
        loss = model.loss(inputs)
        optimizer.zero_grad()
        loss.backward()
        if run.clip is not None:
            norms.append(torch.nn.utils.clip_grad_norm_(parameters, run.clip).item())
        optimizer.step()
        losses.append(loss.item())
    record = {name: value for name, value in asdict(run).items() if value is not None}
    return record | {"losses": losses} | ({"norms": norms} if norms else {})


def first_gradients(model: Model, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    loss = model.loss(inputs)
    assert loss.dtype == torch.float64, loss.dtype
    grads = torch.autograd.grad(loss, list(model.parameters.values()))
    return loss.detach(), {name: grad.contiguous() for name, grad in zip(model.parameters, grads)}


def total_norm(grads) -> Tensor:
    return torch.stack([grad.norm() for grad in grads]).norm()


# Data.


def batches(data: dict[str, Tensor], batch: int) -> Iterator[dict[str, Tensor]]:
    rows, start = len(data["input_ids"]), 0
    while True:
        picked = [(start + row) % rows for row in range(batch)]
        yield {name: values[picked] for name, values in data.items()}
        start += batch


def data_set(case: Case) -> dict[str, Tensor]:
    """Random tokens. Labels have nothing to do with the inputs: a trainer that mixes them up cannot agree."""
    torch.manual_seed(7)
    shape = (case.rows, case.seq)
    inputs, labels = torch.randint(0, case.vocab, shape), torch.randint(0, case.vocab, shape)
    if case.labels == "full":
        return {"input_ids": inputs, "labels": labels}
    # Lengths differ within each batch and so does the number of labels from batch to batch.
    lengths = torch.tensor(random.Random(7).choices(range(2, case.seq + 1), k=case.rows)).unsqueeze(1)
    inside = torch.arange(case.seq).expand(shape) < lengths
    labels = labels.masked_fill(~inside, IGNORED)
    if case.labels == "ragged":
        return {"input_ids": inputs, "labels": labels}
    # Only about every third token is asked for, the first one of a row always.
    asked = torch.rand(shape) < 0.35
    asked[:, 0] = True
    return {"input_ids": inputs, "attention_mask": inside.long(), "labels": labels.masked_fill(~asked, IGNORED)}


def text_windows(seq: int) -> dict[str, Tensor]:
    content = torch.tensor(list((ROOT / CORPUS).read_bytes()))
    rows = content[: len(content) // seq * seq].view(-1, seq)
    return {"input_ids": rows, "labels": rows.clone()}


if __name__ == "__main__":
    main()
