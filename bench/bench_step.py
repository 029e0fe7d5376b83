"""Times steps as the verifier makes them, host and GPU: `python -m bench.bench_step`. `--dry` on a CPU: host only.

Random weights of the real shapes. The host gap is what a step takes beyond its graph's own time, with `--dry` what the
host does between the GPU's end and the next launch. Ahead: each step is launched while the one before it runs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from slipstream.kernels.batch import Chunk
from slipstream.kernels.gpu.check_table import Needs
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel
from slipstream.request import SamplingParams, SequenceRequest
from slipstream.sampling.check import SequenceCheck, Verdict
from slipstream.text.tokenizer import Tokenizer
from tests.tiny_models import write_tokenizer
from verifier_svc.messages import Event
from verifier_svc.verifier import Verifier

MAX_MODEL_LEN = 2048
# one for each case, then for prompts
BUCKETS = [
    Bucket(1, 1, 1),
    Bucket(5, 1, 5),
    Bucket(32, 32, 32),
    Bucket(160, 32, 160),
    Bucket(512, 1, 16),
    Bucket(512, 32, 512),
]
STEPS, SKIPPED = 60, 15
ALLOWED_GAPS = {1: 150, 32: 400}  # microseconds
PROPOSER = "draft_model"
ALWAYS_SAID = 0  # by a model whose head is zero: all tokens are as likely, and the first of equals is taken


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


def make_model(config: ModelConfig, dry: bool) -> LlamaModel:
    model = LlamaModel(config, torch.float32) if dry else random_model(config)
    model.head = torch.nn.Parameter(torch.zeros_like(model.embedding))
    return model


def make_runner(model: LlamaModel, dry: bool, ahead: bool) -> GraphRunner:
    device = model.embedding.device
    cache = KVCache(model.config, 32 * 40, BLOCK_SIZE, model.dtype, device)
    runner = GraphRunner(
        model, cache, MAX_MODEL_LEN, buckets=BUCKETS, capture=DryCapture() if dry else KeptCapture(device)
    )
    if ahead:
        runner.follow_steps()
    return runner


def graph_time(runner: GraphRunner, bucket: Bucket) -> float:
    """Microseconds of a bucket's graph, alone and on the inputs of the last step."""
    return graph_microseconds(runner._steps[bucket, False, Needs.MATCH].__self__)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Case:
    num_seqs: int
    num_drafts: int  # of each
    context: int

    @property
    def bucket(self) -> Bucket:
        return Bucket(self.num_seqs * (1 + self.num_drafts), self.num_seqs, self.num_seqs * (1 + self.num_drafts))


CASES = (Case(1, 0, 1000), Case(1, 4, 1000), Case(32, 0, 250), Case(32, 4, 250))


class HostClock:
    """Times steps, and what the host does while the GPU is at work in them: there drafts come, as messages."""

    def __init__(self, runner: GraphRunner, case: Case) -> None:
        self._launch, self._case = runner.launch, case
        self.verifier: Verifier | None = None
        self._launched = self._idle = 0.0

    def launch(self, chunks: Sequence[Chunk], checks: Sequence[SequenceCheck]) -> Callable[[], list[Verdict]]:
        finish = self._launch(chunks, checks)
        self._launched = time.perf_counter()
        return finish

    def take_in(self, may_come: Callable[[Event], bool], until: float) -> None:
        if self.verifier is not None and self._case.num_drafts:
            self.verifier.handle((1, next_drafts(self.verifier, self._case.num_drafts)))
        self._idle = time.perf_counter()

    def step(self) -> tuple[float, float]:
        """Microseconds of a step, and of those before its launch and after the GPU's end."""
        assert self.verifier is not None
        start = time.perf_counter()
        self.verifier.step()
        end = time.perf_counter()
        return (end - start) * 1e6, (end - self._idle + self._launched - start) * 1e6


