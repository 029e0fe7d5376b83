"""Streams against a scripted gateway: they ask until the time is up, and what was cut short still counts."""

from __future__ import annotations

from bench.clients import ask_for
from launcher.request_options import RequestOptions
from tests.launcher.scripted_gateway import serving

OPTIONS = RequestOptions(max_tokens=7)


async def test_streams_ask_one_prompt_after_another_until_the_time_is_up() -> None:
    with serving() as (gateway, address):
        felt = await ask_for(address, "key", ["one", "two"], OPTIONS, streams=2, seconds=1.0)
    assert felt.num_answers > 2
    assert felt.num_tokens >= 3 * felt.num_answers
    assert felt.figures.num_tokens == 3 * felt.num_answers
    assert len(felt.output_token_seconds) >= felt.num_answers
    assert felt.seconds >= 1.0
    assert {request.max_tokens for request in gateway.requests} == {7}


async def test_an_answer_that_the_end_cuts_short_counts_with_its_tokens() -> None:
    with serving() as (_, address):
        felt = await ask_for(address, "key", ["endless"], OPTIONS, streams=1, seconds=1.0)
    assert (felt.num_answers, felt.num_tokens, len(felt.first_token_seconds)) == (0, 1, 1)


async def test_a_refusal_ends_its_stream_and_is_told() -> None:
    with serving() as (_, address):
        felt = await ask_for(address, "key", ["refuse"], OPTIONS, streams=2, seconds=5.0)
    assert felt.failures == {"RESOURCE_EXHAUSTED: no room now": 2}
    assert felt.seconds < 5.0
