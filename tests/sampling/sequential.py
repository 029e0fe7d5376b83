"""Plain decoding by the letter of the law: one token at a time, nothing drafted, nothing batched."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import numpy.typing as npt
import torch

from slipstream.request import SamplingParams
from slipstream.sampling.philox import Stream, gumbel, random_words
from slipstream.sampling.rule_reference import rule_logits
from slipstream.sampling.target_law import shape_logits

Law = Callable[[tuple[int, ...]], npt.NDArray[np.floating]]  # tokens so far -> logits [vocab]


def law_at(
    law: Law, prompt: Sequence[int], output: Sequence[int], sampling: SamplingParams, stop_token_ids: Collection[int]
) -> npt.NDArray[np.float32]:
    """Shaped logits of the next token: [vocab]."""
    logits = np.asarray(law((*prompt, *output)), dtype=np.float32)
    ruled = rule_logits(logits, sampling, prompt, output, stop_token_ids)
    shaped: npt.NDArray[np.float32] = shape_logits(torch.from_numpy(ruled)[None], [sampling])[0].numpy()
    return shaped


def sequential(
    law: Law, prompt: Sequence[int], sampling: SamplingParams, *, seed: int, stop_token_ids: Collection[int] = ()
) -> list[int]:
    """The output up to a stop token or max_tokens; cut short where no token is allowed."""
    output: list[int] = []
    while len(output) < sampling.max_tokens and not set(output[-1:]) & set(stop_token_ids):
        scores = law_at(law, prompt, output, sampling, stop_token_ids)
        if not np.isfinite(scores).any():
            break
        if not sampling.greedy:
            position, token_ids = len(prompt) + len(output), np.arange(len(scores))
            scores = scores + gumbel(random_words(seed, position, 0, Stream.RESIDUAL, token_ids=token_ids))
        output.append(int(scores.argmax()))
    return output