def run_steps(runner: GraphRunner, tokenizer: Tokenizer, case: Case, *, ahead: bool) -> list[tuple[float, float]]:
    """The times of all steps but the first ones."""
    scheduler = Scheduler(max_num_seqs=32, max_num_batched_tokens=512, max_waiting=0)
    verifier = Verifier(runner, tokenizer, scheduler, local_proposers=(), launches_ahead=ahead)
    sampling = SamplingParams(temperature=0.0, max_tokens=MAX_MODEL_LEN, ignore_eos=True)
    for i in range(case.num_seqs):
        prompt = tuple((7 * i + k) % 300 for k in range(case.context))
        verifier.handle((1, SequenceRequest(
            sequence_id=i, token_ids=prompt, num_prompt_tokens=case.context, sampling=sampling,
            num_draft_tokens=case.num_drafts, proposers=(PROPOSER,), tenant=f"tenant {i}",
        )))  # fmt: skip
    while any(active.engine.num_uncomputed != 1 for active in verifier.sequences.all):
        verifier.step()
    clock = HostClock(runner, case)
    clock.verifier, runner.launch = verifier, clock.launch  # type: ignore[method-assign]
    verifier.work_during_steps(lambda outputs: None, clock.take_in)
    times = [clock.step() for _ in range(STEPS)]
    del runner.launch
    return times[SKIPPED:]


def next_drafts(verifier: Verifier, num_drafts: int) -> DraftBatch:
    """After the token that will follow; none of them stands, so that every step ends the same way."""
    outcome = DraftToken(ALWAYS_SAID, LawKind.ASSUMED)
    wrong = (DraftToken(ALWAYS_SAID + 1 + i, LawKind.ONE_HOT) for i in range(num_drafts))
    tokens = (outcome, *wrong)
    return DraftBatch(tuple(
        Draft(active.request.sequence_id, active.engine.num_tokens, PROPOSER, active.num_commits, tokens)
        for active in verifier.sequences.all
    ))  # fmt: skip


def report(shape: str, case: Case, gaps: list[float], gpu: float, least: float) -> None:
    """All in microseconds."""
    gap, worst = statistics.median(gaps), statistics.quantiles(gaps, n=20)[-1]
    graph = f"graph {gpu / 1e3:.3f} ms, {gpu / least:.2f} x floor {least / 1e3:.3f}"
    on_host = f"host gap {gap:.0f} us (95 %: {worst:.0f}; at most {ALLOWED_GAPS[case.num_seqs]})"
    print(f"{shape:<28} step {(gpu + gap) / 1e3:.3f} ms, {graph}, {on_host}", flush=True)


def floor(config: ModelConfig, num_kv_tokens: int, bandwidth: float) -> float:
    """Microseconds to read weights and keys and values once."""
    with torch.device("meta"):
        layers = sum(parameter.numel() for parameter in LlamaModel(config, torch.bfloat16).layers.parameters())
    kv_bytes = 4 * config.num_layers * num_kv_tokens * config.num_kv_heads * config.head_dim
    return (2 * (layers + config.vocab_size * config.hidden_size) + kv_bytes) / bandwidth * 1e6


@torch.inference_mode()
def bench(model: LlamaModel, named: str, tokenizer: Tokenizer, bandwidth: float, *, dry: bool, ahead: bool) -> None:
    runner, name = make_runner(model, dry, ahead), f"{named}{', ahead' if ahead else ''}"
    start = time.perf_counter()
    runner.prepare()
    seconds, mib = time.perf_counter() - start, runner._capture.num_bytes >> 20
    print(f"{name}: {runner.num_graphs} graphs in {seconds:.1f} s, {mib} MiB", flush=True)
    for case in CASES:
        times = run_steps(runner, tokenizer, case, ahead=ahead)
        gpu = 0.0 if dry else graph_time(runner, case.bucket)
        gaps = [on_host if dry else whole - gpu for whole, on_host in times]
        shape = f"{named:<8}{case.num_seqs} x {case.num_drafts + 1} over {case.context}{', ahead' if ahead else ''}"
        report(shape, case, gaps, gpu, floor(model.config, case.num_seqs * case.context, bandwidth))
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
                model = make_model(config, arguments.dry)
                for ahead in (False,) if arguments.dry else (False, True):
                    bench(model, name, tokenizer, bandwidth, dry=arguments.dry, ahead=ahead)


if __name__ == "__main__":
    main()
