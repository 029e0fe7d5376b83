"""Under token rules the output of ratio mode follows the target's law, drafted by a drafter that knows of none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
import torch

from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck
from slipstream.sampling.token_rules import TokenRules
from slipstream.sampling.verification import verify
from tests.sampling.sequential import law_at
from tests.sampling.tiny_world import (
    ACCEPT_KEY,
    SEED,
    START,
    TARGET,
    VOCAB,
    Drafter,
    Ints,
    Prefixes,
    assert_biased,
    assert_exact,
    paths,
)

NUM_SEQUENCES = 4000
NUM_TOKENS = 3
RULED = SamplingParams(
    repetition_penalty=1.3,
    frequency_penalty=1.2,
    presence_penalty=0.4,
    logit_bias=((1, 0.8),),
    bad_words=((2, 3), (4, 4)),
    min_tokens=2,
)
STOPS = (0,)


def target(history: Sequence[int]) -> npt.NDArray[np.float32]:
    logits: npt.NDArray[np.float32] = TARGET[history[-1]].numpy()
    return logits


def joint_law() -> npt.NDArray[np.float64]:
    """Of the first NUM_TOKENS tokens, by enumeration with the plain rule; a stop token goes on like others."""
    law = np.zeros((VOCAB,) * NUM_TOKENS)
    for output in product(range(VOCAB), repeat=NUM_TOKENS):
        law[output] = 1.0
        for place, token_id in enumerate(output):
            shaped = torch.from_numpy(law_at(target, (START,), output[:place], RULED, STOPS))
            law[output] *= float(shaped.double().softmax(-1)[token_id])
    return law


def outputs(num_draft_tokens: int) -> Ints:
    """The first tokens of NUM_SEQUENCES sequences that share a seed: [NUM_SEQUENCES, NUM_TOKENS]."""
    rules = [TokenRules(RULED, (START,), 1, STOPS) for _ in range(NUM_SEQUENCES)]
    drafting = paths(Drafter().draw, num_draft_tokens)
    while going := [sample for sample, one in enumerate(rules) if one.num_output_tokens < NUM_TOKENS]:
        lengths = np.array([len(rules[sample].token_ids) for sample in going])
        last = np.array([rules[sample].token_ids[-1] for sample in going])
        drafts = drafting(Prefixes(np.array(going), last, lengths, lengths << 8))
        checks = [
            SequenceCheck(
                draft=draft,
                base=int(length),
                sampling=RULED,
                mode=VerificationMode.RATIO,
                seed=SEED,
                accept_key=ACCEPT_KEY,
                sample_index=sample,
                rules=rules[sample],
            )
            for sample, draft, length in zip(going, drafts, lengths, strict=True)
        ]
        before = [[int(end), *(token.token_id for token in draft)] for end, draft in zip(last, drafts, strict=True)]
        verdicts = verify(TARGET[[token_id for row in before for token_id in row]], checks)
        for sample, verdict in zip(going, verdicts, strict=True):
            rules[sample].extend(verdict.token_ids)
    return np.array([one.token_ids[1 : 1 + NUM_TOKENS] for one in rules])


def test_drafts_leave_the_law_that_the_rules_make() -> None:
    assert_exact(outputs(num_draft_tokens=3), joint_law())


def test_rules_that_do_not_see_the_drafted_tokens_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TokenRules.row_entries
    monkeypatch.setattr(TokenRules, "row_entries", lambda rules, drafted: right(rules, ()))
    assert_biased(outputs(num_draft_tokens=3), joint_law())
