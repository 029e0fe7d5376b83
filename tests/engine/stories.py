"""Sequences that are prefilled and then verified with drafts right and wrong, as a scheduler would. Knows no model."""

from __future__ import annotations

import numpy as np

from slipstream.engine.model_runner import ModelRunner
from slipstream.exchange import LAW_TOTAL, DraftToken, LawKind, SparseLaw
from slipstream.kernels.batch import Chunk
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck
from slipstream.sampling.token_rules import make_token_rules

BLOCKS = 24  # of one sequence
GREEDY = SamplingParams(temperature=0.0)
RULED = SamplingParams(
    temperature=0.7,
    repetition_penalty=1.3,
    frequency_penalty=0.5,
    presence_penalty=-0.4,
    logit_bias=((5, 4.0), (9, -3.0)),
    allowed_token_ids=tuple(range(3, 300)),
    bad_words=((11,), (5, 5), (12, 13, 14)),
    min_tokens=6,
)


class Story:
    """A reproducible one. With `known`, what an earlier telling wrote, most drafts are right."""

    def __init__(
        self,
        num_seqs: int,
        num_drafts: int,
        sampling: SamplingParams = GREEDY,
        mode: VerificationMode = VerificationMode.RATIO,
        *,
        known: list[list[int]] | None = None,
    ) -> None:
        self._rng = np.random.default_rng(num_seqs)
        self.tokens = [self._rng.integers(3, 320, 5 + 2 * i % 30).tolist() for i in range(num_seqs)]
        self._num_prompt_tokens = [len(tokens) for tokens in self.tokens]
        self._num_drafts, self._sampling, self._mode, self._known = num_drafts, sampling, mode, known

    def run(self, runner: ModelRunner, num_steps: int = 4) -> list[list[int]]:
        """The text of all sequences after so many steps."""
        fed = [0] * len(self.tokens)
        for step in range(num_steps):
            checks = [self._check(i, self._draft(i) if step else ()) for i in range(len(self.tokens))]
            chunks = [self._chunk(i, fed[i], check) for i, check in enumerate(checks)]
            for i, verdict in enumerate(runner.verify(chunks, checks)):
                fed[i] = len(self.tokens[i]) + verdict.num_accepted
                self.tokens[i] += verdict.token_ids
        return self.tokens

    def _chunk(self, sequence: int, fed: int, check: SequenceCheck) -> Chunk:
        token_ids = [*self.tokens[sequence][fed:], *(token.token_id for token in check.draft)]
        blocks = range(sequence * BLOCKS, (sequence + 1) * BLOCKS)
        return Chunk(token_ids, fed, blocks, len(check.draft) + 1)

    def _draft(self, sequence: int) -> tuple[DraftToken, ...]:
        base = len(self.tokens[sequence])
        guesses = self._rng.integers(3, 320, self._num_drafts)
        if self._known is not None:
            right = self._known[sequence][base : base + self._num_drafts]
            mistakes = self._rng.random(len(right)) < 0.2
            guesses[: len(right)] = np.where(mistakes, guesses[: len(right)], right)
        return tuple(self._token(int(guess)) for guess in guesses)

    def _token(self, token_id: int) -> DraftToken:
        if self._sampling.greedy or self._mode is VerificationMode.COUPLED:
            return DraftToken(token_id, LawKind.ONE_HOT)
        others = self._rng.choice(np.delete(np.arange(320), token_id), self._rng.integers(1, 8), replace=False)
        token_ids = np.array([token_id, *others], np.int32)
        counts = np.full(len(token_ids), LAW_TOTAL // len(token_ids), np.uint16)
        counts[0] += LAW_TOTAL - int(counts.sum())
        return DraftToken(token_id, LawKind.SPARSE, SparseLaw(token_ids, counts))

    def _check(self, sequence: int, draft: tuple[DraftToken, ...]) -> SequenceCheck:
        return SequenceCheck(
            draft=draft,
            base=len(self.tokens[sequence]),
            sampling=self._sampling,
            mode=self._mode,
            seed=7 + sequence,
            accept_key=9,
            rules=make_token_rules(self._sampling, self.tokens[sequence], self._num_prompt_tokens[sequence], (7,)),
        )
