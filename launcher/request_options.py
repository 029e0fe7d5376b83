"""What a command line may ask of an answer, and the request that says so. Knows the Generation API; no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.descriptor import FieldDescriptor

from slipstream.errors import quoted
from slipstream.wire.v1 import exchange_pb2
from slipstream.wire.v1 import generation_pb2 as pb

MAX_TOKEN_ID: Final = (1 << 31) - 1
_RANGES: Final = {FieldDescriptor.TYPE_UINT32: (1 << 32) - 1, FieldDescriptor.TYPE_UINT64: (1 << 64) - 1}  # from 0 on


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestOptions:
    """All of a request but its prompt. The gateway checks the values."""

    model: str = ""
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    max_tokens: int = 128
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    min_tokens: int = 0
    n: int = 1
    echo: bool = False
    num_top_logprobs: int | None = None  # None: no log probabilities at all
    prompt_logprobs: bool = False
    grammar: exchange_pb2.Grammar | None = None


def make_request(prompt: pb.Prompt, options: RequestOptions) -> pb.GenerateRequest:
    """Raises ValueError, naming it, for a number that the protocol cannot say, such as a negative top_k."""
    _check_ranges(options)
    return pb.GenerateRequest(
        prompt=prompt,
        model=options.model,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        max_tokens=options.max_tokens,
        seed=options.seed,
        stop=options.stop,
        ignore_eos=options.ignore_eos,
        repetition_penalty=options.repetition_penalty,
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
        logit_bias=dict(options.logit_bias),
        allowed_token_ids=options.allowed_token_ids,
        bad_words=[pb.TokenIds(ids=word) for word in options.bad_words],
        min_tokens=options.min_tokens,
        n=options.n,
        echo=options.echo,
        logprobs=options.num_top_logprobs is not None,
        num_top_logprobs=options.num_top_logprobs or 0,
        prompt_logprobs=options.prompt_logprobs,
        grammar=options.grammar,
    )


def _check_ranges(options: RequestOptions) -> None:
    for field in pb.GenerateRequest.DESCRIPTOR.fields:
        value, most = getattr(options, field.name, None), _RANGES.get(field.type)
        if most is not None and isinstance(value, int) and not 0 <= value <= most:
            raise ValueError(f"{field.name} is {quoted(value)}; it must be a whole number in 0..{most}")


def biases(texts: Sequence[str]) -> tuple[tuple[int, float], ...]:
    """From `token id=bias` each."""
    return tuple(_bias(text) for text in texts)


def words(texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """From token ids with commas between them each."""
    return tuple(_word(text) for text in texts)


def _bias(text: str) -> tuple[int, float]:
    token_id, _, bias = text.partition("=")
    try:
        return _token_id(token_id), float(bias)
    except ValueError:
        raise ValueError(f"logit bias {text!r} is no token id and bias; write it as 198=-5") from None


def _word(text: str) -> tuple[int, ...]:
    try:
        return tuple(_token_id(token_id) for token_id in text.split(","))
    except ValueError:
        raise ValueError(f"bad word {text!r} is no list of token ids; write it as 198,284") from None


def _token_id(text: str) -> int:
    token_id = int(text)
    if not 0 <= token_id <= MAX_TOKEN_ID:
        raise ValueError(f"token id {token_id} is out of range")
    return token_id
