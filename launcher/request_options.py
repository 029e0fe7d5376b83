"""What a command line may ask of an answer, and the request that says so. Knows the Generation API; no terminal."""

from __future__ import annotations

from dataclasses import dataclass

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
    )
