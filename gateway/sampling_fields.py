"""Sampling settings as JSON callers name them. Knows names and types; ranges are slipstream/request.py's matter."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from gateway.json_fields import JsonFields
from slipstream.request import Grammar, GrammarKind

_RENAMED: Final = {"include_stop_str_in_output": "include_stop"}
_SEED_BITS: Final = 64


def _as_list(value: Any) -> Any:
    """One text is a list of one."""
    return [value] if isinstance(value, str) else value


class GrammarFields(JsonFields):
    kind: Literal["json_schema", "regex", "ebnf", "choice"]
    text: str

    def grammar(self) -> Grammar:
        return Grammar(GrammarKind[self.kind.upper()], self.text)


class SamplingFields(JsonFields):
    """null leaves a setting to the gateway, as leaving it out does."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << _SEED_BITS)] | None = None
    stop: Annotated[list[str] | None, BeforeValidator(_as_list)] = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[list[int]] | None = None
    grammar: GrammarFields | None = None
    n: Annotated[int, Field(ge=1)] | None = None

    def sampling(self) -> dict[str, Any]:
        """The settings that were given, as `Completion` names them."""
        given = {name: getattr(self, name) for name in SamplingFields.model_fields}
        return {_RENAMED.get(name, name): _plain(name, value) for name, value in given.items() if value is not None}


def _plain(name: str, value: Any) -> Any:
    match name:
        case "seed":
            return value % (1 << _SEED_BITS)  # a negative one names a seed, too
        case "logit_bias":
            return tuple(sorted(value.items()))
        case "bad_words":
            return tuple(tuple(word) for word in value)
        case "grammar":
            return value.grammar()
        case _:
            return tuple(value) if isinstance(value, list) else value
