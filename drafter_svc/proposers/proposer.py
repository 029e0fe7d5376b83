"""What a proposer is: it feeds rows of tokens and draws the ones that follow. Knows no sequences and no wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from drafter_svc.adapters import AdapterStore
from slipstream.exchange import DraftToken
from slipstream.kernels.draft_choice import Kind, settings_of
from slipstream.request import SamplingParams, SequenceRequest, VerificationMode
from slipstream.sampling.philox import derive_key
from slipstream.sampling.token_rules import TokenRules


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """How the draft tokens of one sequence are drawn."""

    sampling: SamplingParams
    mode: VerificationMode
    seed: int  # key of the RESIDUAL noise, which the verifier shares
    draft_key: int  # key of the DRAFT noise, nobody else's
    sample_index: int

    @classmethod
    def of(cls, request: SequenceRequest) -> Drawing:
        return cls(
            sampling=request.sampling,
            mode=request.mode,
            seed=request.seed,
            draft_key=derive_key(request.seed, request.nonce),
            sample_index=request.sample_index,
        )

    @property
    def carries_law(self) -> bool:
        """Greedy and coupled draft tokens are checked by match; all others travel with their distribution."""
        return self.mode is VerificationMode.RATIO and not self.sampling.greedy

    @cached_property
    def settings(self) -> tuple[int, ...]:
        """The same as a row of a table on the device has it."""
        kind = Kind.GREEDY if self.sampling.greedy else Kind.LAW if self.carries_law else Kind.COUPLED
        return settings_of(self.sampling, kind, self.seed, self.sample_index)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Tokens of one path to feed in this step, and what is wanted after them."""

    token_ids: Sequence[int]  # at least one
    start: int  # position of the first; the KV of everything before it is in the blocks
    block_ids: Sequence[int]
    drawing: Drawing
    draw: int  # Draft.draw; with the position it names the DRAFT noise, so never the same for two tokens at one place
    num_wanted: int  # draft tokens wanted, a proposer may give fewer; 0 only fills the KV cache
    num_outcomes: int  # likely outcomes to name at each position
    rules: TokenRules | None = None  # of the committed tokens
    drafted: Sequence[int] = ()  # after those, all before the token to be drawn; empty without rules
    features: npt.NDArray[np.uint16] | None = None  # the target's, bf16 [n, size], of the token before each; None: own
    adapter: int | None = None  # slot of the sequence's adapter; None: the model as it is

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Proposal:
    token: DraftToken
    outcomes: tuple[int, ...]  # what may become final at this position, likeliest first; the token itself may be in it
    confidence: float = 1.0  # that it stands; always 1 for a token with a law, whose own value must not decide its fate


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    num_blocks: int  # of the KV cache
    block_size: int
    max_model_len: int  # positions
    vocab_size: int  # token ids that can be fed
    eos_token_ids: tuple[int, ...] = ()  # the model's own end tokens, not drafted before min_tokens
    feature_size: int = 0  # numbers of a target's feature of one token, which rows then hold; 0 = it needs none
    num_lookahead: int = 0  # positions past its end that a row may write KV to
    feeds_drawn: bool = False  # what it writes there is the KV of what it drew, all but the last token; else of no use

    def at_once(self, num_wanted: int) -> int:
        """How many tokens one row draws, each after the first at the price of a position past its end."""
        return min(num_wanted, self.num_lookahead + 1)


class Proposer(Protocol):
    """One that builds on the target's features keeps its own output for each token beside the token's KV.

    A row without features then holds one token, and the KV of the one before it, with that output, is in the blocks.
    """

    @property
    def limits(self) -> Limits: ...

    @property
    def adapters(self) -> AdapterStore | None:
        """Room for adapters that rows may name; None if it takes none."""

    def propose(self, rows: Sequence[Row]) -> list[tuple[Proposal, ...]]:
        """Feeds all rows in one batch; for each the proposals at `row.end` and on, none if none are wanted."""

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies KV blocks, each pair (source, destination), before the next `propose`."""
