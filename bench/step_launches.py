"""What a captured step of the verifier launches, by name: `python -m bench.step_launches`. Needs no GPU: nothing runs.

Tensors have shapes and no memory, kernels are counted in place of being launched; so are torch's operations but views.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import triton
from torch.utils._python_dispatch import TorchDispatchMode

from bench.bench_verify import BLOCK_SIZE, LLAMA_8B, SMOLLM2
from slipstream.cache.kv_cache import KVCache
from slipstream.engine.buckets import Bucket
from slipstream.engine.graph_runner import GraphRunner
from slipstream.kernels.gpu.check_table import Needs
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel

MAX_MODEL_LEN = 2048
ALLOCATIONS = ("is_pinned", "empty", "new_empty", "empty_like", "empty_strided", "detach", "alias", "lift_fresh")


class CountedOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what torch itself would launch."""

    def __init__(self, launches: Counter[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._launches = launches

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, result = func.overloadpacket.__name__, func(*args, **(kwargs or {}))
        converts = name == "to" and result is not args[0]  # a view only of what need not be converted
        if converts or not (func.is_view or name in ALLOCATIONS):
            self._launches[f"torch {name}"] += 1
        return result


@contextmanager
def counted_kernels(launches: Counter[str]) -> Iterator[None]:
    """Counts Triton kernels in place of launching them, which stand in for all references meanwhile."""

    def count(kernel: Any, *args: Any, **kwargs: Any) -> None:
        launches[kernel.fn.__name__] += 1

    users = [
        module for name, module in sys.modules.items() if name.startswith("slipstream.") and hasattr(module, "fused")
    ]
    with ExitStack() as stack:
        stack.enter_context(patch.object(triton.runtime.jit.JITFunction, "run", count))
        for module in users:
            stack.enter_context(patch.object(module, "fused", lambda x: True))
        yield


class NoCapture:
    num_bytes, is_full = 0, False

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        return run


@contextmanager
def counted() -> Iterator[Counter[str]]:
    launches = Counter[str]()
    with counted_kernels(launches), CountedOperations(launches):
        yield launches


@torch.inference_mode()
def step_launches(config: ModelConfig, bucket: Bucket, *, needs: Needs = Needs.MATCH, ahead: bool) -> Counter[str]:
    """Launches of one step, by name."""
    with torch.device("meta"):
        model = LlamaModel(config, torch.bfloat16)
    cache = KVCache(config, 32 * 40, BLOCK_SIZE, torch.bfloat16, torch.device("meta"))
    runner = GraphRunner(model, cache, MAX_MODEL_LEN, buckets=[bucket], capture=NoCapture())
    if ahead:
        runner.follow_steps()
    with counted() as launches:
        runner._step(bucket, False, needs)()
    return launches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ahead", action="store_true", help="steps that others may follow")
    parser.add_argument("--needs", type=Needs, choices=list(Needs), default=Needs.MATCH, help="of the checks")
    arguments = parser.parse_args()
    for name, config in (("smollm2", SMOLLM2), ("8b", LLAMA_8B)):
        for sequences, tokens in ((1, 5), (32, 5)):
            bucket = Bucket(sequences * tokens, sequences, sequences * tokens)
            launches = step_launches(config, bucket, needs=arguments.needs, ahead=arguments.ahead)
            print(f"{name}, {sequences} x {tokens}: {launches.total()} launches")
            for kernel, count in launches.most_common():
                print(f"  {count:>4}  {kernel}")


if __name__ == "__main__":
    main()
