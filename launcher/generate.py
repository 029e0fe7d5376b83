"""`slipstream generate`: one request from the command line. Knows options and how to print; no gateway's insides."""

from __future__ import annotations

import json
from dataclasses import dataclass

from google.protobuf.json_format import MessageToDict
from rich.console import Console

from launcher.client import Client, Completion, chat_prompt, connect
from launcher.figures import Figures
from launcher.terminal import show
from slipstream.wire.v1 import exchange_pb2, generation_pb2


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateOptions:
    """What the command line asks for. The gateway checks the values."""

    prompt: str
    model: str = ""
    chat: bool = False
    system: str = ""
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    max_tokens: int = 128
    seed: int | None = None
    stop: tuple[str, ...] = ()


def run_generate(
    console: Console, options: GenerateOptions, target: str, api_key: str, timeout: float, *, as_json: bool
) -> None:
    with connect(target, api_key) as client:
        if as_json:
            print(as_json_text(collect(client, options, timeout)))
        else:
            completion = show(console, client.generate(make_request(options), timeout))
            console.print(summary(completion), style="dim")


def collect(client: Client, options: GenerateOptions, timeout: float) -> Completion:
    completion = Completion()
    for message in client.generate(make_request(options), timeout):
        completion.add(message)
    return completion


def make_request(options: GenerateOptions) -> generation_pb2.GenerateRequest:
    """Raises ValueError for a number that the protocol cannot say, such as a negative top_k."""
    plain = generation_pb2.Prompt(text=options.prompt)
    return generation_pb2.GenerateRequest(
        model=options.model,
        prompt=chat_prompt(options.prompt, options.system) if options.chat else plain,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        max_tokens=options.max_tokens,
        seed=options.seed,
        stop=options.stop,
    )


def summary(completion: Completion) -> str:
    figures = Figures()
    figures.add(completion.last.usage, completion.last.timings)
    return (
        f"{figures.num_tokens} tokens, {figures.num_accepted} of them drafted, in {figures.num_passes} passes; "
        f"{figures.tokens_per_second:.1f} tok/s; {finish_reason(completion)}"
    )


def as_json_text(completion: Completion) -> str:
    last = completion.last
    answer = {
        "request_id": last.request_id,
        "text": completion.text,
        "token_ids": completion.token_ids,
        "drafted": completion.drafted,
        "finish_reason": finish_reason(completion),
        "usage": _fields(last.usage),
        "timings": _fields(last.timings),
    }
    return json.dumps(answer, ensure_ascii=False)


def finish_reason(completion: Completion) -> str:
    name = exchange_pb2.FinishReason.Name(completion.last.finish_reason)
    return name.removeprefix("FINISH_REASON_").lower()


def _fields(message: generation_pb2.Usage | generation_pb2.Timings) -> dict[str, object]:
    values = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return {name: int(value) if isinstance(value, str) else value for name, value in values.items()}
