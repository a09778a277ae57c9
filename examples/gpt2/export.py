#!/usr/bin/env python3
"""Export a Hugging Face model with its loss to a .pt2 archive that slapoc reads.

    pip install -r examples/gpt2/requirements.txt
    python examples/gpt2/export.py                                    # GPT-2, 124M, random weights, to gpt2.pt2
    python examples/gpt2/export.py --layers 3 --width 64 --heads 4 --vocab 256 --positions 128 -o gpt2-tiny.pt2
    python examples/gpt2/export.py --family bert -o bert.pt2
    python examples/gpt2/export.py --family llama --layers 2 --width 64 --heads 4 --kv-heads 2 -o llama.pt2
    python examples/gpt2/export.py --from my-gpt2-folder -o mine.pt2  # weights from a local folder

Nothing is downloaded. The export is written in the form the importer expects, so no caller has to remember it:

  * every input is a tensor of its own. If `labels` were `input_ids`, the graph would read one of them twice and
    silently ignore the other;
  * training mode: dropout stays in the graph;
  * batch and sequence stay symbolic, and the sample sizes differ from every size of the model, so that no dimension is
    taken for another one by accident;
  * `run_decompositions({})` leaves no in-place operator and keeps linear, attention, layer norm and cross-entropy whole;
  * casts that change nothing in this dtype are dropped, but leave a note where the model asked for float32;
  * source lines keep their file below `site-packages` only: no path of this machine gets into the archive.

The archive is then read back and its loss compared with the model's own, at the sample sizes and at others.
One more model family is one more row in `FAMILIES`.
"""

import argparse
import json
import os
import re
import sys
import time
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Torch's notices about its own tree specs and buffers say nothing about this export.
warnings.filterwarnings("ignore", category=FutureWarning)
warnings.filterwarnings("ignore", message="The given buffer is not writable")

import torch
import transformers
from torch.export import Dim, ExportedProgram

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


@dataclass(frozen=True)
class Size:
    """The shape of a transformer, in words that all families share."""

    layers: int
    width: int
    heads: int
    vocab: int
    positions: int
    kv_heads: int | None = None  # None: as many as query heads
    intermediate: int | None = None  # inner width of the MLP; None: four times the width


@dataclass(frozen=True)
class Family:
    """How one model family is named and configured in `transformers`."""

    config: str
    model: str
    inputs: tuple[str, ...]  # in the order of the model's forward()
    size: Size  # the published model, used for options that are not given
    settings: Callable[[Size], dict]  # a Size in the names of the family's configuration
    dropouts: tuple[str, ...]  # every dropout rate of the configuration


FAMILIES = {
    "gpt2": Family(
        config="GPT2Config",
        model="GPT2LMHeadModel",
        inputs=("input_ids", "labels"),
        size=Size(layers=12, width=768, heads=12, vocab=50257, positions=1024),
        settings=lambda size: dict(
            n_layer=size.layers,
            n_embd=size.width,
            n_head=size.heads,
            n_inner=size.intermediate,
            vocab_size=size.vocab,
            n_positions=size.positions,
            bos_token_id=size.vocab - 1,
            eos_token_id=size.vocab - 1,
            use_cache=False,
        ),
        dropouts=("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    ),
    "bert": Family(
        config="BertConfig",
        model="BertForMaskedLM",
        inputs=("input_ids", "attention_mask", "labels"),
        size=Size(layers=12, width=768, heads=12, vocab=30522, positions=512),
        settings=lambda size: dict(
            num_hidden_layers=size.layers,
            hidden_size=size.width,
            intermediate_size=size.intermediate or 4 * size.width,
            num_attention_heads=size.heads,
            vocab_size=size.vocab,
            max_position_embeddings=size.positions,
        ),
        dropouts=("hidden_dropout_prob", "attention_probs_dropout_prob"),
    ),
    "opt": Family(
        config="OPTConfig",
        model="OPTForCausalLM",
        inputs=("input_ids", "labels"),
        size=Size(layers=12, width=768, heads=12, vocab=50272, positions=2048),
        settings=lambda size: dict(
            num_hidden_layers=size.layers,
            hidden_size=size.width,
            word_embed_proj_dim=size.width,
            ffn_dim=size.intermediate or 4 * size.width,
            num_attention_heads=size.heads,
            vocab_size=size.vocab,
            max_position_embeddings=size.positions,
            use_cache=False,
        ),
        dropouts=("dropout", "attention_dropout"),
    ),
    "llama": Family(  # TinyLlama 1.1B
        config="LlamaConfig",
        model="LlamaForCausalLM",
        inputs=("input_ids", "labels"),
        size=Size(layers=22, width=2048, heads=32, vocab=32000, positions=2048, kv_heads=4, intermediate=5632),
        settings=lambda size: dict(
            num_hidden_layers=size.layers,
            hidden_size=size.width,
            intermediate_size=size.intermediate or 4 * size.width,
            num_attention_heads=size.heads,
            num_key_value_heads=size.kv_heads or size.heads,
            vocab_size=size.vocab,
            max_position_embeddings=size.positions,
            use_cache=False,
        ),
        dropouts=("attention_dropout",),
    ),
}


def main() -> None:
    options = parse_arguments()
    family = FAMILIES[options.family]
    torch.manual_seed(options.seed)
    model = build_model(family, options)
    sample = sample_inputs(family, model, options)

    started = time.monotonic()
    program = export(model, sample, positions=model.config.max_position_embeddings)
    if options.short_traces:
        shorten_traces(program)
    exported = time.monotonic()
    torch.export.save(program, options.output)
    saved = time.monotonic()

    refuse_machine_paths(options.output)
    check(options.output, model, family, options)
    report(options.output, program, model)
    print(f"time         export {exported - started:.1f} s, save {saved - exported:.1f} s", file=sys.stderr)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="export a Hugging Face model with its loss to a .pt2 archive")
    parser.add_argument("--family", choices=FAMILIES, default="gpt2")
    parser.add_argument("--from", dest="folder", metavar="FOLDER", help="a local folder with config.json and weights")
    for name in Size.__dataclass_fields__:
        parser.add_argument(option(name), type=int, metavar="N")
    parser.add_argument("--tied", action="store_true", help="one table for embedding and head (gpt2, bert, opt: always)")
    parser.add_argument("--dropout", type=float, metavar="P", help="every dropout rate (default: the family's own)")
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa", help="one operator, or one by one")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16", "float64"], default="float32")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--batch", type=int, metavar="N", help="batch of the sample inputs (default: the first free size)")
    parser.add_argument("--seq", type=int, metavar="N", help="sequence length of the sample inputs (likewise)")
    parser.add_argument("--short-traces", action="store_true", help="of every stack trace, keep the line slapoc shows")
    parser.add_argument("-o", dest="output", metavar="FILE", help="default: FAMILY.pt2")
    options = parser.parse_args()

    given = [option(name) for name in Size.__dataclass_fields__ if getattr(options, name) is not None]
    given += ["--tied"] * options.tied
    if options.folder and given:
        parser.error(f"{', '.join(given)}: what the model is comes from the folder's config.json")
    if options.kv_heads and FAMILIES[options.family].size.kv_heads is None:
        parser.error(f"--kv-heads: {options.family} has as many key and value heads as query heads")
    options.output = options.output or f"{options.family}.pt2"
    if not options.output.endswith(".pt2"):
        parser.error(f"-o {options.output}: the name must end in .pt2")
    return options


