"""One completion in the gateway's words: what is asked and what comes back. Knows no protobuf, no peer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slipstream.exchange import TokenLogprobs
from slipstream.request import FinishReason, Grammar
from slipstream.text.chat_template import ChatMessage

Prompt = str | tuple[ChatMessage, ...] | tuple[int, ...]  # a plain text, a chat, or token ids; () is an empty prompt


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """What a caller asks for. None: the caller left it to the gateway."""

    prompt: Prompt
    model: str = ""  # empty: the only one served
    request_id: str = ""  # empty: made by the gateway
    traceparent: str = ""  # the caller's W3C trace context; empty: none
    tools: tuple[Mapping[str, Any], ...] = ()  # offered to the model by its chat template
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    include_stop: bool = False
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    min_tokens: int = 0
    n: int = 1
    echo: bool = False
    logprobs: bool = False
    num_top_logprobs: int = 0
    prompt_logprobs: bool = False
    grammar: Grammar | None = None


@dataclass(kw_only=True, slots=True)
class Usage:
    """Counted over a request's life; see generation.proto."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    num_draft_tokens: int = 0
    accepted_tokens: int = 0
    num_drafts: int = 0
    num_passes: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    submitted_per_position: list[int] = field(default_factory=list)
    seed: int = 0


@dataclass(kw_only=True, slots=True)
class Timings:
    """Microseconds; see generation.proto."""

    queue_us: int = 0
    first_token_us: int = 0
    total_us: int = 0
    verify_us: int = 0
    wait_us: int = 0
    draft_us: int = 0
    wire_us: int = 0


@dataclass(kw_only=True, slots=True)
class PromptPart:
    """The prompt, or the part of it that follows the one before."""

    token_ids: list[int]
    text: str = ""  # with `echo`
    logprobs: TokenLogprobs | None = None  # of token_ids but the prompt's first, which nothing precedes

    def append(self, later: PromptPart) -> None:
        self.token_ids += later.token_ids
        self.text += later.text
        self.logprobs = joined(self.logprobs, later.logprobs)


@dataclass(kw_only=True, slots=True)
class Delta:
    """What became final since the last one. The last has a finish reason, usage and timings."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    drafted: list[bool] = field(default_factory=list)
    text_lengths: list[int] = field(default_factory=list)  # per token: characters of `text` that it made certain
    finish_reason: FinishReason = FinishReason.NONE
    usage: Usage | None = None
    timings: Timings | None = None
    index: int = 0  # which of the n samples
    logprobs: TokenLogprobs | None = None  # of token_ids, if asked for
    prompt: PromptPart | None = None  # before any output, if asked for

    def append(self, later: Delta) -> None:
        """Takes in the delta that follows, so that both go in one message."""
        self.text += later.text
        self.token_ids += later.token_ids
        self.drafted += later.drafted
        self.text_lengths += later.text_lengths
        self.finish_reason, self.usage, self.timings = later.finish_reason, later.usage, later.timings
        self.logprobs = joined(self.logprobs, later.logprobs)
        if self.prompt is not None and later.prompt is not None:
            self.prompt.append(later.prompt)
        else:
            self.prompt = self.prompt or later.prompt


def joined(first: TokenLogprobs | None, later: TokenLogprobs | None) -> TokenLogprobs | None:
    """Of what follows one another; nothing where nothing was asked for."""
    if first is None or later is None:
        return later if first is None else first
    return first + later
