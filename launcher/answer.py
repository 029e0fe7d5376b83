"""All samples of one answer and the prompt before them, as far as they have come. Knows the Generation API only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from launcher.client import Completion
from slipstream.wire.v1 import generation_pb2 as pb


@dataclass(slots=True)
class Answer:
    samples: dict[int, Completion] = field(default_factory=dict)
    prompt_ids: list[int] = field(default_factory=list)
    prompt_text: str = ""
    prompt_logprobs: pb.Logprobs = field(default_factory=pb.Logprobs)

    @classmethod
    def of(cls, messages: Iterable[pb.GenerateResponse]) -> Answer:
        answer = cls()
        for message in messages:
            answer.add(message)
        return answer

    def noting(self, messages: Iterable[pb.GenerateResponse]) -> Iterator[pb.GenerateResponse]:
        """The messages as they are, each added on its way."""
        for message in messages:
            self.add(message)
            yield message

    def add(self, message: pb.GenerateResponse) -> None:
        self.prompt_ids += message.prompt.token_ids
        self.prompt_text += message.prompt.text
        self.prompt_logprobs.MergeFrom(message.prompt.logprobs)
        self.samples.setdefault(message.index, Completion()).add(message)


@dataclass(frozen=True, slots=True)
class Score:
    """One token's."""

    token_id: int
    logprob: float | None  # None for a prompt's first token, which nothing precedes
    top: tuple[tuple[int, float], ...]  # likeliest tokens and theirs

    def as_fields(self) -> dict[str, Any]:
        top = [{"token_id": token_id, "logprob": logprob} for token_id, logprob in self.top]
        return {"token_id": self.token_id, "logprob": self.logprob, "top": top}


def scores(token_ids: list[int], logprobs: pb.Logprobs) -> Iterator[Score]:
    """One for each token; those before the first with a log probability have none. Nothing if no token has one."""
    num_scored = len(logprobs.logprobs)
    if not num_scored:
        return
    num_top = len(logprobs.top_token_ids) // num_scored
    num_unscored = len(token_ids) - num_scored
    yield from (Score(token_id, None, ()) for token_id in token_ids[:num_unscored])
    for number, (token_id, logprob) in enumerate(zip(token_ids[num_unscored:], logprobs.logprobs, strict=True)):
        row = slice(number * num_top, (number + 1) * num_top)
        yield Score(token_id, logprob, tuple(zip(logprobs.top_token_ids[row], logprobs.top_logprobs[row], strict=True)))
