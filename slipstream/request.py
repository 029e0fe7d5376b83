"""What is asked of a sequence: sampling, limits, who may draft. Knows nothing of services or tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

from slipstream.errors import InvalidRequest

MAX_TOP_K = 1 << 20
MAX_STOP_STRINGS = 16
MAX_STOP_STRING_CHARS = 256
MAX_STOP_TOKEN_IDS = 1024


class VerificationMode(IntEnum):
    """How drafts are checked (docs/exactness.md). Values are those of the wire."""

    RATIO = 1
    COUPLED = 2


class FinishReason(IntEnum):
    """Why a sequence ended. Values are those of the wire."""

    NONE = 0
    STOP = 1
    LENGTH = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """The target's law as the caller shapes it, and where output ends.

    Raises InvalidRequest (a ValueError) naming parameter, value and range.
    """

    temperature: float = 1.0  # 0 is greedy
    top_k: int = 0  # 0 keeps every token
    top_p: float = 1.0
    min_p: float = 0.0  # relative to the likeliest token
    max_tokens: int = 16
    stop_token_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        _require(math.isfinite(self.temperature) and self.temperature >= 0, "temperature", self.temperature, ">= 0")
        _require(0 <= self.top_k <= MAX_TOP_K, "top_k", self.top_k, f"in 0..{MAX_TOP_K} (0 keeps every token)")
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "in (0, 1]")
        _require(0 <= self.min_p <= 1, "min_p", self.min_p, "in [0, 1]")
        _require(self.max_tokens >= 1, "max_tokens", self.max_tokens, ">= 1")
        _require(
            len(self.stop_strings) <= MAX_STOP_STRINGS, "stop", len(self.stop_strings), f"<= {MAX_STOP_STRINGS} strings"
        )
        # An unbounded list would grow past what one message may hold, and take everyone's stream down with it.
        num_stop_ids = len(self.stop_token_ids)
        _require(num_stop_ids <= MAX_STOP_TOKEN_IDS, "stop_token_ids", num_stop_ids, f"<= {MAX_STOP_TOKEN_IDS} ids")
        for text in self.stop_strings:
            _require(
                0 < len(text) <= MAX_STOP_STRING_CHARS, "stop", text, f"1..{MAX_STOP_STRING_CHARS} characters long"
            )

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceRequest:
    """Everything a verifier or drafter needs to start, or after a failure restart, one sequence."""

    sequence_id: int
    token_ids: tuple[int, ...]  # the committed prefix: prompt, then output so far
    num_prompt_tokens: int
    sampling: SamplingParams
    mode: VerificationMode = VerificationMode.RATIO
    seed: int = 0  # key of the RESIDUAL noise, 64 bits
    nonce: int = 0  # fresh per open; joins the key of ACCEPT (verifier) or DRAFT (drafter) noise, 64 bits
    sample_index: int = 0
    num_draft_tokens: int = 0  # K: most draft tokens in one verify pass
    fan_out: int = 0  # drafter: outcomes drafted for ahead of each commit
    max_wait_us: int = 0  # verifier: longest wait of a lone sequence for a draft
    proposers: tuple[str, ...] = ()
    epoch: int = 0  # drafter: high half of Draft.draw
    adapter: str = ""
    tenant: str = ""
    vocabulary_hash: str = ""
    deadline_ms: int = 0  # 0 = none
    request_id: str = ""  # the client's, for logs

    def __post_init__(self) -> None:
        n = len(self.token_ids)
        if n == 0:
            raise InvalidRequest("prompt is empty; give at least one token")
        _require(1 <= self.num_prompt_tokens <= n, "num_prompt_tokens", self.num_prompt_tokens, f"in 1..{n}")

    @property
    def num_output_tokens(self) -> int:
        """Output tokens already committed when this was sent."""
        return len(self.token_ids) - self.num_prompt_tokens


def _require(condition: bool, name: str, value: object, allowed: str) -> None:
    if not condition:
        raise InvalidRequest(f"{name} is {value!r}; it must be {allowed}")
