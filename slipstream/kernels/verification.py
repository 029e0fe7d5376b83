"""Verification wherever the logits lie: on a GPU by fused kernels, elsewhere as sampling/ does it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from slipstream.sampling import sliced_verification, verification
from slipstream.sampling.check import SequenceCheck, Verdict
from slipstream.sampling.sliced_verification import AnyCheck
from slipstream.sampling.vocabulary_slice import VocabularySlice


def verify(
    target_logits: torch.Tensor,  # [sum of len(draft) + 1, vocab] fp32, given the draft tokens before each
    checks: Sequence[SequenceCheck],
) -> list[Verdict]:
    """One verdict per check."""
    if target_logits.is_cuda:
        from slipstream.kernels.gpu import verification as gpu

        return gpu.verify(target_logits, checks)
    return verification.verify(target_logits, checks)


def verify_sliced(
    logits: torch.Tensor,  # [num_rows, slice] fp32, this rank's
    checks: Sequence[AnyCheck],
    vocabulary: VocabularySlice,
) -> list[Verdict]:
    """One verdict per check on rank 0; on other ranks what they say is not to be used."""
    if logits.is_cuda:
        from slipstream.kernels.gpu import verification as gpu

        return sliced_verification.verify_sliced(logits, checks, vocabulary, verify, gpu.verify_slice)
    return sliced_verification.verify_sliced(logits, checks, vocabulary)
