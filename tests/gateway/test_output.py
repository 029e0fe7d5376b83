"""What a client gets of commits: the prompt first, each token with what became of it, counts and times at the end."""

from __future__ import annotations

import pytest

from gateway.client_stream import ClientStream, TooSlow
from gateway.completion import Delta
from gateway.completion_text import CompletionText
from gateway.ledger import Ledger
from gateway.metrics import GatewayMetrics
from gateway.output import Output
from gateway.prompt_echo import PromptEcho
from slipstream.errors import Unavailable
from slipstream.exchange import Commit, StepReport
from slipstream.request import FinishReason
from tests.gateway.fakes import TOKENIZER

PROMPT, TEXT = TOKENIZER.encode("ab"), TOKENIZER.encode("cde")


class Setup:
    def __init__(self, *, echo: bool = False, max_unsent_tokens: int = 100) -> None:
        self.charged: list[int] = []
        self.stream = ClientStream(max_unsent_tokens)
        self.output = Output(
            CompletionText(TOKENIZER, (), include_stop=False),
            Ledger(GatewayMetrics(), "t", received=0.0, prompt_tokens=2, num_draft_tokens=3, seed=1),
            self.stream,
            self.charged.append,
            PromptEcho(PROMPT, TOKENIZER, echo=echo),
        )

    def publish(self, *token_ids: int, num_accepted: int = 0, finish: FinishReason = FinishReason.NONE) -> None:
        commit = Commit(1, 2, token_ids, num_accepted, num_draft_tokens=num_accepted, finish_reason=finish)
        self.output.publish(commit, StepReport(step_us=5))

    async def deltas(self) -> list[Delta]:
        return [delta async for delta in self.stream]


async def test_accepted_draft_tokens_are_marked_and_the_last_delta_has_counts_and_times() -> None:
    setup = Setup()
    setup.publish(*TEXT[:2], num_accepted=1)
    setup.publish(TEXT[2], finish=FinishReason.LENGTH)
    (delta,) = await setup.deltas()
    assert (delta.text, delta.drafted, delta.text_lengths) == ("cde", [True, False, False], [1, 1, 1])
    assert delta.usage is not None
    assert delta.timings is not None
    assert (delta.usage.completion_tokens, delta.usage.accepted_tokens, delta.timings.verify_us) == (3, 1, 10)


def test_every_committed_token_is_charged() -> None:
    setup = Setup()
    setup.publish(*TEXT)
    setup.publish(TEXT[0])
    assert setup.charged == [3, 1]


async def test_the_prompt_comes_before_any_output() -> None:
    setup = Setup(echo=True)
    assert setup.output.awaits_prompt
    setup.output.begin()
    assert not setup.output.awaits_prompt
    setup.publish(*TEXT, finish=FinishReason.LENGTH)
    first, second = await setup.deltas()
    assert first.prompt is not None
    assert (first.prompt.text, second.text) == ("ab", "cde")


def test_a_client_that_does_not_read_is_too_slow() -> None:
    setup = Setup(max_unsent_tokens=2)
    setup.publish(*TEXT[:2])
    with pytest.raises(TooSlow, match="2 tokens wait"):
        setup.publish(TEXT[2])


async def test_an_error_ends_the_stream_after_what_is_pending() -> None:
    setup = Setup()
    setup.publish(*TEXT)
    setup.output.fail(Unavailable("no verifier"))
    deltas = aiter(setup.stream)
    assert (await anext(deltas)).text == "cde"
    with pytest.raises(Unavailable):
        await anext(deltas)
