"""Times steps as the verifier makes them, host and GPU: `python -m bench.bench_step`. `--dry` on a CPU: host only.

Random weights of the real shapes. The host gap is what a step takes beyond its graphs' own time.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from bench.bench_verify import BLOCK_SIZE, LLAMA_8B, SMOLLM2, random_model
from bench.timing import copy_bandwidth, graph_microseconds
from slipstream.cache.kv_cache import KVCache
from slipstream.engine.buckets import Bucket
from slipstream.engine.graph_capture import GraphCapture
from slipstream.engine.graph_runner import GraphRunner
from slipstream.engine.scheduler import Scheduler
from slipstream.exchange import Draft, DraftBatch, DraftToken, LawKind
from slipstream.kernels.gpu.check_table import Needs
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel
from slipstream.request import SamplingParams, SequenceRequest
from slipstream.text.tokenizer import Tokenizer
from tests.tiny_models import write_tokenizer
from verifier_svc.verifier import Verifier

MAX_MODEL_LEN = 2048
# one for each case, then for prompts
BUCKETS = [
    Bucket(1, 1, 1),
    Bucket(8, 1, 8),
    Bucket(32, 32, 32),
    Bucket(160, 32, 160),
    Bucket(512, 1, 16),
    Bucket(512, 32, 512),
]
CASES = ((1, 0, 1000), (1, 4, 1000), (32, 0, 250), (32, 4, 250))  # sequences, drafts of each, context
STEPS, SKIPPED = 60, 15
PROPOSER = "draft_model"


class DryCapture:
    """Replays nothing: what is left is the host's work."""

    num_bytes, is_full = 0, False

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


class KeptCapture(GraphCapture):
    """Keeps the graphs, so that they can be timed alone."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device, 8 << 30)
        self.graphs: list[torch.cuda.CUDAGraph] = []

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        replay = super().capture(run)
        self.graphs.append(replay.__self__)  # type: ignore[attr-defined]
        return replay


def make_runner(config: ModelConfig, dry: bool) -> GraphRunner:
    device = torch.device("cpu" if dry else "cuda")
    model = LlamaModel(config, torch.float32) if dry else random_model(config)
    cache = KVCache(config, 32 * 40, BLOCK_SIZE, model.dtype, device)
    capture = DryCapture() if dry else KeptCapture(device)
    return GraphRunner(model, cache, MAX_MODEL_LEN, buckets=BUCKETS, capture=capture)


def graph_time(runner: GraphRunner, bucket: Bucket) -> float:
    """Microseconds of both graphs of a bucket, alone and on the inputs of the last step."""
    replays = runner._passes[bucket], runner._verifications[bucket, Needs.MATCH]
    return sum(graph_microseconds(replay.__self__) for replay in replays)  # type: ignore[attr-defined]


def run_steps(runner: GraphRunner, tokenizer: Tokenizer, num_seqs: int, num_drafts: int, context: int) -> list[float]:
    """Microseconds of each step, from the end of the one before to its own; drafts come in between, as messages."""
    scheduler = Scheduler(max_num_seqs=32, max_num_batched_tokens=512, max_waiting=0)
    verifier = Verifier(runner, tokenizer, scheduler, local_proposers=())
    sampling = SamplingParams(temperature=0.0, max_tokens=MAX_MODEL_LEN, ignore_eos=True)
    for i in range(num_seqs):
        prompt = tuple((7 * i + k) % 300 for k in range(context))
        verifier.handle((1, SequenceRequest(
            sequence_id=i, token_ids=prompt, num_prompt_tokens=context, sampling=sampling,
            num_draft_tokens=num_drafts, proposers=(PROPOSER,), tenant=f"tenant {i}",
        )))  # fmt: skip
    while any(active.engine.num_uncomputed != 1 for active in verifier.sequences.all):
        verifier.step()
    times = []
    for _ in range(STEPS):
        drafts = draft_batch(verifier, num_drafts)
        start = time.perf_counter()
        if drafts.drafts:
            verifier.handle((1, drafts))
        verifier.step()
        times.append((time.perf_counter() - start) * 1e6)
    return times[SKIPPED:]


def draft_batch(verifier: Verifier, num_drafts: int) -> DraftBatch:
    tokens = tuple(DraftToken(token, LawKind.ONE_HOT) for token in range(num_drafts))
    return DraftBatch(tuple(
        Draft(active.request.sequence_id, active.engine.num_tokens, PROPOSER, active.num_commits, tokens)
        for active in verifier.sequences.all if num_drafts
    ))  # fmt: skip


def report(shape: str, times: list[float], gpu: float, least: float) -> None:
    """All in microseconds."""
    gap, worst = (time - gpu for time in (statistics.median(times), statistics.quantiles(times, n=20)[-1]))
    graphs = f"graphs {gpu / 1e3:.3f} ms, {gpu / least:.2f} x floor {least / 1e3:.3f}"
    print(
        f"{shape:<28} step {(gpu + gap) / 1e3:.3f} ms, {graphs}, host gap {gap:.0f} us (95 %: {worst:.0f})", flush=True
    )


def floor(config: ModelConfig, num_kv_tokens: int, bandwidth: float) -> float:
    """Microseconds to read weights and keys and values once."""
    with torch.device("meta"):
        layers = sum(parameter.numel() for parameter in LlamaModel(config, torch.bfloat16).layers.parameters())
    kv_bytes = 4 * config.num_layers * num_kv_tokens * config.num_kv_heads * config.head_dim
    return (2 * (layers + config.vocab_size * config.hidden_size) + kv_bytes) / bandwidth * 1e6


@torch.inference_mode()
def bench(name: str, config: ModelConfig, tokenizer: Tokenizer, bandwidth: float, dry: bool) -> None:
    runner = make_runner(config, dry)
    start = time.perf_counter()
    runner.prepare()
    seconds, mib = time.perf_counter() - start, runner._capture.num_bytes >> 20
    print(f"{name}: {runner.num_graphs} graphs in {seconds:.1f} s, {mib} MiB", flush=True)
    for num_seqs, num_drafts, context in CASES:
        times = run_steps(runner, tokenizer, num_seqs, num_drafts, context)
        bucket = BUCKETS[CASES.index((num_seqs, num_drafts, context))]
        gpu = 0.0 if dry else graph_time(runner, bucket)
        shape = f"{name:<10}{num_seqs} x {num_drafts + 1} over {context}"
        report(shape, times, gpu, floor(config, num_seqs * context, bandwidth))
    print(f"{name}: {runner.num_graph_steps.total()} steps from graphs, {runner.num_eager_steps} eager", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="no GPU: the host's work alone, with a tiny model")
    parser.add_argument("--model", choices=("both", "8b", "smollm2"), default="both")
    arguments = parser.parse_args()
    tiny = ModelConfig(**{field: getattr(SMOLLM2, field) for field in SMOLLM2.__slots__} | {"num_layers": 1})
    bandwidth = 4.3e12 if arguments.dry else copy_bandwidth()
    models = {"tiny": tiny} if arguments.dry else {"8b": LLAMA_8B, "smollm2": SMOLLM2}
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder), SMOLLM2.vocab_size)
        tokenizer = Tokenizer.from_folder(Path(folder))
        for name, config in models.items():
            if arguments.model in ("both", name) or arguments.dry:
                bench(name, config, tokenizer, bandwidth, arguments.dry)


if __name__ == "__main__":
    main()
