"""Between SamplingParams and its protobuf message. Knows shapes; what a value may be is judged by the dataclass."""

from __future__ import annotations

import numpy as np

from slipstream.errors import InvalidRequest
from slipstream.request import Grammar, GrammarKind, SamplingParams
from slipstream.wire import arrays
from slipstream.wire.arrays import ids_from_wire, ids_to_wire
from slipstream.wire.v1 import exchange_pb2 as pb

_GRAMMAR_FIELDS = {kind.name.lower(): kind for kind in GrammarKind}


def sampling_to_wire(sampling: SamplingParams) -> pb.Sampling:
    biased = sampling.logit_bias
    return pb.Sampling(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        max_tokens=sampling.max_tokens,
        stop_token_ids=ids_to_wire(sampling.stop_token_ids),
        stop_strings=sampling.stop_strings,
        ignore_eos=sampling.ignore_eos,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias_ids=ids_to_wire([token_id for token_id, _ in biased]),
        logit_bias_values=np.asarray([bias for _, bias in biased], arrays.BIAS).tobytes(),
        allowed_token_ids=ids_to_wire(sampling.allowed_token_ids),
        bad_word_lengths=np.asarray([len(word) for word in sampling.bad_words], arrays.COUNT).tobytes(),
        bad_word_token_ids=ids_to_wire([token_id for word in sampling.bad_words for token_id in word]),
        min_tokens=sampling.min_tokens,
        logprobs=sampling.logprobs,
        num_top_logprobs=sampling.num_top_logprobs,
        prompt_logprobs=sampling.prompt_logprobs,
        grammar=None if sampling.grammar is None else grammar_to_wire(sampling.grammar),
    )


def sampling_from_wire(message: pb.Sampling) -> SamplingParams:
    return SamplingParams(
        temperature=message.temperature,
        top_k=message.top_k,
        top_p=message.top_p,
        min_p=message.min_p,
        max_tokens=message.max_tokens,
        stop_token_ids=ids_from_wire(message.stop_token_ids, "stop_token_ids"),
        stop_strings=tuple(message.stop_strings),
        ignore_eos=message.ignore_eos,
        repetition_penalty=message.repetition_penalty if message.HasField("repetition_penalty") else 1.0,
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
        logit_bias=_bias_from_wire(message),
        allowed_token_ids=ids_from_wire(message.allowed_token_ids, "allowed_token_ids"),
        bad_words=_bad_words_from_wire(message),
        min_tokens=message.min_tokens,
        logprobs=message.logprobs,
        num_top_logprobs=message.num_top_logprobs,
        prompt_logprobs=message.prompt_logprobs,
        grammar=grammar_from_wire(message.grammar) if message.HasField("grammar") else None,
    )


def grammar_to_wire(grammar: Grammar) -> pb.Grammar:
    return pb.Grammar(**{grammar.kind.name.lower(): grammar.text})


def grammar_from_wire(message: pb.Grammar) -> Grammar:
    field = message.WhichOneof("kind")
    if field is None:
        raise InvalidRequest(f"grammar is empty; give one of {', '.join(_GRAMMAR_FIELDS)}")
    return Grammar(_GRAMMAR_FIELDS[field], getattr(message, field))


def _bias_from_wire(message: pb.Sampling) -> tuple[tuple[int, float], ...]:
    token_ids = ids_from_wire(message.logit_bias_ids, "logit_bias_ids")
    biases = arrays.read(message.logit_bias_values, arrays.BIAS, "logit_bias_values").tolist()
    if len(token_ids) != len(biases):
        raise InvalidRequest(
            f"logit_bias_ids has {len(token_ids)} entries and logit_bias_values {len(biases)}; send one per id"
        )
    return tuple(zip(token_ids, biases, strict=True))


def _bad_words_from_wire(message: pb.Sampling) -> tuple[tuple[int, ...], ...]:
    lengths = arrays.read(message.bad_word_lengths, arrays.COUNT, "bad_word_lengths")
    token_ids = arrays.read(message.bad_word_token_ids, arrays.ID, "bad_word_token_ids")
    return arrays.words_from_wire(lengths, token_ids, "bad_words")
