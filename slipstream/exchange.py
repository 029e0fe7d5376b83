"""What services say to each other about sequences, as plain data. Knows no protobuf (wire/ does), no tensor."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from slipstream.request import FinishReason

LAW_TOTAL = 1 << 15  # every sparse law's counts sum to this: fits u16 and divides 2^32


class LawKind(IntEnum):
    """How a drafted token came about. Values are those of the wire."""

    ASSUMED = 0  # a guessed outcome, or sent in an earlier message; never submitted for verification by itself
    ONE_HOT = 1
    SPARSE = 2


@dataclass(frozen=True, slots=True, eq=False)
class SparseLaw:
    """The distribution a draft token was drawn from: counts / LAW_TOTAL on the named tokens, 0 elsewhere."""

    token_ids: npt.NDArray[np.int32]  # [m], distinct
    counts: npt.NDArray[np.uint16]  # [m], each > 0, sum LAW_TOTAL

    def probability(self, token_id: int) -> float:
        where = np.flatnonzero(self.token_ids == token_id)
        return float(self.counts[where[0]]) / LAW_TOTAL if where.size else 0.0


@dataclass(frozen=True, slots=True)
class DraftToken:
    token_id: int
    kind: LawKind
    law: SparseLaw | None = None  # given iff kind is SPARSE


@dataclass(frozen=True, slots=True)
class Draft:
    """A path of tokens after the committed prefix; token i stands at position base + i."""

    sequence_id: int
    base: int
    proposer: str
    draw: int  # epoch << 32 | counter; smaller was drawn first
    tokens: tuple[DraftToken, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TokenLogprobs:
    """Of tokens that follow one another: how likely the target's raw logits made each, and what was likeliest there."""

    logprobs: npt.NDArray[np.float32]  # [num_tokens], natural logarithms
    top_token_ids: npt.NDArray[np.int32]  # [num_tokens, num_top], likeliest first
    top_logprobs: npt.NDArray[np.float32]  # [num_tokens, num_top]

    def __len__(self) -> int:
        return len(self.logprobs)

    def __getitem__(self, tokens: slice) -> TokenLogprobs:
        return TokenLogprobs(self.logprobs[tokens], self.top_token_ids[tokens], self.top_logprobs[tokens])

    def narrowed(self, num_top: int) -> TokenLogprobs:
        """With so many likeliest tokens at most."""
        return TokenLogprobs(self.logprobs, self.top_token_ids[:, :num_top], self.top_logprobs[:, :num_top])

    def __add__(self, later: TokenLogprobs) -> TokenLogprobs:
        """Those of these tokens and of the ones that follow; both have as many likeliest ones."""
        return TokenLogprobs(
            np.concatenate((self.logprobs, later.logprobs)),
            np.concatenate((self.top_token_ids, later.top_token_ids)),
            np.concatenate((self.top_logprobs, later.top_logprobs)),
        )


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Of a part of one sequence's prompt. The parts come in order, the first from position 1: nothing precedes 0."""

    sequence_id: int
    start: int  # position of the first token
    logprobs: TokenLogprobs


@dataclass(frozen=True, slots=True)
class Commit:
    """Tokens that became final in one verify pass of one sequence."""

    sequence_id: int
    base: int
    token_ids: tuple[int, ...]  # accepted draft tokens, then the recovered or bonus token
    num_accepted: int = 0
    num_draft_tokens: int = 0
    proposer: str = ""
    finish_reason: FinishReason = FinishReason.NONE
    stop_string: str = ""
    hit: bool = False
    wait_us: int = 0
    num_cached_tokens: int = 0
    logprobs: TokenLogprobs | None = None  # of token_ids, if asked for


@dataclass(frozen=True, slots=True)
class StepReport:
    num_running: int = 0
    num_waiting: int = 0
    num_tokens: int = 0
    step_us: int = 0
    kv_blocks_used: int = 0
    kv_blocks_total: int = 0


@dataclass(frozen=True, slots=True)
class CommitBatch:
    commits: tuple[Commit, ...]
    step: StepReport = StepReport()
    prompt_logprobs: tuple[PromptLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class DraftBatch:
    drafts: tuple[Draft, ...]
    draft_us: int = 0
    held_us: int = 0


@dataclass(frozen=True, slots=True)
class Update:
    sequence_id: int
    num_draft_tokens: int
    fan_out: int
    max_wait_us: int


@dataclass(frozen=True, slots=True)
class Features:
    """What the target knows of committed tokens, one feature each, for a drafter that builds on them."""

    sequence_id: int
    start: int  # position of the first token
    data: bytes  # bf16 [num_tokens, size]


@dataclass(frozen=True, slots=True)
class FeaturesWanted:
    """Features are to be sent again, from position `start` on."""

    sequence_id: int
    start: int


@dataclass(frozen=True, slots=True)
class SequenceFailure:
    """Ends one sequence and nothing else."""

    sequence_id: int
    error: Exception  # one of slipstream.errors; anything else is an internal error


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelInfo:
    """What a service serves, and how full it is."""

    name: str
    vocabulary_hash: str
    vocab_size: int
    max_model_len: int
    stop_token_ids: tuple[int, ...] = ()
    dtype: str = ""
    device: str = ""
    version: str = ""
    kv_blocks_total: int = 0
    kv_block_size: int = 0
    kv_blocks_used: int = 0
    num_sequences: int = 0
    proposers: tuple[str, ...] = ()
    features: str = ""  # a verifier can send them, a drafter needs them; names what makes them, empty = none
    max_num_seqs: int = 0  # that run at one time; more wait for a place; 0 = not told
    process: str = ""  # a verifier and a drafter that name the same one may hand over in memory; empty = it does not


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """An adapter that a drafter holds."""

    name: str
    path: str
    rank: int
    num_sequences: int = 0  # that use it
    draining: bool = False  # takes no new ones


@dataclass(frozen=True, slots=True)
class AdapterList:
    adapters: tuple[AdapterInfo, ...]
    max_adapters: int = 0  # 0: the drafter takes none
    bytes_per_adapter: int = 0  # taken for all of them, loaded or not
