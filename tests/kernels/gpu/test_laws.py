"""What the kernels emit has the target's law, in both modes, and a wrong law is told from it. Whole and on slices."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.stats import chisquare

from slipstream.exchange import LAW_TOTAL, DraftToken, LawKind, SparseLaw
from slipstream.kernels.gpu.check_table import pack_checks
from slipstream.kernels.gpu.decided_rows import decide_rows
from slipstream.kernels.gpu.row_statistics import RowParts, row_statistics
from slipstream.kernels.gpu.second_look import second_look, verdicts
from slipstream.kernels.gpu.verification import verify
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # interpreted, a row takes tens of milliseconds
VOCAB, SLICE, NUM_SAMPLES = 8, 4, 200
TEMPERATURE = 0.8
RIGHT, WRONG = 1e-3, 1e-6  # seeds are fixed: nothing here depends on luck
Floats = npt.NDArray[np.float64]


def target_logits() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(3).normal(0, 0.6, VOCAB).astype(np.float32))


def target_law(temperature: float = TEMPERATURE) -> Floats:
    return (target_logits().double() / temperature).softmax(-1).numpy()


def draft_counts() -> npt.NDArray[np.uint16]:
    """A law over all tokens, far from the target's."""
    shares = np.random.default_rng(4).dirichlet(np.ones(VOCAB))
    counts = np.maximum((shares * LAW_TOTAL).astype(np.int64), 1)
    counts[counts.argmax()] += LAW_TOTAL - counts.sum()
    return counts.astype(np.uint16)


def make_checks(mode: VerificationMode, told: npt.NDArray[np.uint16]) -> list[SequenceCheck]:
    """Each drafts one token by the law of draft_counts, and tells it was `told`."""
    rng, counts = np.random.default_rng(5), draft_counts()
    law = SparseLaw(np.arange(VOCAB, dtype=np.int32), told)
    sampling = SamplingParams(temperature=TEMPERATURE)
    checks = []
    for number in range(NUM_SAMPLES):
        token_id = int(rng.choice(VOCAB, p=counts / LAW_TOTAL))
        drawn = DraftToken(token_id, LawKind.SPARSE, law)
        token = drawn if mode is VerificationMode.RATIO else DraftToken(token_id, LawKind.ONE_HOT)
        keys = {"seed": 1000 + number, "accept_key": 5_000_000 + number}
        checks.append(SequenceCheck(draft=(token,), base=7, sampling=sampling, mode=mode, **keys))
    return checks


def first_tokens(checks: list[SequenceCheck], device: torch.device) -> list[int]:
    logits = target_logits().expand(2 * len(checks), VOCAB).contiguous().to(device)
    return [verdict.token_ids[0] for verdict in verify(logits, checks)]


def first_tokens_of_slices(checks: list[SequenceCheck], device: torch.device) -> list[int]:
    logits = target_logits().expand(2 * len(checks), VOCAB)
    slices = [(first, logits[:, first : first + SLICE].contiguous().to(device)) for first in range(0, VOCAB, SLICE)]
    table = pack_checks(checks, VOCAB, device)
    decided = decide_rows(table, joined([row_statistics(part, table, first) for first, part in slices]), None)
    found = joined([second_look(part, table, decided, None, first) for first, part in slices])
    accepted_and_last = zip(checks, verdicts(table, decided, found).tolist(), strict=True)
    return [check.draft[0].token_id if accepted else last for check, (accepted, last) in accepted_and_last]


def joined(parts: list[RowParts]) -> RowParts:
    return RowParts(*(torch.cat(tensors, 1) for tensors in zip(*((p.values, p.tokens) for p in parts), strict=True)))


def likelihood(tokens: list[int], law: Floats) -> float:
    """Of so large a deviation from the law by chance."""
    counts = Counter(tokens)
    return float(chisquare([counts[token] for token in range(VOCAB)], law * len(tokens)).pvalue)


@pytest.mark.parametrize("emit", [first_tokens, first_tokens_of_slices])
@pytest.mark.parametrize("mode", list(VerificationMode))
def test_emitted_tokens_have_the_targets_law_and_no_other(mode: VerificationMode, emit, device: torch.device) -> None:
    tokens = emit(make_checks(mode, draft_counts()), device)
    assert likelihood(tokens, target_law()) > RIGHT
    assert likelihood(tokens, target_law(0.4 * TEMPERATURE)) < WRONG


def test_a_law_that_is_not_the_one_drafted_from_shows(device: torch.device) -> None:
    tokens = first_tokens(make_checks(VerificationMode.RATIO, draft_counts()[::-1].copy()), device)
    assert likelihood(tokens, target_law()) < WRONG