def option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def build_model(family: Family, options: argparse.Namespace) -> torch.nn.Module:
    """The model in training mode, from a local folder or with random weights."""
    config_class = getattr(transformers, family.config)
    model_class = getattr(transformers, family.model)
    overrides = {} if options.dropout is None else dict.fromkeys(family.dropouts, options.dropout)
    overrides["attn_implementation"] = options.attention
    dtype = getattr(torch, options.dtype)
    if options.folder:
        check_folder(options.folder, config_class.model_type)
        config = config_class.from_pretrained(options.folder, local_files_only=True, **overrides)
        if hasattr(config, "use_cache"):
            config.use_cache = False
        model, loading = model_class.from_pretrained(
            options.folder, config=config, dtype=dtype, local_files_only=True, output_loading_info=True
        )
        if missing := sorted(loading["missing_keys"]):
            sys.exit(f"error: {options.folder} has no weights for {', '.join(missing)}")
    else:
        ties = {"tie_word_embeddings": True} if options.tied else {}
        config = config_class(**family.settings(chosen_size(family, options)), **overrides, **ties)
        model = model_class(config).to(dtype)
    return model.train()


def chosen_size(family: Family, options: argparse.Namespace) -> Size:
    """The published sizes, but for what is given; another number of heads or another width asks for its own rest."""
    given = {name: getattr(options, name) for name in Size.__dataclass_fields__}
    given = {name: number for name, number in given.items() if number is not None}
    derived = {"kv_heads": "heads", "intermediate": "width"}
    own = {name: None for name, of in derived.items() if of in given}
    return replace(family.size, **own | given)


def check_folder(folder: str, model_type: str) -> None:
    file = os.path.join(folder, "config.json")
    if not os.path.isfile(file):
        sys.exit(f"error: {file} does not exist")
    with open(file, encoding="utf-8") as text:
        found = json.load(text).get("model_type")
    if found != model_type:
        sys.exit(f"error: {file} is of model type `{found}`; --family asks for `{model_type}`")


