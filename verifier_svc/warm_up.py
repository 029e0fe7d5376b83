"""One step of each kind before a verifier serves, so that no client waits for what is made at first use.

Knows the model's limits; knows nothing of sequences: none is open yet, so nothing reads the KV that is written here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import torch

from slipstream.engine.model_runner import ModelRunner
from slipstream.errors import CheckpointError
from slipstream.exchange import LAW_TOTAL, DraftToken, LawKind, SparseLaw
from slipstream.kernels.batch import Chunk
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck

NUM_TOKENS = 64  # prompt and drafts
NUM_DRAFT_TOKENS = 4
LAWS = (SamplingParams(temperature=0.0), SamplingParams(), SamplingParams(top_k=2, top_p=0.9, min_p=0.01))


def warm_up(runner: ModelRunner) -> None:
    """Prefill, decoding, and verification of drafts for each kind of law, alone and together.

    Raises CheckpointError if the model computes no numbers: every answer would be token 0 for ever.
    """
    runner.prepare()
    cache = runner.kv_cache
    room = min(NUM_TOKENS, runner.max_model_len, cache.num_blocks * cache.block_size)
    num_drafts = min(NUM_DRAFT_TOKENS, room - 2)
    if num_drafts < 1:
        return
    prompt = room - num_drafts - 1
    blocks = range(-(-room // cache.block_size))
    _check_numbers(runner.forward([Chunk([0] * prompt, 0, blocks, num_logits=1)]))
    checks = list(_checks(prompt + 1, num_drafts))
    for group in ([_check(LAWS[0], VerificationMode.RATIO, prompt + 1, ())], *([check] for check in checks), checks):
        chunks = [Chunk([0] * (len(one.draft) + 1), prompt, blocks, num_logits=len(one.draft) + 1) for one in group]
        runner.verify(chunks, group)


def _check_numbers(logits: torch.Tensor) -> None:
    if not bool(logits.amax() < torch.inf):  # nor is nan
        raise CheckpointError(
            "the model's logits are no numbers; its weights are broken, or too large for the dtype: fetch them again, "
            "or try another --dtype"
        )


def _checks(base: int, num_drafts: int) -> Iterator[SequenceCheck]:
    law = SparseLaw(np.array([0], np.int32), np.array([LAW_TOTAL], np.uint16))
    sparse, one_hot = DraftToken(0, LawKind.SPARSE, law), DraftToken(0, LawKind.ONE_HOT)
    for sampling, mode in product(LAWS, VerificationMode):
        drawn = mode is VerificationMode.RATIO and not sampling.greedy
        yield _check(sampling, mode, base, (sparse if drawn else one_hot,) * num_drafts)


def _check(sampling: SamplingParams, mode: VerificationMode, base: int, draft: tuple[DraftToken, ...]) -> SequenceCheck:
    return SequenceCheck(draft=draft, base=base, sampling=sampling, mode=mode)
