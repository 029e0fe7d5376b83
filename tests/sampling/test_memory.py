"""How much memory verification takes besides the logits, at the shapes of a large vocabulary."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from slipstream.exchange import DraftToken, LawKind
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck
from slipstream.sampling.verification import verify

VOCAB = 151_936
COPIES = 5  # of the fp32 logits, that verification on a CPU may hold at one time besides them


class PeakBytes(TorchDispatchMode):
    """Counts the bytes of all tensors that were made since, and are still there."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        inputs = {
            leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)
        }
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata not in inputs:
                self._made(leaf.untyped_storage())
        return result

    def _made(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata in self._known:
            return
        self._known.add(storage._cdata)
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())

    def _gone(self, key: int, num_bytes: int) -> None:
        self._known.discard(key)
        self.now -= num_bytes


def peak_copies(num_seqs: int, num_drafts: int, sampling: SamplingParams, mode: VerificationMode) -> float:
    """Peak of what verification holds, in multiples of the logits."""
    draft = tuple(DraftToken(5 + i, LawKind.ONE_HOT) for i in range(num_drafts))
    check = SequenceCheck(draft=draft, base=9, sampling=sampling, mode=mode, seed=3)
    row = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(1))
    logits = row.repeat(num_seqs * (num_drafts + 1), 1)
    with PeakBytes() as counted:
        verify(logits, [check] * num_seqs)
    return counted.peak / (logits.numel() * 4)


LAWS = [
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.8, min_p=0.01),
    SamplingParams(top_k=50, top_p=0.9),
]


@pytest.mark.parametrize("sampling", LAWS)
def test_a_batch_stays_below_the_bound(sampling: SamplingParams) -> None:
    assert peak_copies(6, 4, sampling, VerificationMode.COUPLED) < COPIES


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(VerificationMode))
@pytest.mark.parametrize("sampling", LAWS)
def test_the_largest_batch_stays_below_the_bound(sampling: SamplingParams, mode: VerificationMode) -> None:
    assert peak_copies(64, 7, sampling, mode) < COPIES


def test_a_copy_too_many_would_be_seen() -> None:
    logits = torch.randn(4, VOCAB)
    with PeakBytes() as counted:
        copies = [logits + i for i in range(7)]
        del copies[:4]
        copies.append(logits * 2)
    assert counted.peak == 7 * logits.numel() * 4
    assert counted.now == 4 * logits.numel() * 4
