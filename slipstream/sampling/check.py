"""What is asked of a verification and what it answers, for one sequence. Knows nothing of tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from slipstream.exchange import DraftToken, LawKind, TokenLogprobs
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.token_rules import TokenRules


@dataclass(kw_only=True, slots=True)  # not frozen, which would make it three times as dear to make
class SequenceCheck:
    """Draft tokens of one sequence, and all that decides which of them stand besides the target's logits."""

    draft: tuple[DraftToken, ...]
    base: int  # position of the first token to decide
    sampling: SamplingParams
    mode: VerificationMode
    seed: int = 0  # key of the RESIDUAL noise
    accept_key: int = 0  # derive_key(seed, nonce): key of the ACCEPT noise
    sample_index: int = 0
    rules: TokenRules | None = None  # of the committed tokens; a row adds what the draft tokens before it change
    cut: DraftToken | None = None  # drafted after them, but the target cannot give it: neither fed nor accepted
    # Writes which tokens may come into [len(draft) + 1, ceil(vocab / 32)] words (token_masks.py); None: all may.
    fill_masks: Callable[[npt.NDArray[np.int32]], None] | None = None
    # Greedy, coupled or without drafts: every output token is a function of target and noise alone.
    matched_only: bool = field(init=False)

    def __post_init__(self) -> None:
        undrafted = not self.draft and self.cut is None
        self.matched_only = undrafted or self.sampling.greedy or self.mode is VerificationMode.COUPLED
        if not self.matched_only and any(token.kind is LawKind.ASSUMED for token in self.draft):
            raise ValueError("an assumed token cannot be verified in ratio mode: no law says how it was chosen")

    @property
    def acts_on_logits(self) -> bool:
        """Whether logits are changed or reported between the model's pass and verification."""
        return self.rules is not None or self.fill_masks is not None or self.sampling.logprobs

    def is_matched(self, token: DraftToken) -> bool:
        """Whether the token stands iff it equals the one that target and noise choose; else its law decides."""
        return self.matched_only or token.kind is LawKind.ONE_HOT

    @property
    def last_token(self) -> DraftToken | None:
        """What stands in the row after the draft: a cut token whose law makes the row a rejection, or none.

        A cut token that would be matched equals nothing that the target can give, and so changes nothing.
        """
        return self.cut if self.cut is not None and not self.is_matched(self.cut) else None


@dataclass(slots=True)
class Verdict:
    token_ids: tuple[int, ...]  # the accepted draft tokens, then the recovered or bonus token
    num_accepted: int  # len(token_ids) - 1
    logprobs: TokenLogprobs | None = None  # of token_ids, if asked for
