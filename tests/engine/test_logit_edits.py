"""Token rules and masks change a step's logits as the plain rules say, also when graphs are replayed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch

from slipstream.engine.logit_edits import LogitEdits
from slipstream.exchange import DraftToken, LawKind
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck
from slipstream.sampling.rule_reference import rule_logits
from slipstream.sampling.token_rules import TokenRules

VOCAB = 40
CPU = torch.device("cpu")
SAMPLING = SamplingParams(temperature=0.0, repetition_penalty=1.5, presence_penalty=0.5, logit_bias=((3, 2.0),))
PREFIX, DRAFT = (7, 8, 9), (8, 3)


class Counted:
    """Captures by keeping the function, as on a CPU; counts captures and replays."""

    def __init__(self) -> None:
        self.captures = self.replays = 0

    def capture(self, launch: Callable[[], None]) -> Callable[[], None]:
        self.captures += 1

        def replay() -> None:
            self.replays += 1
            launch()

        return replay


def check(*, rules: bool = True, allowed: npt.NDArray[np.int32] | None = None) -> SequenceCheck:
    def fill(bits: npt.NDArray[np.int32]) -> None:
        bits[:] = allowed

    return SequenceCheck(
        draft=tuple(DraftToken(token_id, LawKind.ONE_HOT) for token_id in DRAFT),
        base=len(PREFIX),
        sampling=SAMPLING if rules else SamplingParams(temperature=0.0),
        mode=VerificationMode.RATIO,
        rules=TokenRules(SAMPLING, PREFIX, len(PREFIX), ()) if rules else None,
        fill_masks=None if allowed is None else fill,
    )


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.randn(8, VOCAB, generator=torch.Generator().manual_seed(1))


def test_rules_change_each_row_given_the_drafted_tokens_before_it(logits: torch.Tensor) -> None:
    plain, capture = logits.clone(), Counted()
    LogitEdits(logits, capture).apply([check()], 4)
    expected = [rule_logits(plain[row].numpy(), SAMPLING, PREFIX, DRAFT[:row], ()) for row in range(3)]
    np.testing.assert_allclose(logits[:3].numpy(), expected, atol=1e-5)
    assert torch.equal(logits[3:], plain[3:]), "rows of nobody"


def test_a_graph_is_captured_once_for_each_padded_size_and_replayed(logits: torch.Tensor) -> None:
    capture = Counted()
    edits = LogitEdits(logits, capture)
    for num_rows in (4, 4, 8, 4):
        edits.apply([check()], num_rows)
    assert (capture.captures, capture.replays, edits.num_graphs) == (2, 4, 2)
    edits.clear()
    assert edits.num_graphs == 0


def test_masks_leave_the_allowed_tokens_alone(logits: torch.Tensor) -> None:
    plain, capture = logits.clone(), Counted()
    allowed = np.array([0b1010, 0], dtype=np.int32)  # tokens 1 and 3
    LogitEdits(logits, capture).apply([check(rules=False, allowed=allowed)], 4)
    kept = torch.isfinite(logits)
    assert kept[:3].nonzero()[:, 1].tolist() == [1, 3] * 3
    assert torch.equal(logits[:3][:, [1, 3]], plain[:3][:, [1, 3]])
    assert torch.equal(logits[3:], plain[3:])
    assert capture.captures == 0


def test_a_step_without_either_launches_nothing(logits: torch.Tensor) -> None:
    plain, capture = logits.clone(), Counted()
    LogitEdits(logits, capture).apply([check(rules=False)], 4)
    assert torch.equal(logits, plain)
    assert capture.captures == 0
