"""Where a captured step's time goes: the step with one part after another left out or done the other way.

`python -m bench.step_parts`; without a GPU `--dry` counts what each variant launches.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch

from bench.bench_verify import BLOCK_SIZE, LLAMA_8B, SMOLLM2, random_model
from bench.step_launches import NoCapture, counted
from bench.timing import captured, graph_microseconds
from slipstream.cache.kv_cache import KVCache
from slipstream.engine.buckets import Bucket
from slipstream.engine.graph_capture import GraphCapture
from slipstream.engine.graph_runner import GraphRunner
from slipstream.kernels import fetch_words, rotary_angles
from slipstream.kernels.gpu import attention, attention_plan, rotary
from slipstream.kernels.gpu.check_table import Needs
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel

MAX_MODEL_LEN, CONTEXT = 2048, 1000
TOKENS = 5
LARGE_CACHES = (128, 1280, 5000)  # blocks
Variant = Callable[[GraphRunner, ExitStack], None]


def as_served(runner: GraphRunner, stack: ExitStack) -> None:
    """Nothing is changed."""


def followed(runner: GraphRunner, stack: ExitStack) -> None:
    runner.follow_steps()


def by_copy(runner: GraphRunner, stack: ExitStack) -> None:
    stack.enter_context(patch.object(fetch_words, "fused", lambda x: False))


def no_inputs(runner: GraphRunner, stack: ExitStack) -> None:
    stack.enter_context(patch.object(runner._buffers, "fetch", lambda bucket, plain: None))


def angles_apart(runner: GraphRunner, stack: ExitStack) -> None:
    stack.enter_context(patch.object(rotary_angles, "fused", lambda x: False))


def no_verification(runner: GraphRunner, stack: ExitStack) -> None:
    stack.enter_context(patch.object(runner, "_run_verification", lambda bucket, needs: None))


def nothing_near(runner: GraphRunner, stack: ExitStack) -> None:
    stack.enter_context(patch.object(attention, "NEAR", False))
    stack.enter_context(patch.object(rotary, "NEAR_TOKENS", 0))


def half_the_splits(runner: GraphRunner, stack: ExitStack) -> None:
    stack.enter_context(patch.object(attention_plan, "SHORTEST_SPLIT", 2 * attention_plan.SHORTEST_SPLIT))


VARIANTS: dict[str, Variant] = {
    "as served": as_served,
    "followed by others": followed,
    "inputs by a copy node": by_copy,
    "no inputs": no_inputs,
    "angles in ten launches": angles_apart,
    "no verification": no_verification,
    "half the splits": half_the_splits,
    "keys not brought near": nothing_near,
}


@contextmanager
def varied(
    model: LlamaModel, variant: Variant, bucket: Bucket, num_blocks: int = MAX_MODEL_LEN // BLOCK_SIZE
) -> Iterator[GraphRunner]:
    device = model.embedding.device
    cache = KVCache(model.config, num_blocks, BLOCK_SIZE, model.dtype, device)
    runner = GraphRunner(model, cache, MAX_MODEL_LEN, buckets=[bucket], capture=NoCapture())
    write_inputs(runner, bucket)
    with ExitStack() as stack:
        variant(runner, stack)
        yield runner


def write_inputs(runner: GraphRunner, bucket: Bucket) -> None:
    """One sequence of CONTEXT tokens, on the device too: a variant may not fetch what the host has."""
    inputs = runner._buffers.inputs(bucket)
    on_device, on_host = runner._buffers._copies[bucket, True]
    blocks = torch.arange(inputs.block_tables.shape[1], dtype=torch.int32)
    for values, part in (
        (torch.tensor([1]), inputs.number),
        (torch.tensor([0, TOKENS]), inputs.query_starts),
        (torch.tensor([CONTEXT]), inputs.context_lens),
        (torch.arange(TOKENS), inputs.logits_rows),
        (torch.tensor([0, TOKENS]), inputs.row_starts),
        (blocks[None], inputs.block_tables),
    ):
        part.copy_(values)
    if not on_device.is_meta:
        on_host.copy_(on_device)


@torch.inference_mode()
def microseconds_of(model: LlamaModel, variant: Variant, bucket: Bucket) -> float:
    with varied(model, variant, bucket) as runner:
        return graph_microseconds(captured(lambda: runner._run_step(bucket, False, Needs.MATCH)))


@torch.inference_mode()
def with_large_cache(model: LlamaModel, bucket: Bucket, num_blocks: int, variant: Variant) -> float:
    """Keys and values of one layer lie further from those of the next."""
    with varied(model, variant, bucket, num_blocks) as runner:
        return graph_microseconds(captured(lambda: runner._run_step(bucket, False, Needs.MATCH)))


@torch.inference_mode()
def with_captures_of_service(model: LlamaModel, bucket: Bucket) -> float:
    """In a stream of its own, after a larger step, whose memory it finds."""
    capture = GraphCapture(model.embedding.device, 8 << 30)
    with varied(model, as_served, bucket) as runner:
        hidden = torch.empty(512, model.config.hidden_size, device=model.embedding.device, dtype=model.dtype)
        larger = capture.capture(lambda: [layer.mlp(hidden) for layer in model.layers])
        replay = capture.capture(lambda: runner._run_step(bucket, False, Needs.MATCH))
        larger()
        return graph_microseconds(replay.__self__)  # type: ignore[attr-defined]


@torch.inference_mode()
def launches_of(config: ModelConfig, variant: Variant, bucket: Bucket) -> Counter[str]:
    with torch.device("meta"):
        model = LlamaModel(config, torch.bfloat16)
    with counted() as launches, varied(model, variant, bucket) as runner:
        launches.clear()
        runner._run_step(bucket, False, Needs.MATCH)
    return launches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="no GPU: launches alone")
    arguments = parser.parse_args()
    bucket = Bucket(TOKENS, 1, TOKENS)
    for name, config in (("smollm2", SMOLLM2), ("8b", LLAMA_8B)):
        model = None if arguments.dry else random_model(config)
        for said, variant in VARIANTS.items():
            if model is None:
                print(f"{name:<8} 1 x {TOKENS}, {said:<24} {launches_of(config, variant, bucket).total():>5} launches")
            else:
                print(
                    f"{name:<8} 1 x {TOKENS}, {said:<24} {microseconds_of(model, variant, bucket):>7.0f} us", flush=True
                )
        if model is not None:
            for num_blocks in LARGE_CACHES:
                near, apart = (with_large_cache(model, bucket, num_blocks, v) for v in (as_served, nothing_near))
                said = f"{num_blocks} KV blocks"
                print(f"{name:<8} 1 x {TOKENS}, {said:<24} {near:>7.0f} us, not brought near {apart:.0f}", flush=True)
            time = with_captures_of_service(model, bucket)
            print(f"{name:<8} 1 x {TOKENS}, {'captured as served':<24} {time:>7.0f} us", flush=True)
        del model


if __name__ == "__main__":
    main()
