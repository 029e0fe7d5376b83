"""Shapes of verification: one sequence of SmolLM2's vocabulary, 32 of a large one, by match, by ratio, under limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch

from bench.kernels.case import Case
from slipstream.exchange import LAW_TOTAL, DraftToken, LawKind, SparseLaw
from slipstream.kernels.gpu.check_table import CheckTable, pack_checks
from slipstream.kernels.gpu.verification import verify_table
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck

LAW_SIZE = 32
DRAFT_TOKENS = 4
SHAPES = ((1, 49152, 20.0), (32, 151936, 150.0))  # sequences, vocabulary, target in microseconds
KINDS = {
    "greedy": (SamplingParams(temperature=0.0), VerificationMode.RATIO),
    "ratio": (SamplingParams(), VerificationMode.RATIO),
    "coupled": (SamplingParams(), VerificationMode.COUPLED),
    "ratio min_p": (SamplingParams(min_p=0.05), VerificationMode.RATIO),
    "coupled min_p": (SamplingParams(min_p=0.05), VerificationMode.COUPLED),
    "ratio top_k": (SamplingParams(top_k=50), VerificationMode.RATIO),
    "ratio top_p": (SamplingParams(top_p=0.95), VerificationMode.RATIO),
    "ratio top_k_p": (SamplingParams(temperature=0.7, top_k=50, top_p=0.95), VerificationMode.RATIO),
    "coupled top_k": (SamplingParams(top_k=50), VerificationMode.COUPLED),
}


def cases() -> Iterator[Case]:
    for sequences, vocab_size, target_us in SHAPES:
        rows = sequences * (DRAFT_TOKENS + 1)
        for kind, (sampling, mode) in KINDS.items():
            runs = [verification_run(sequences, vocab_size, sampling, mode, seed) for seed in range(2)]
            limited = "_" in kind
            yield Case(
                f"verify {kind}", f"{rows} x {vocab_size}", runs, 4 * rows * vocab_size, 0.0 if limited else target_us
            )
        logits = torch.randn(rows, vocab_size, device="cuda")
        yield Case("torch softmax", f"{rows} x {vocab_size}", [partial(logits.softmax, -1)], 8 * rows * vocab_size)


def verification_run(
    sequences: int, vocab_size: int, sampling: SamplingParams, mode: VerificationMode, seed: int
) -> Callable[[], object]:
    return partial(verify_table, *logits_and_table(sequences, vocab_size, sampling, mode, seed))


def logits_and_table(
    sequences: int, vocab_size: int, sampling: SamplingParams, mode: VerificationMode, seed: int
) -> tuple[torch.Tensor, CheckTable]:
    """Flat logits, but for drafts that mostly stand."""
    rng = np.random.default_rng(seed)
    checks = [
        SequenceCheck(draft=_draft(rng, vocab_size), base=100, sampling=sampling, mode=mode, seed=7)
        for _ in range(sequences)
    ]
    logits = torch.randn(sequences * (DRAFT_TOKENS + 1), vocab_size, device="cuda") * 2.5
    table = pack_checks(checks, vocab_size, logits.device)
    logits.scatter_(1, table.words[:, 1:2].long().clamp_min(0), 14.0)
    return logits, table


def _draft(rng: np.random.Generator, vocab_size: int) -> tuple[DraftToken, ...]:
    tokens = []
    for _ in range(DRAFT_TOKENS):
        token_ids = rng.choice(vocab_size, LAW_SIZE, replace=False).astype(np.int32)
        counts = rng.multinomial(LAW_TOTAL - LAW_SIZE, rng.dirichlet(np.ones(LAW_SIZE))) + 1
        tokens.append(DraftToken(int(token_ids[0]), LawKind.SPARSE, SparseLaw(token_ids, counts.astype(np.uint16))))
    return tuple(tokens)
