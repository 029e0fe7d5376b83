"""How much is drafted follows from what was accepted before: the joint law of the output must not notice.

That is what a controller does from pass to pass. Steering by a token that was verified and then thrown away, whose
noise comes again at the same position, must be found out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import Verdict
from slipstream.sampling.philox import Stream, random_words, uniform
from tests.sampling.tiny_world import (
    ACCEPT_KEY,
    NUM_SEQUENCES,
    OTHER_DRAFTER,
    VOCAB,
    Drafter,
    Ints,
    Path,
    Prefixes,
    assert_biased,
    assert_exact,
    joint_law,
    paths,
    start,
    verdicts,
)

NUM_TOKENS = 3
MOST = 2  # draft tokens of a pass
DRAWS_PER_PASS = 1 << 20
DRAFTING = paths(Drafter(logits=OTHER_DRAFTER, num_kept=VOCAB).draw, MOST)  # often rejected

Rule = Callable[[Prefixes, Sequence[Path], Sequence[Verdict]], Ints]  # after a pass: the next K of each sequence


def by_what_was_accepted(prefixes: Prefixes, submitted: Sequence[Path], decided: Sequence[Verdict]) -> Ints:
    """Nothing after a rejection, all there is after a pass without one."""
    return np.array([
        MOST if verdict.num_accepted == len(path) else 0 for path, verdict in zip(submitted, decided, strict=True)
    ])  # fmt: skip


def by_what_was_thrown_away(prefixes: Prefixes, submitted: Sequence[Path], decided: Sequence[Verdict]) -> Ints:
    """Whether the token after a rejected one would have stood easily: the next one there meets the same noise."""
    noise = uniform(random_words(ACCEPT_KEY, prefixes.base + 1, prefixes.samples, Stream.ACCEPT))
    was_discarded = np.array([
        len(path) == MOST and verdict.num_accepted == 0 for path, verdict in zip(submitted, decided, strict=True)
    ])  # fmt: skip
    return np.where(was_discarded & (noise < 0.6), 0, 1)


def run(rule: Rule) -> Ints:
    """The first tokens of NUM_SEQUENCES sequences: [NUM_SEQUENCES, NUM_TOKENS]."""
    tokens: list[tuple[int, ...]] = [()] * NUM_SEQUENCES
    prefixes, most = start(NUM_SEQUENCES), np.full(NUM_SEQUENCES, MOST)
    while len(prefixes.samples):
        submitted = [path[:k] for path, k in zip(DRAFTING(prefixes), most.tolist(), strict=True)]
        decided = verdicts(prefixes, submitted, SamplingParams(), VerificationMode.RATIO)
        for sample, verdict in zip(prefixes.samples, decided, strict=True):
            tokens[sample] += verdict.token_ids
        going = np.array([len(tokens[sample]) < NUM_TOKENS for sample in prefixes.samples])
        most = rule(prefixes, submitted, decided)[going]
        samples = prefixes.samples[going]
        prefixes = replace(
            prefixes,
            samples=samples,
            last=np.array([tokens[sample][-1] for sample in samples], dtype=np.int64),
            base=np.array([1 + len(tokens[sample]) for sample in samples], dtype=np.int64),
            draws=prefixes.draws[going] + DRAWS_PER_PASS,
        )
    return np.array([token_ids[:NUM_TOKENS] for token_ids in tokens])


def test_steering_by_what_was_accepted_leaves_the_joint_law() -> None:
    tokens, law = run(by_what_was_accepted), joint_law(num_tokens=NUM_TOKENS)
    assert_exact(tokens[:, :2], law.sum(axis=2))
    assert_exact(tokens[:, 1:], law.sum(axis=0))


def test_steering_by_what_was_thrown_away_is_caught() -> None:
    assert_biased(run(by_what_was_thrown_away)[:, :2], joint_law())
