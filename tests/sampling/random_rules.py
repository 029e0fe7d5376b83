"""Makes sequences with token rules of every sort, and the rows of a pass over them. Knows no logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from slipstream.request import SamplingParams
from slipstream.sampling.rule_rows import RowContext
from slipstream.sampling.token_rules import TokenRules


def random_sampling(rng: np.random.Generator, vocab_size: int) -> SamplingParams:
    some = [int(token_id) for token_id in rng.choice(vocab_size, 6, replace=False)]
    return SamplingParams(
        repetition_penalty=float(rng.choice([0.8, 1.0, 1.5])),
        presence_penalty=float(rng.choice([-0.5, 0.0, 1.1])),
        frequency_penalty=float(rng.choice([0.0, 0.7])),
        logit_bias=((some[0], 2.5), (some[1], -3.0)),
        bad_words=((some[2],), (some[3], some[4]), (some[4], some[3], some[5])),
        min_tokens=int(rng.integers(6)),
    )


def random_contexts(
    seed: int, vocab_size: int, *, num_sequences: int, num_prompt_tokens: int, num_drafts: int = 3
) -> list[RowContext]:
    """The rows of one pass: of each sequence, one more than it has draft tokens."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(num_sequences):
        sampling = random_sampling(rng, vocab_size)
        favoured = [token_id for word in sampling.bad_words for token_id in word]
        tokens = rng.choice([*favoured, *rng.integers(vocab_size, size=num_prompt_tokens)], num_prompt_tokens + 5)
        rules = TokenRules(sampling, tokens.tolist(), num_prompt_tokens, (1, vocab_size - 1))
        drafted = rng.choice([*favoured, *tokens[-3:]], num_drafts).tolist()
        rows += [RowContext(rules, drafted[:offset]) for offset in range(num_drafts + 1)]
    return rows


def samplings(vocab_size: int, temperatures: Sequence[float] = (0.0, 0.7, 1.3)) -> st.SearchStrategy[SamplingParams]:
    """Every parameter of the law at once, in a vocabulary small enough that rules meet each other."""
    token_ids = st.integers(0, vocab_size - 1)
    return st.builds(
        SamplingParams,
        temperature=st.sampled_from(temperatures),
        top_k=st.sampled_from([0, 0, 3]),
        top_p=st.sampled_from([1.0, 1.0, 0.8]),
        min_p=st.sampled_from([0.0, 0.0, 0.1]),
        max_tokens=st.just(16),
        stop_token_ids=st.sampled_from([(), (2,)]),
        ignore_eos=st.booleans(),
        repetition_penalty=st.sampled_from([1.0, 1.2, 0.7]),
        presence_penalty=st.sampled_from([0.0, 1.5, -0.5]),
        frequency_penalty=st.sampled_from([0.0, 0.4, -0.6]),
        logit_bias=st.dictionaries(token_ids, st.floats(-4, 4, width=32), max_size=3).map(lambda b: tuple(b.items())),
        allowed_token_ids=st.one_of(st.just(()), st.sets(token_ids, min_size=3).map(lambda ids: tuple(sorted(ids)))),
        bad_words=st.lists(st.lists(token_ids, min_size=1, max_size=3).map(tuple), max_size=4).map(tuple),
        min_tokens=st.integers(0, 8),
    )
