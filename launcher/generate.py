"""`slipstream generate`: one request from the command line. Knows how to print an answer; no gateway's insides."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.json_format import MessageToDict
from rich.console import Console

from launcher.client import Client, Completion
from launcher.figures import Figures
from launcher.terminal import show
from slipstream.wire.v1 import exchange_pb2, generation_pb2


def run_generate(
    console: Console, client: Client, request: generation_pb2.GenerateRequest, timeout: float, *, as_json: bool
) -> None:
    messages = client.generate(request, timeout)
    if as_json:
        completion = Completion()
        for message in messages:
            completion.add(message)
        print(as_json_text(completion))
    else:
        console.print(summary(show(console, messages)), style="dim")


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


def _fields(message: generation_pb2.Usage | generation_pb2.Timings) -> dict[str, Any]:
    values = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return {name: int(value) if isinstance(value, str) else value for name, value in values.items()}
