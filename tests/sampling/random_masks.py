"""Makes masked checks whose drafts are cut now and then. Knows no grammar."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from slipstream.exchange import LAW_TOTAL, DraftToken, LawKind, SparseLaw
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck

SAMPLING = (SamplingParams(temperature=0.0), SamplingParams(), SamplingParams(top_k=3), SamplingParams(min_p=0.05))


def allowing(allowed: Sequence[Collection[int]]) -> Callable[[np.ndarray], None]:
    """Fills each row with the tokens given for it."""

    def fill(bits: np.ndarray) -> None:
        assert len(bits) == len(allowed)
        bits[:] = 0
        for row, token_ids in zip(bits.view(np.uint32), allowed, strict=True):
            for token_id in token_ids:
                row[token_id // 32] |= np.uint32(1 << token_id % 32)

    return fill


def drawn(rng: np.random.Generator, vocab_size: int, law: SparseLaw | None = None) -> DraftToken:
    """A token drawn from the law, or from a random one over the whole vocabulary."""
    if law is None:
        counts = rng.multinomial(LAW_TOTAL - vocab_size, rng.dirichlet(np.ones(vocab_size))) + 1
        law = SparseLaw(np.arange(vocab_size, dtype=np.int32), counts.astype(np.uint16))
    return DraftToken(int(rng.choice(law.token_ids, p=law.counts / LAW_TOTAL)), LawKind.SPARSE, law)


def cut_check(
    rng: np.random.Generator, vocab_size: int, sampling: Sequence[SamplingParams] = SAMPLING
) -> SequenceCheck:
    """Half of the vocabulary is allowed at each row; the draft ends before its first token that is not."""
    tokens = [drawn(rng, vocab_size) for _ in range(rng.integers(5))]
    if rng.random() < 0.3:
        tokens = [DraftToken(token.token_id, LawKind.ONE_HOT) for token in tokens]
    allowed = [set(rng.permutation(vocab_size)[: vocab_size // 2 + 1].tolist()) for _ in range(len(tokens) + 1)]
    legal = next((i for i, token in enumerate(tokens) if token.token_id not in allowed[i]), len(tokens))
    return SequenceCheck(
        draft=tuple(tokens[:legal]),
        base=int(rng.integers(1 << 20)),
        sampling=sampling[rng.integers(len(sampling))],
        mode=VerificationMode(int(rng.integers(1, 3))),
        seed=int(rng.integers(1 << 63)),
        accept_key=int(rng.integers(1 << 63)),
        cut=tokens[legal] if legal < len(tokens) else None,
        fill_masks=allowing(allowed[: legal + 1]),
    )
