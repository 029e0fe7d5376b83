"""Without a GPU verification is the plain one, whole and on a slice that is the whole."""

from __future__ import annotations

import torch

from slipstream.kernels.verification import verify, verify_sliced
from slipstream.sampling import verification
from slipstream.sampling.vocabulary_slice import VocabularySlice
from tests.kernels.gpu.random_checks import MIN_P, PLAIN, RandomChecks


def test_verdicts_on_a_cpu_are_those_of_the_plain_rule() -> None:
    source = RandomChecks(4, 50)
    checks = [source.check(params) for params in (*PLAIN, *MIN_P)]
    logits = source.logits(checks)
    expected = verification.verify_reference(logits, checks)
    assert verify(logits, checks) == expected
    assert verify_sliced(logits, checks, VocabularySlice(0, lambda tensor: tensor, 50)) == expected


def test_no_checks_give_no_verdicts() -> None:
    assert verify(torch.empty(0, 7), []) == []
