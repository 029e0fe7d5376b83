"""Requests that hold more than anybody can need are refused before they are read into objects."""

from __future__ import annotations

import json

import pytest

from gateway import request_size
from gateway.json_fields import JsonFields, parse_json
from gateway.messages import completion_from_wire, prompt_from_wire
from gateway.request_size import MAX_MESSAGES, MAX_PROMPT_TOKEN_IDS, check_json
from slipstream.errors import InvalidRequest
from slipstream.wire.v1 import generation_pb2 as pb

HI = pb.Prompt(text="hi")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (pb.GenerateRequest(prompt=HI, stop=["a"] * 17), "stop is 17; it must be <= 16 strings"),
        (pb.GenerateRequest(prompt=HI, stop_token_ids=[1] * 1025), "stop_token_ids is 1025; it must be <= 1024 ids"),
        (pb.GenerateRequest(prompt=HI, bad_words=[pb.TokenIds()] * 257), "bad_words is 257; it must be <= 256 words"),
        (pb.GenerateRequest(prompt=HI, bad_words=[pb.TokenIds(ids=[1] * 33)]), "bad_words is 33; .* 32 tokens"),
        (pb.GenerateRequest(prompt=HI, logit_bias=dict.fromkeys(range(1025), 1.0)), "logit_bias is 1025; .* 1024"),
        (pb.GenerateRequest(prompt=HI, allowed_token_ids=[1] * 65537), "allowed_token_ids is 65537; .* 65536 ids"),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else None,
)
def test_lists_of_a_message_are_counted_before_they_are_read(message: pb.GenerateRequest, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        completion_from_wire(message)


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        (pb.Prompt(token_ids=pb.TokenIds(ids=bytes(MAX_PROMPT_TOKEN_IDS + 1))), "prompt.token_ids is 1048577"),
        (pb.Prompt(chat=pb.ChatMessages.FromString(b"\x0a\x00" * (MAX_MESSAGES + 1))), "prompt.chat is 16385"),
    ],
    ids=["ids", "messages"],
)
def test_so_is_a_prompt(prompt: pb.Prompt, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        prompt_from_wire(prompt)


def test_what_stands_in_texts_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_size, "MAX_JSON_VALUES", 3)
    monkeypatch.setattr(request_size, "MAX_JSON_FIELDS", 1)
    for text in ("a,b:c,d:e,f", '"",,,,::', "\\,,,,\\", '\\"', "\\\\", ",,,,\n\\\\\\"):
        check_json(json.dumps({text: [1, 2, text]}).encode(), "the body")
    with pytest.raises(InvalidRequest, match="the body holds 4; it must be <= 3 values"):
        check_json(json.dumps(["a,\\", 1, 2, 3, '"']).encode(), "the body")
    with pytest.raises(InvalidRequest, match="the body holds 2; it must be <= 1 fields"):
        check_json(b'{"a:\\\\":{"\\":":1}}', "the body")


@pytest.mark.parametrize("body", [b"[" + b"0," * 1_200_000 + b"0]", "[" + "{},".replace("}", '"":1}') * 70_000 + "0]"])
def test_every_document_from_a_caller_is_counted(body: bytes | str) -> None:
    with pytest.raises(InvalidRequest, match="the body holds"):
        parse_json(JsonFields, body)
