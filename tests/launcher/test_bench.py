"""The bench against a scripted gateway: how much it asks, how much at once, and what a failure costs."""

from __future__ import annotations

import pytest

from launcher.bench import BenchOptions, run_bench
from launcher.prompt_file import Prompt
from launcher.request_options import RequestOptions
from slipstream.errors import Unavailable
from tests.launcher.scripted_gateway import serving

PROMPTS = [Prompt(text="one"), Prompt(text="two")]


def test_every_stream_asks_its_number_and_prompts_go_round() -> None:
    with serving() as (gateway, address):
        options = BenchOptions(target=address, streams=3, requests=4, request=RequestOptions(max_tokens=7))
        report = run_bench(PROMPTS, options)
    asked = [request.prompt.chat.messages[0].content for request in gateway.requests]
    assert sorted(asked) == ["one"] * 6 + ["two"] * 6
    assert {request.max_tokens for request in gateway.requests} == {7}
    assert gateway.most_at_once <= 3
    values = report.as_dict()
    assert (values["requests"], values["output_tokens"], values["acceptance_length"]) == (12, 36, 2.0)
    assert values["seconds"] > 0
    assert 0 < values["ttft_ms"]["p50"] <= values["ttft_ms"]["p99"]


def test_a_prompt_goes_without_template_if_so_asked() -> None:
    with serving() as (gateway, address):
        run_bench(PROMPTS, BenchOptions(target=address, chat=False))
    assert gateway.requests[0].prompt.text == "one"


def test_a_request_that_fails_is_counted_and_the_others_go_on() -> None:
    with serving() as (_, address):
        report = run_bench([Prompt(text="refuse"), *PROMPTS], BenchOptions(target=address, streams=2, requests=3))
    assert report.failures == {"RESOURCE_EXHAUSTED: no room now": 2}
    assert len(report.samples) == 4


def test_a_gateway_that_is_not_there_is_told_at_once() -> None:
    with pytest.raises(Unavailable):
        run_bench(PROMPTS, BenchOptions(target="127.0.0.1:1", timeout=5))


@pytest.mark.parametrize("fields", [{"streams": 0}, {"requests": -1}])
def test_a_bad_number_is_named(fields: dict[str, int]) -> None:
    (name,) = fields
    with pytest.raises(ValueError, match=f"{name} is "):
        BenchOptions(target="h:1", **fields)  # type: ignore[arg-type]
