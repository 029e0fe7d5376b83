"""Prints what noise, shaping and verification cost on one CPU thread: `python -m bench.bench_sampling`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

from slipstream.exchange import DraftToken, LawKind
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck
from slipstream.sampling.draft_law import as_law, guess_outcomes, sparse_laws
from slipstream.sampling.noise import gumbel_noise, key_tensor
from slipstream.sampling.target_law import shape_logits
from slipstream.sampling.verification import verify

VOCAB_SIZE = 49152
NUM_ROWS = 8
REPEATS = 30
GREEDY, SAMPLED = SamplingParams(temperature=0.0), SamplingParams()
RATIO, COUPLED = VerificationMode.RATIO, VerificationMode.COUPLED


def cases() -> Iterator[tuple[str, Callable[[], object]]]:
    logits = torch.randn(NUM_ROWS, VOCAB_SIZE, generator=torch.Generator().manual_seed(0)) * 3
    yield "floor: read the logits once (amax)", lambda: logits.amax(-1)
    for num_rows in (1, NUM_ROWS):
        keys, numbers = key_tensor(range(num_rows)), torch.arange(num_rows)
        yield f"noise, {num_rows} rows", partial(gumbel_noise, keys, numbers, numbers, VOCAB_SIZE)
    for name, params in (
        ("temperature", SAMPLED),
        ("top_k", SamplingParams(top_k=50)),
        ("top_p", SamplingParams(top_p=0.9)),
    ):
        yield f"shape by {name}", partial(shape_logits, logits, [params] * NUM_ROWS)
    yield "sparse laws of 32", partial(sparse_laws, logits, 32)
    rows = list(range(NUM_ROWS))
    yield "guess outcomes", partial(guess_outcomes, logits, [SAMPLED] * NUM_ROWS, rows, rows, rows, 4)
    for name, params, mode in (
        ("greedy", GREEDY, RATIO),
        ("ratio", SAMPLED, RATIO),
        ("ratio, top_p", SamplingParams(top_p=0.9), RATIO),
        ("coupled", SAMPLED, COUPLED),
    ):
        yield f"verify, {name}", partial(verify, logits, [_check(logits, params, mode)])


def _check(logits: torch.Tensor, sampling: SamplingParams, mode: VerificationMode) -> SequenceCheck:
    """One sequence whose drafts come from the target's own likeliest tokens, so most of them stand."""
    laws = [as_law(*row) for row in zip(*sparse_laws(logits[:-1], 32), strict=True)]
    draft = tuple(DraftToken(int(law.token_ids[0]), LawKind.SPARSE, law) for law in laws)
    return SequenceCheck(draft=draft, base=5, sampling=sampling, mode=mode)


def _best_ms(run: Callable[[], object]) -> float:
    """The fastest, which is the one that no other process disturbed."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times) * 1e3


def main() -> None:
    torch.set_num_threads(1)
    processor = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    print(f"{processor.split(': ')[1]}, torch {torch.__version__}, 1 thread, {NUM_ROWS} rows of {VOCAB_SIZE}")
    for name, run in cases():
        print(f"{name:<36}{_best_ms(run):>9.2f} ms", flush=True)


if __name__ == "__main__":
    main()
