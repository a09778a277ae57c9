#!/usr/bin/env python3
"""Train the model of export.py in eager PyTorch, and print a line of JSON per step and one at the end.

    PYTHONPATH=examples/gpt2 python tests/bench/eager.py --layers 2 --batch 4 --seq 256 --data examples/gpt2/corpus.txt --steps 6

The other half of `cargo xtask bench train`: the same shapes, rows of data, optimizer and number of threads as `slapoc train`.
Takes the options of export.py for the model.
"""

import json
import resource
import sys
import time

import export
import torch


def main() -> None:
    data = take("--data")
    steps, threads = int(take("--steps")), int(take("--threads"))
    torch.set_num_threads(threads)
    options = export.parse_arguments()
    torch.manual_seed(options.seed)
    before = resident()
    model = export.build_model(export.FAMILIES[options.family], options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    tokens = torch.frombuffer(bytearray(open(data, "rb").read()), dtype=torch.uint8)
    windows = tokens[: len(tokens) // options.seq * options.seq].view(-1, options.seq)
    for step in range(steps):
        rows = torch.arange(step * options.batch, (step + 1) * options.batch) % len(windows)
        input_ids = windows[rows].long()
        began = time.perf_counter()
        loss = model(input_ids=input_ids, labels=input_ids.clone()).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        print(json.dumps({"step": step + 1, "loss": value, "seconds": time.perf_counter() - began}), flush=True)
    print(json.dumps({"training_resident": resident() - before}))


def resident() -> int:
    """The most bytes this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def take(name: str) -> str:
    """Removes an option that export.py does not know from the command line."""
    at = sys.argv.index(name)
    value = sys.argv[at + 1]
    del sys.argv[at : at + 2]
    return value


if __name__ == "__main__":
    main()
