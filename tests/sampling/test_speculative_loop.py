"""Drafter and verifier in a loop that runs ahead: outcomes guessed by the shared noise, continuations drafted before.

Whether a continuation is used depends on a guess that saw RESIDUAL noise; the joint law of the output must not notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from slipstream.exchange import DraftToken, LawKind
from slipstream.request import SamplingParams, VerificationMode
from tests.sampling.tiny_world import (
    NUM_SEQUENCES,
    VOCAB,
    Drafter,
    Ints,
    Path,
    Prefixes,
    assert_biased,
    assert_exact,
    first_two,
    joint_law,
    paths,
    start,
    verdicts,
)

RATIO, COUPLED = VerificationMode.RATIO, VerificationMode.COUPLED
NUM_TOKENS = 3
DRAWS_PER_PASS = 1 << 20

DRAFTER_OF_ALL = Drafter(num_kept=VOCAB)

Outcome = tuple[int, int]  # number of accepted draft tokens, then the recovered or bonus token


@dataclass(frozen=True)
class RunningAhead:
    """A drafter that drafts for the likely outcomes of a pass before the pass has ended."""

    mode: VerificationMode
    num_draft_tokens: int
    fan_out: int  # guessed tokens for each number of accepted ones
    drafter: Drafter = DRAFTER_OF_ALL

    def draft(self, prefixes: Prefixes) -> list[Path]:
        return paths(self.drafter.draw if self.mode is RATIO else self._coupled, self.num_draft_tokens)(prefixes)

    def _coupled(self, prefixes: Prefixes) -> list[DraftToken]:
        return [DraftToken(guesses[0], LawKind.ONE_HOT) for guesses in self.drafter.guess(prefixes, 1)]

    def branches(self, prefixes: Prefixes, submitted: Sequence[Path]) -> list[dict[Outcome, Path]]:
        """For each sequence, what to submit next after each guessed outcome of the pass that checks `submitted`."""
        guessed = self._guessed_outcomes(prefixes, submitted)
        rows = np.array([row for row, _, _ in guessed])
        ends = Prefixes(
            samples=prefixes.samples[rows],
            last=np.array([token_id for _, _, token_id in guessed]),
            base=prefixes.base[rows] + [accepted + 1 for _, accepted, _ in guessed],
            draws=prefixes.draws[rows] + 1 + np.arange(len(rows)),
        )
        branches: list[dict[Outcome, Path]] = [{} for _ in submitted]
        for (row, accepted, token_id), path in zip(guessed, self.draft(ends), strict=True):
            branches[row][accepted, token_id] = path
        return branches

    def _guessed_outcomes(self, prefixes: Prefixes, submitted: Sequence[Path]) -> list[tuple[int, int, int]]:
        """Row, accepted tokens, recovered or bonus token. A rejected token is not what replaces it."""
        points = [(row, accepted) for row, path in enumerate(submitted) for accepted in range(len(path) + 1)]
        rows, accepted = np.array(points).T
        before = [submitted[row][n - 1].token_id if n else prefixes.last[row] for row, n in points]
        places = Prefixes(
            prefixes.samples[rows], np.array(before), prefixes.base[rows] + accepted, prefixes.draws[rows]
        )
        outcomes = []
        for (row, n), guesses in zip(points, self.drafter.guess(places, self.fan_out + 1), strict=True):
            rejected = {token.token_id for token in submitted[row][n : n + 1]}
            outcomes += [(row, n, guess) for guess in guesses if guess not in rejected][: self.fan_out]
        return outcomes


@dataclass
class Loop:
    """Runs sequences until each has NUM_TOKENS output tokens."""

    ahead: RunningAhead
    submits_guesses: bool = False  # the forbidden thing: a guess at the end of the path, under the draft law
    num_hits: int = 0
    num_misses: int = 0

    def run(self) -> Ints:
        tokens: list[tuple[int, ...]] = [()] * NUM_SEQUENCES
        prefixes = start(NUM_SEQUENCES)
        submitted = self.ahead.draft(prefixes)
        while len(prefixes.samples):
            if self.submits_guesses:
                submitted = self._with_guesses(prefixes, submitted)
            branches = self.ahead.branches(prefixes, submitted)  # made before the pass has an outcome
            decided = verdicts(prefixes, submitted, SamplingParams(), self.ahead.mode)
            for sample, verdict in zip(prefixes.samples, decided, strict=True):
                tokens[sample] += verdict.token_ids
            outcomes = [(verdict.num_accepted, verdict.token_ids[-1]) for verdict in decided]
            going = [row for row, sample in enumerate(prefixes.samples) if len(tokens[sample]) < NUM_TOKENS]
            submitted = [self._look_up(branches[row], outcomes[row]) for row in going]
            prefixes = self._advance(prefixes, tokens, going)
        return np.array([token_ids[:NUM_TOKENS] for token_ids in tokens])

    def _look_up(self, branches: dict[Outcome, Path], outcome: Outcome) -> Path:
        self.num_hits += outcome in branches
        self.num_misses += outcome not in branches
        return branches.get(outcome, ())

    def _advance(self, prefixes: Prefixes, tokens: list[tuple[int, ...]], going: list[int]) -> Prefixes:
        samples = prefixes.samples[going]
        return Prefixes(
            samples=samples,
            last=np.array([tokens[sample][-1] for sample in samples], dtype=np.int64),
            base=np.array([1 + len(tokens[sample]) for sample in samples], dtype=np.int64),
            draws=prefixes.draws[going] + DRAWS_PER_PASS,
        )

    def _with_guesses(self, prefixes: Prefixes, submitted: Sequence[Path]) -> list[Path]:
        ends = replace(
            prefixes,
            last=np.array([p[-1].token_id if p else last for p, last in zip(submitted, prefixes.last, strict=True)]),
            base=prefixes.base + [len(path) for path in submitted],
        )
        laws, guesses = self.ahead.drafter.laws(), self.ahead.drafter.guess(ends, 1)
        return [
            (*path, DraftToken(guess[0], LawKind.SPARSE, laws[last]))
            for path, guess, last in zip(submitted, guesses, ends.last, strict=True)
        ]


def assert_joint_laws_exact(tokens: Ints) -> None:
    law = joint_law(num_tokens=NUM_TOKENS)
    assert_exact(tokens[:, :2], law.sum(axis=2))
    assert_exact(tokens[:, 1:], law.sum(axis=0))


@pytest.mark.parametrize(
    ("num_draft_tokens", "fan_out"),
    [(1, 1), (2, 3), pytest.param(1, 3, marks=pytest.mark.slow), pytest.param(2, 1, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("mode", [RATIO, COUPLED])
def test_running_ahead_leaves_the_joint_law(mode: VerificationMode, num_draft_tokens: int, fan_out: int) -> None:
    loop = Loop(RunningAhead(mode, num_draft_tokens, fan_out))
    assert_joint_laws_exact(loop.run())
    assert loop.num_hits > NUM_SEQUENCES / 4
    assert loop.num_misses > NUM_SEQUENCES / 50


def test_running_ahead_in_coupled_mode_gives_the_very_text_that_no_drafts_give() -> None:
    plain = first_two(lambda prefixes: [()] * len(prefixes.last), mode=COUPLED)
    assert np.array_equal(Loop(RunningAhead(COUPLED, 2, 2)).run()[:, :2], plain)


@pytest.mark.parametrize("num_draft_tokens", [0, 1])
def test_submitting_a_guess_as_a_draft_is_caught(num_draft_tokens: int) -> None:
    tokens = Loop(RunningAhead(RATIO, num_draft_tokens, 1), submits_guesses=True).run()
    assert_biased(tokens[:, :2], joint_law())
