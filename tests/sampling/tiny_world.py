"""A target and drafters small enough to enumerate: a token depends on the one before it. Draws are real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import chisquare

from slipstream.exchange import DraftToken, LawKind, SparseLaw
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck, Verdict
from slipstream.sampling.draft_law import as_law, draw, guess_outcomes, sparse_laws
from slipstream.sampling.philox import derive_key
from slipstream.sampling.target_law import shape_logits
from slipstream.sampling.verification import verify

VOCAB = 5
NUM_SEQUENCES = 6000
START = 0  # the prompt's only token, at position 0
SEED = 12
DRAFT_KEY, ACCEPT_KEY = derive_key(SEED, 12), derive_key(SEED, 13)

Ints = npt.NDArray[np.int64]
Path = tuple[DraftToken, ...]


def table(seed: int, spread: float = 1.5) -> torch.Tensor:
    """Logits of the next token after each token: [VOCAB, VOCAB]."""
    return torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(seed)) * spread


TARGET = table(48)
DRAFTER = table(9)
OTHER_DRAFTER = table(3)


@dataclass(frozen=True)
class Prefixes:
    """Where many sequences are. They share a seed and differ in sample index."""

    samples: Ints  # [n] sample indices
    last: Ints  # [n] last tokens
    base: Ints  # [n] next positions
    draws: Ints  # [n] draw numbers of what is drafted next

    def after(self, token_ids: Sequence[int]) -> Prefixes:
        return replace(self, last=np.array(token_ids, dtype=np.int64), base=self.base + 1)


def start(num_sequences: int) -> Prefixes:
    zeros = np.zeros(num_sequences, dtype=np.int64)
    return Prefixes(np.arange(num_sequences), zeros + START, zeros + 1, zeros)


Drafting = Callable[[Prefixes], list[Path]]  # one path per sequence


@dataclass(frozen=True)
class Drafter:
    """Draws paths of tokens from a table's truncated laws; `told` are the laws it names in its messages."""

    logits: torch.Tensor = field(default_factory=lambda: DRAFTER)
    num_kept: int = 3
    told: Drafter | None = None

    def laws(self) -> list[SparseLaw]:
        """After each token."""
        return [as_law(*row) for row in zip(*sparse_laws(self.logits, self.num_kept), strict=True)]

    def draw(self, prefixes: Prefixes) -> list[DraftToken]:
        """The next token of each sequence."""
        token_ids, counts = (array[prefixes.last] for array in sparse_laws(self.logits, self.num_kept))
        keys = [DRAFT_KEY] * len(prefixes.last)
        drawn = draw(token_ids, counts, keys, prefixes.base, prefixes.samples, prefixes.draws)
        told = (self.told or self).laws()
        return [
            DraftToken(token_id, LawKind.SPARSE, told[last])
            for token_id, last in zip(drawn.tolist(), prefixes.last.tolist(), strict=True)
        ]

    def guess(self, prefixes: Prefixes, num_guesses: int) -> list[list[int]]:
        """What the verifier probably emits next, by the shared noise."""
        num_rows = len(prefixes.last)
        sampling, seeds = [SamplingParams()] * num_rows, [SEED] * num_rows
        positions, samples = prefixes.base.tolist(), prefixes.samples.tolist()
        return guess_outcomes(self.logits[prefixes.last], sampling, seeds, positions, samples, num_guesses)


def paths(next_token: Callable[[Prefixes], list[DraftToken]], num_tokens: int) -> Drafting:
    """Paths of num_tokens tokens, each drafted after the one before it."""

    def drafting(prefixes: Prefixes) -> list[Path]:
        drafted: list[Path] = [()] * len(prefixes.last)
        for _ in range(num_tokens):
            tokens = next_token(prefixes)
            drafted = [(*path, token) for path, token in zip(drafted, tokens, strict=True)]
            prefixes = prefixes.after([token.token_id for token in tokens])
        return drafted

    return drafting


def verdicts(
    prefixes: Prefixes, drafts: Sequence[Path], sampling: SamplingParams, mode: VerificationMode
) -> list[Verdict]:
    """One pass of the verifier over all sequences."""
    before = [
        token_id
        for last, path in zip(prefixes.last.tolist(), drafts, strict=True)
        for token_id in (last, *(token.token_id for token in path))
    ]
    checks = [
        SequenceCheck(
            draft=path,
            base=base,
            sampling=sampling,
            mode=mode,
            seed=SEED,
            accept_key=ACCEPT_KEY,
            sample_index=sample,
        )
        for path, sample, base in zip(drafts, prefixes.samples.tolist(), prefixes.base.tolist(), strict=True)
    ]
    return verify(TARGET[before], checks)


def first_two(
    drafting: Drafting, sampling: SamplingParams | None = None, mode: VerificationMode = VerificationMode.RATIO
) -> Ints:
    """The first two output tokens of NUM_SEQUENCES sequences, in one pass or two: [NUM_SEQUENCES, 2]."""
    sampling = sampling or SamplingParams()
    everyone = start(NUM_SEQUENCES)
    tokens = [verdict.token_ids for verdict in verdicts(everyone, drafting(everyone), sampling, mode)]
    samples = np.array([sample for sample in range(NUM_SEQUENCES) if len(tokens[sample]) == 1], dtype=np.int64)
    if samples.size:
        first = np.array([tokens[sample][0] for sample in samples])
        rest = Prefixes(samples, first, np.full_like(first, 2), np.ones_like(first))
        for sample, verdict in zip(samples, verdicts(rest, drafting(rest), sampling, mode), strict=True):
            tokens[sample] += verdict.token_ids
    return np.array([token_ids[:2] for token_ids in tokens])


def joint_law(sampling: SamplingParams | None = None, num_tokens: int = 2) -> npt.NDArray[np.float64]:
    """The target's own law of the first tokens, by enumeration: [VOCAB] * num_tokens."""
    laws = shape_logits(TARGET, [sampling or SamplingParams()] * VOCAB).double().softmax(-1).numpy()
    law: npt.NDArray[np.float64] = laws[START]
    for _ in range(num_tokens - 1):
        law = law[..., None] * laws
    return law


def counts(tokens: Ints) -> npt.NDArray[np.float64]:
    """How often each combination was seen: [VOCAB] * num_tokens."""
    seen = np.zeros((VOCAB,) * tokens.shape[1])
    np.add.at(seen, tuple(tokens.T), 1)
    return seen


def total_variation(tokens: Ints, law: npt.NDArray[np.float64]) -> float:
    return float(np.abs(counts(tokens) / len(tokens) - law).sum() / 2)


def p_value(tokens: Ints, law: npt.NDArray[np.float64]) -> float:
    """Chi-square; 0 if something impossible was seen."""
    seen, possible = counts(tokens), law > 0
    if seen[~possible].any():
        return 0.0
    return float(chisquare(seen[possible], law[possible] / law.sum() * len(tokens)).pvalue)


def assert_exact(tokens: Ints, law: npt.NDArray[np.float64]) -> None:
    first = law.sum(axis=tuple(range(1, law.ndim)))
    assert p_value(tokens[:, :1], first) > 1e-3
    assert p_value(tokens, law) > 1e-3


def assert_biased(tokens: Ints, law: npt.NDArray[np.float64]) -> None:
    """What a negative control must be: the same test fails, and not by a hair."""
    assert total_variation(tokens, law) >= 0.05
    assert p_value(tokens, law) < 1e-6
