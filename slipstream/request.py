"""What is asked of a sequence: sampling, limits, who may draft. Knows nothing of services or tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

from slipstream.errors import InvalidRequest, quoted

MAX_TOP_K = 1 << 20
MAX_STOP_STRINGS = 16
MAX_STOP_STRING_CHARS = 256
MAX_STOP_TOKEN_IDS = 1024
MAX_PENALTY = 2.0  # of presence and frequency, either sign
REPETITION_PENALTIES = (0.01, 100.0)  # beyond them a logit leaves fp32
MAX_LOGIT_BIAS = 100.0  # either sign
MAX_BIASED_TOKENS = 1024
MAX_ALLOWED_TOKEN_IDS = 1 << 16
MAX_BAD_WORDS = 256
MAX_BAD_WORD_TOKENS = 32
MAX_TOP_LOGPROBS = 20
MAX_GRAMMAR_CHARS = 1 << 16


class VerificationMode(IntEnum):
    """How drafts are checked (docs/exactness.md). Values are those of the wire."""

    RATIO = 1
    COUPLED = 2


class FinishReason(IntEnum):
    """Why a sequence ended. Values are those of the wire."""

    NONE = 0
    STOP = 1
    LENGTH = 2


class GrammarKind(IntEnum):
    """In which language a grammar is written. Values are those of the wire."""

    JSON_SCHEMA = 1
    REGEX = 2
    EBNF = 3
    CHOICE = 4  # a JSON array of strings


@dataclass(frozen=True, slots=True)
class Grammar:
    """What the whole output must conform to."""

    kind: GrammarKind
    text: str

    def __post_init__(self) -> None:
        num_chars = len(self.text)
        _require(0 < num_chars <= MAX_GRAMMAR_CHARS, "grammar", num_chars, f"1..{MAX_GRAMMAR_CHARS} characters long")


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """The target's law as the caller shapes it, where output ends, and what comes with it.

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
    repetition_penalty: float = 1.0  # divides positive logits of tokens of prompt and output, multiplies negative ones
    presence_penalty: float = 0.0  # subtracted once for a token that the output holds
    frequency_penalty: float = 0.0  # subtracted for each time that the output holds it
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, what is added to its logit)
    allowed_token_ids: tuple[int, ...] = ()  # empty allows every token
    bad_words: tuple[tuple[int, ...], ...] = ()  # of each, the last token is forbidden after the ones before it
    min_tokens: int = 0  # no stop token before so many output tokens; stop strings still end the output
    logprobs: bool = False  # of output tokens, under the target's raw logits
    num_top_logprobs: int = 0  # likeliest tokens reported with each token
    prompt_logprobs: bool = False
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        self._check_law()
        self._check_end()
        self._check_penalties()
        self._check_token_rules()
        tops = self.num_top_logprobs
        _require(0 <= tops <= MAX_TOP_LOGPROBS, "num_top_logprobs", tops, f"in 0..{MAX_TOP_LOGPROBS}")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    def _check_law(self) -> None:
        _require(math.isfinite(self.temperature) and self.temperature >= 0, "temperature", self.temperature, ">= 0")
        _require(0 <= self.top_k <= MAX_TOP_K, "top_k", self.top_k, f"in 0..{MAX_TOP_K} (0 keeps every token)")
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "in (0, 1]")
        _require(0 <= self.min_p <= 1, "min_p", self.min_p, "in [0, 1]")

    def _check_end(self) -> None:
        _require(self.max_tokens >= 1, "max_tokens", self.max_tokens, ">= 1")
        _require(
            0 <= self.min_tokens <= self.max_tokens,
            "min_tokens",
            self.min_tokens,
            f"in 0..{self.max_tokens}, max_tokens",
        )
        _require(
            len(self.stop_strings) <= MAX_STOP_STRINGS, "stop", len(self.stop_strings), f"<= {MAX_STOP_STRINGS} strings"
        )
        ends = self.grammar is None or not self.ignore_eos
        _require(ends, "ignore_eos", self.ignore_eos, "False with a grammar, whose end the end token is")
        # An unbounded list would grow past what one message may hold, and take everyone's stream down with it.
        num_stop_ids = len(self.stop_token_ids)
        _require(num_stop_ids <= MAX_STOP_TOKEN_IDS, "stop_token_ids", num_stop_ids, f"<= {MAX_STOP_TOKEN_IDS} ids")
        for text in self.stop_strings:
            _require(
                0 < len(text) <= MAX_STOP_STRING_CHARS, "stop", text, f"1..{MAX_STOP_STRING_CHARS} characters long"
            )

    def _check_penalties(self) -> None:
        low, high = REPETITION_PENALTIES
        penalty = self.repetition_penalty
        in_range = low <= round(penalty, 6) <= high  # the wire has 32 bits of it, in which 0.01 is a little less
        _require(in_range, "repetition_penalty", penalty, f"in [{low}, {high}] (1 is off)")
        for name, value in (("presence_penalty", self.presence_penalty), ("frequency_penalty", self.frequency_penalty)):
            _require(abs(value) <= MAX_PENALTY, name, value, f"in [{-MAX_PENALTY}, {MAX_PENALTY}]")

    def _check_token_rules(self) -> None:
        """Ids must not be negative; the upper bound is checked where the model is known (vocabulary_check.py)."""
        _require(
            len(self.logit_bias) <= MAX_BIASED_TOKENS,
            "logit_bias",
            len(self.logit_bias),
            f"<= {MAX_BIASED_TOKENS} tokens",
        )
        biased = [token_id for token_id, _ in self.logit_bias]
        _require(len(set(biased)) == len(biased), "logit_bias", biased, "one value per token id")
        _require(min(biased, default=0) >= 0, "logit_bias", min(biased, default=0), "given for token ids >= 0")
        for token_id, bias in self.logit_bias:
            name = f"logit_bias of token {token_id}"
            _require(abs(bias) <= MAX_LOGIT_BIAS, name, bias, f"in [{-MAX_LOGIT_BIAS}, {MAX_LOGIT_BIAS}]")
        num_allowed = len(self.allowed_token_ids)
        _require(
            num_allowed <= MAX_ALLOWED_TOKEN_IDS, "allowed_token_ids", num_allowed, f"<= {MAX_ALLOWED_TOKEN_IDS} ids"
        )
        lowest = min(self.allowed_token_ids, default=0)
        _require(lowest >= 0, "allowed_token_ids", lowest, "ids >= 0")
        _require(len(self.bad_words) <= MAX_BAD_WORDS, "bad_words", len(self.bad_words), f"<= {MAX_BAD_WORDS} words")
        for word in self.bad_words:
            _require(
                0 < len(word) <= MAX_BAD_WORD_TOKENS, "bad_words", word, f"words of 1..{MAX_BAD_WORD_TOKENS} tokens"
            )
            _require(min(word) >= 0, "bad_words", word, "words of token ids >= 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceRequest:
    """Everything a verifier or drafter needs to start, or after a failure restart, one sequence."""

    sequence_id: int
    token_ids: tuple[int, ...]  # the committed prefix: prompt, then output so far
    num_prompt_tokens: int
    sampling: SamplingParams
    mode: VerificationMode = VerificationMode.RATIO
    seed: int = 0  # key of the RESIDUAL noise, 64 bits
    shares_seed: bool = False  # another request may have it: the caller gave it; stays in the gateway
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
    features: str = ""  # names the features that the verifier is to send and the drafter builds on; empty = none
    traceparent: str = ""  # W3C trace context of the request's span in the gateway; empty = not traced
    hand_over: int = 0  # what verifier and drafter of one process know each other's side of it by, 64 bits; 0 = neither

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
        raise InvalidRequest(f"{name} is {quoted(value)}; it must be {allowed}")
