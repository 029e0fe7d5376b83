"""Penalties, bias and forbidden tokens as one reads them: one position, the whole prefix. token_rules.py equals it.

Knows nothing of drafts: to whoever asks, draft tokens before the position are output tokens like others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from slipstream.request import SamplingParams

Floats = npt.NDArray[np.float32]


def rule_logits(
    logits: Floats,  # [vocab], the target's own
    sampling: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],  # all tokens after the prompt and before this position
    stop_token_ids: Collection[int],  # all that would end the output
) -> Floats:
    """Repetition, frequency and presence penalty, bias, then -inf where a token is forbidden: [vocab]."""
    ruled = logits.copy()
    for token_id in {*prompt, *output}:
        if sampling.repetition_penalty != 1:
            ruled[token_id] = _scaled(ruled[token_id], np.float32(sampling.repetition_penalty))
    bias = dict(sampling.logit_bias)
    for token_id in {*output, *bias}:
        count = list(output).count(token_id)
        penalty = sampling.frequency_penalty * count + sampling.presence_penalty * (count > 0)
        ruled[token_id] += np.float32(bias.get(token_id, 0.0) - penalty)
    if sampling.allowed_token_ids:
        ruled[np.setdiff1d(np.arange(len(ruled)), sampling.allowed_token_ids)] = -np.inf
    ruled[list(_completing(sampling.bad_words, (*prompt, *output)))] = -np.inf
    if len(output) < sampling.min_tokens:
        ruled[list(stop_token_ids)] = -np.inf
    return ruled


def _scaled(logit: np.float32, penalty: np.float32) -> np.float32:
    return logit / penalty if logit > 0 else logit * penalty


def _completing(bad_words: Sequence[tuple[int, ...]], before: tuple[int, ...]) -> Iterator[int]:
    """Last tokens of the words all of whose other tokens stand right before."""
    for word in bad_words:
        start = word[:-1]
        if before[len(before) - len(start) :] == start:
            yield word[-1]
