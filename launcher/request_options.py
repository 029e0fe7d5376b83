"""What a command line may ask of an answer, and the request that says so. Knows the Generation API; no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.wire.v1 import exchange_pb2
from slipstream.wire.v1 import generation_pb2 as pb


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
    """Raises ValueError for a number that the protocol cannot say, such as a negative top_k."""
    return pb.GenerateRequest(
        model=options.model,
        prompt=prompt,
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


def biases(texts: Sequence[str]) -> tuple[tuple[int, float], ...]:
    """From `token id=bias` each."""
    return tuple(_bias(text) for text in texts)


def words(texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """From token ids with commas between them each."""
    return tuple(_word(text) for text in texts)


def _bias(text: str) -> tuple[int, float]:
    token_id, _, bias = text.partition("=")
    try:
        return int(token_id), float(bias)
    except ValueError:
        raise ValueError(f"logit bias {text!r} is no token id and bias; write it as 198=-5") from None


def _word(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(token_id) for token_id in text.split(","))
    except ValueError:
        raise ValueError(f"bad word {text!r} is no list of token ids; write it as 198,284") from None
