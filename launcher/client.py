"""Calls a gateway and reads its answer piece by piece. Knows the Generation API; knows no terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import grpc

from slipstream.errors import Unavailable
from slipstream.wire import status
from slipstream.wire.channel import open_blocking_channel
from slipstream.wire.tls import ClientTls
from slipstream.wire.v1 import generation_pb2 as pb
from slipstream.wire.v1 import generation_pb2_grpc as rpc

_NOBODY_THERE: Final = ("failed to connect", "errors resolving")


@dataclass(slots=True)
class Completion:
    """One answer as far as it has come; usage and timings are there when it is whole."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    drafted: list[bool] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # of each token; the end's rest is the last one's
    logprobs: pb.Logprobs = field(default_factory=pb.Logprobs)
    last: pb.GenerateResponse = field(default_factory=pb.GenerateResponse)

    def add(self, message: pb.GenerateResponse) -> None:
        self.text += message.text
        self.token_ids += message.token_ids
        self.drafted += message.drafted
        self.logprobs.MergeFrom(message.logprobs)
        self._add_texts([text for text, _ in pieces(message)], len(message.token_ids))
        self.last = message

    def _add_texts(self, texts: list[str], num_tokens: int) -> None:
        self.texts += texts[:num_tokens]
        if self.texts:
            self.texts[-1] += "".join(texts[num_tokens:])


class Client:
    """One connection to a gateway. Failed calls raise the exceptions of slipstream.errors."""

    def __init__(self, channel: grpc.Channel, target: str, api_key: str = "") -> None:
        self._target = target
        self._stub = rpc.GenerationStub(channel)
        self._metadata = authorization(api_key)

    def generate(self, request: pb.GenerateRequest, deadline_seconds: float) -> Iterator[pb.GenerateResponse]:
        """Leaving the iteration early cancels the call."""
        call = self._stub.Generate(request, timeout=deadline_seconds, metadata=self._metadata)
        try:
            yield from call
        except grpc.RpcError as error:
            raise in_our_words(error, self._target) from error
        finally:
            call.cancel()


def authorization(api_key: str) -> tuple[tuple[str, str], ...]:
    """The metadata that shows a key. Raises ValueError, not naming it, if none can be such."""
    if not (api_key.isascii() and (api_key.isprintable() or not api_key)):
        raise ValueError("the API key holds what no key can; it must be printable ASCII characters")
    return (("authorization", f"Bearer {api_key}"),) if api_key else ()


def in_our_words(error: grpc.RpcError, target: str) -> Exception:
    """What a failed call to the gateway at `target` means; what gRPC says of a connection helps nobody."""
    text = error.details() or error.code().name
    if error.code() is grpc.StatusCode.UNAVAILABLE and text.startswith(_NOBODY_THERE):
        return Unavailable(
            f"no gateway answers at {target}; `slipstream up` starts one, --target names another, --tls-ca is for one "
            "that speaks TLS only"
        )
    return status.from_status(status.number(error.code()), text)


@contextmanager
def connect(target: str, api_key: str = "", tls: ClientTls | None = None) -> Iterator[Client]:
    with open_blocking_channel(target, tls) as channel:
        yield Client(channel, target, api_key)


def chat_prompt(text: str, system: str = "") -> pb.Prompt:
    messages = [pb.ChatMessage(role="system", content=system)] if system else []
    messages.append(pb.ChatMessage(role="user", content=text))
    return pb.Prompt(chat=pb.ChatMessages(messages=messages))


def pieces(message: pb.GenerateResponse) -> Iterator[tuple[str, bool]]:
    """A message's text cut at its tokens, each with whether it was drafted; what follows the last token was not."""
    start = 0
    for length, drafted in zip(message.text_lengths, message.drafted, strict=False):
        yield message.text[start : start + length], drafted
        start += length
    if start < len(message.text):
        yield message.text[start:], False
