"""Whether drafts follow the scripted model's law at their places. Knows one draft at a time; no drafter."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import torch

from slipstream.exchange import LAW_TOTAL, Draft, LawKind
from slipstream.request import SequenceRequest
from slipstream.sampling.draft_law import as_law, sparse_laws
from slipstream.sampling.target_law import shape_logits
from tests.drafter_svc.scripted import (
    context_logits,
)


def contexts(opened: Sequence[int], draft: Draft) -> list[list[int]]:
    """What stands before each token of a draft that builds on `opened`."""
    ids = [token.token_id for token in draft.tokens]
    return [[*opened, *ids[:i]] for i in range(len(ids))]


def kinds(draft: Draft) -> str:
    return "".join("ahs"[token.kind] for token in draft.tokens)


def check_laws(opened: Sequence[int], draft: Draft, asked: SequenceRequest) -> None:
    """Every drawn token follows the scripted model's law at its place, and only known ones stand before."""
    assert re.fullmatch("a*[hs]+", kinds(draft))
    for token, context in zip(draft.tokens, contexts(opened, draft), strict=True):
        logits = context_logits(context)
        if token.law is not None:
            shaped = shape_logits(torch.tensor(logits)[None], [asked.sampling])
            (ids,), (counts,) = sparse_laws(shaped, 8)
            expected = as_law(ids, counts)
            assert np.array_equal(token.law.token_ids, expected.token_ids)
            assert np.array_equal(token.law.counts, expected.counts)
            assert token.law.counts.sum(dtype=np.int64) == LAW_TOTAL
            assert token.law.probability(token.token_id) > 0
        elif token.kind is LawKind.ONE_HOT and asked.sampling.greedy:
            assert token.token_id == logits.argmax()