def sample_inputs(family: Family, model: torch.nn.Module, options: argparse.Namespace) -> dict[str, torch.Tensor]:
    """One distinct int64 tensor [batch, seq] per input, in the order of the model's forward()."""
    config = model.config
    taken = {size for tensor in [*model.parameters(), *model.buffers()] for size in tensor.shape}
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", heads)
    taken |= {config.num_hidden_layers, config.hidden_size // heads, heads, kv_heads, heads // kv_heads}
    free = (size for size in range(3, config.max_position_embeddings + 1) if size not in taken)
    options.batch = options.batch or next(free)
    options.seq = options.seq or next(size for size in free if size != options.batch)
    for option, size in [("--batch", options.batch), ("--seq", options.seq)]:
        if size < 2 or size in taken:
            sys.exit(f"error: {option} {size} is below 2 or also a size of the model; try another sample size")
    if options.batch == options.seq:
        sys.exit("error: --batch and --seq must differ")
    return random_inputs(family.inputs, config.vocab_size, options.batch, options.seq)


def random_inputs(names: tuple[str, ...], vocab: int, batch: int, seq: int) -> dict[str, torch.Tensor]:
    ones = torch.ones(batch, seq, dtype=torch.int64)
    return {name: ones if name == "attention_mask" else torch.randint(0, vocab, (batch, seq)) for name in names}


def export(model: torch.nn.Module, sample: dict[str, torch.Tensor], positions: int) -> ExportedProgram:
    """Trace the model with symbolic batch and sequence, in the form the importer expects."""
    dynamic = {name: {0: Dim.AUTO, 1: Dim.AUTO(max=positions)} for name in sample}
    program = torch.export.export(model, (), sample, dynamic_shapes=dynamic)
    mark_casts(program)
    program = program.run_decompositions({})
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                tidy(node)
    return program


def mark_casts(program: ExportedProgram) -> None:
    """Keep the places where the model asks for a floating dtype it already has.

    `logits.float()` does nothing in float32 and the decompositions drop it, yet mixed precision has to know. The
    assertion that export writes in front of every cast stays: it gets the note `{"cast": "float32"}`.
    """
    aten = torch.ops.aten
    for node in program.graph.nodes:
        if node.target is not aten.to.dtype or not node.args[1].is_floating_point:
            continue
        value, dtype = node.args[:2]
        assertion = node.prev
        if value.meta["val"].dtype == dtype and assertion.target is aten._assert_tensor_metadata.default:
            assertion.meta["custom"] = {"cast": str(dtype).removeprefix("torch.")}


def tidy(node: torch.fx.Node) -> None:
    """Keep of a node's notes what is the same on every machine and in every run."""
    # The history of compiler passes; holds memory addresses and is a third of the file.
    node.meta.pop("from_node", None)
    if trace := node.meta.get("stack_trace"):
        node.meta["stack_trace"] = re.sub(r'File "([^"]+)"', lambda found: f'File "{relative(found[1])}"', trace)


def shorten_traces(program: ExportedProgram) -> None:
    """Keep of every trace the innermost line outside of PyTorch; in a small archive the rest is a fifth of the file."""
    for node in program.graph.nodes:
        frames = re.findall(r'File "(?!torch/).*\n.*', node.meta.get("stack_trace", ""))
        if frames:
            node.meta["stack_trace"] = frames[-1]


def relative(path: str) -> str:
    """`…/site-packages/torch/nn/modules/linear.py` as `torch/nn/modules/linear.py`."""
    folders = sorted((os.path.abspath(folder) for folder in sys.path if folder), key=len, reverse=True)
    for folder in folders:
        if path.startswith(folder + os.sep):
            return path[len(folder) + 1 :].replace(os.sep, "/")
    return os.path.basename(path)


def refuse_machine_paths(file: str) -> None:
    places = {os.path.expanduser("~"), os.getcwd(), sys.prefix, *(folder for folder in sys.path if len(folder) > 1)}
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            if "/data/weights/weight_" in name:
                continue
            content = archive.read(name)
            for place in places:
                if place.encode() in content:
                    sys.exit(f"error: {file} names a path of this machine: {place} in {name}")


def check(file: str, model: torch.nn.Module, family: Family, options: argparse.Namespace) -> None:
    """The archive must give the model's loss, dropout included, at the sample sizes and at others."""
    graph = torch.export.load(file).module()
    for batch, seq in [(options.batch, options.seq), (options.batch + 2, options.seq + 4), (1, options.seq)]:
        inputs = random_inputs(family.inputs, model.config.vocab_size, batch, seq)
        torch.manual_seed(options.seed)
        expected = model(**inputs).loss
        torch.manual_seed(options.seed)
        actual = graph(**inputs)[0]
        difference = (actual - expected).abs().item()
        print(f"loss         [{batch}, {seq}] model {expected:.6f}, archive {actual:.6f}", file=sys.stderr)
        if not difference <= 1e-6 * expected.abs().item():
            sys.exit(f"error: {file} computes another loss than the model")


def report(file: str, program: ExportedProgram, model: torch.nn.Module) -> None:
    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"written      {file}, {os.path.getsize(file):,} bytes", file=sys.stderr)
    print(f"model        {type(model).__name__}, {count:,} parameters", file=sys.stderr)
    for name in program.graph_signature.user_inputs:
        print(f"input        {name} {list(values[name].shape)} {values[name].dtype}", file=sys.stderr)
    for symbol, limits in program.range_constraints.items():
        print(f"range        {symbol} {limits.lower} to {limits.upper}", file=sys.stderr)
    for guard in getattr(program, "_guards_code", []):
        print(f"requires     {guard}", file=sys.stderr)


if __name__ == "__main__":
    main()
