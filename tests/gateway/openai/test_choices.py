"""Several completions told as one stream."""

from __future__ import annotations

import asyncio

import pytest

from gateway.completion import Completion
from gateway.openai.choices import Part, run_choices
from slipstream.errors import InvalidRequest
from tests.gateway.fakes import TENANT, TOKENIZER, FakeVerifier, eventually, running_gateway


@pytest.fixture
def verifier() -> FakeVerifier:
    return FakeVerifier([])


async def collect(gateway: object, *completions: Completion) -> list[Part]:
    return [part async for part in run_choices(gateway, TENANT, completions)]  # type: ignore[arg-type]


async def test_choices_are_numbered_by_prompt_and_sample(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        asking = asyncio.create_task(collect(gateway, *(Completion(prompt=(number, 1), n=2) for number in range(2))))
        await eventually(lambda: len(verifier.opens) == 4)
        for request in verifier.opens:
            name = f"{request.token_ids[0]}{request.sample_index}"
            verifier.finish(request.sequence_id, 2, TOKENIZER.encode(name))
        parts = await asyncio.wait_for(asking, 5)
    assert {part.choice: part.delta.text for part in parts} == {0: "00", 1: "01", 2: "10", 3: "11"}


async def test_one_that_is_refused_ends_all(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        with pytest.raises(InvalidRequest, match="top_p is 2"):
            await collect(gateway, Completion(prompt=(1,)), Completion(prompt=(1,), top_p=2.0))
        await eventually(lambda: len(verifier.closes) == len(verifier.opens))


async def test_leaving_the_iteration_frees_what_it_held(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        parts = run_choices(gateway, TENANT, [Completion(prompt=(1,)), Completion(prompt=(2,))])
        asking = asyncio.ensure_future(anext(parts))
        await eventually(lambda: len(verifier.opens) == 2)
        verifier.commit(verifier.opens[0].sequence_id, 1, [5])
        await asyncio.wait_for(asking, 5)
        await parts.aclose()
        await eventually(lambda: len(verifier.closes) == 2)


async def test_every_sample_begins_with_its_own_copy_of_the_prompt(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        asking = asyncio.create_task(collect(gateway, Completion(prompt=(5, 6), n=2, echo=True)))
        await eventually(lambda: len(verifier.opens) == 2)
        for request in verifier.opens:
            verifier.finish(request.sequence_id, 2, [7])
        parts = await asyncio.wait_for(asking, 5)
    prompts = {part.choice: part.delta.prompt for part in parts if part.delta.prompt is not None}
    assert [prompt.token_ids for prompt in prompts.values()] == [[5, 6], [5, 6]]
    assert prompts[0].token_ids is not prompts[1].token_ids
