"""`slipstream generate`: one request from the command line. Knows how to print an answer; no gateway's insides."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from google.protobuf.json_format import MessageToDict
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from launcher.answer import Answer, Score, scores
from launcher.client import Client, Completion
from launcher.figures import Figures
from launcher.terminal import PROMPT, painted_whole, show
from slipstream.wire.v1 import exchange_pb2, generation_pb2


def run_generate(
    console: Console, client: Client, request: generation_pb2.GenerateRequest, timeout: float, *, as_json: bool
) -> None:
    messages = client.generate(request, timeout)
    if as_json:
        print(as_json_text(Answer.of(messages)))
        return
    answer = _show_samples(console, messages) if request.n > 1 else _show_one(console, messages)
    for table in score_tables(answer):
        console.print(table)
    console.print(summary(*answer.samples.values()), style="dim")


def _show_one(console: Console, messages: Iterable[generation_pb2.GenerateResponse]) -> Answer:
    answer = Answer()
    show(console, answer.noting(messages))
    return answer


def _show_samples(console: Console, messages: Iterable[generation_pb2.GenerateResponse]) -> Answer:
    """When all are whole: they come mixed."""
    answer = Answer.of(messages)
    if answer.prompt_text:
        console.print(answer.prompt_text, style=PROMPT, soft_wrap=True, markup=False, highlight=False)
    for index, completion in sorted(answer.samples.items()):
        console.rule(f"sample {index}, {finish_reason(completion)}", align="left", style="dim")
        console.print(painted_whole(completion), soft_wrap=True)
    return answer


def summary(*completions: Completion) -> str:
    figures, reasons = Figures(), []
    for completion in completions:
        figures.add(completion.last.usage, completion.last.timings)
        reasons.append(finish_reason(completion))
    return (
        f"{figures.num_tokens} tokens, {figures.num_accepted} of them drafted, in {figures.num_passes} passes; "
        f"{figures.tokens_per_second:.1f} tok/s; {', '.join(dict.fromkeys(reasons))}"
    )


def score_tables(answer: Answer) -> Iterable[Table]:
    """One of the prompt and one of each sample, where log probabilities were asked for."""
    if answer.prompt_logprobs.logprobs:
        yield _score_table("prompt", scores(answer.prompt_ids, answer.prompt_logprobs), ())
    for index, completion in sorted(answer.samples.items()):
        if completion.logprobs.logprobs:
            yield _score_table(f"sample {index}", scores(completion.token_ids, completion.logprobs), completion.texts)


def _score_table(title: str, told: Iterable[Score], texts: Iterable[str]) -> Table:
    table = Table(title=f"Log probabilities, {title}", box=SIMPLE_HEAD, title_justify="left")
    for name in ("token", "logprob"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("text", no_wrap=True)
    table.add_column("likeliest tokens")
    remaining = iter(texts)
    for score in told:
        logprob = "" if score.logprob is None else f"{score.logprob:.4f}"
        likeliest = "  ".join(f"{token_id} {value:.4f}" for token_id, value in score.top)
        table.add_row(str(score.token_id), logprob, ascii(next(remaining, ""))[1:-1], likeliest)
    return table


def as_json_text(answer: Answer) -> str:
    """One sample as it is, several in a list."""
    samples = [_sample_fields(completion) for _, completion in sorted(answer.samples.items())]
    told: dict[str, Any] = {"request_id": next(iter(answer.samples.values())).last.request_id}
    if answer.prompt_ids:
        told["prompt"] = {"token_ids": answer.prompt_ids, "text": answer.prompt_text}
        told["prompt"] |= _score_fields(answer.prompt_ids, answer.prompt_logprobs)
    told |= samples[0] if len(samples) == 1 else {"samples": samples}
    return json.dumps(told, ensure_ascii=False)


def _sample_fields(completion: Completion) -> dict[str, Any]:
    return {
        "text": completion.text,
        "token_ids": completion.token_ids,
        "drafted": completion.drafted,
        **_score_fields(completion.token_ids, completion.logprobs),
        "finish_reason": finish_reason(completion),
        "usage": _fields(completion.last.usage),
        "timings": _fields(completion.last.timings),
    }


def _score_fields(token_ids: list[int], told: generation_pb2.Logprobs) -> dict[str, Any]:
    return {"logprobs": [score.as_fields() for score in scores(token_ids, told)]} if told.logprobs else {}


def finish_reason(completion: Completion) -> str:
    name = exchange_pb2.FinishReason.Name(completion.last.finish_reason)
    return name.removeprefix("FINISH_REASON_").lower()


def _fields(message: generation_pb2.Usage | generation_pb2.Timings) -> dict[str, Any]:
    values = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return {name: int(value) if isinstance(value, str) else value for name, value in values.items()}
