"""Between generation.proto's messages and completion.py's dataclasses. Judges no meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from gateway.completion import Completion, Delta, Prompt, PromptPart
from gateway.request_size import check_message, check_prompt
from slipstream.errors import InvalidRequest
from slipstream.exchange import TokenLogprobs
from slipstream.text.chat_template import ChatMessage
from slipstream.wire.sampling import grammar_from_wire
from slipstream.wire.v1 import exchange_pb2, generation_pb2


def completion_from_wire(message: generation_pb2.GenerateRequest) -> Completion:
    check_message(message)
    return Completion(
        model=message.model,
        prompt=prompt_from_wire(message.prompt),
        request_id=message.request_id,
        temperature=message.temperature if message.HasField("temperature") else 1.0,
        top_k=message.top_k,
        top_p=message.top_p if message.HasField("top_p") else 1.0,
        min_p=message.min_p,
        max_tokens=message.max_tokens if message.HasField("max_tokens") else None,
        seed=message.seed if message.HasField("seed") else None,
        stop=tuple(message.stop),
        stop_token_ids=tuple(message.stop_token_ids),
        ignore_eos=message.ignore_eos,
        include_stop=message.include_stop,
        repetition_penalty=message.repetition_penalty if message.HasField("repetition_penalty") else 1.0,
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
        logit_bias=tuple(sorted(message.logit_bias.items())),
        allowed_token_ids=tuple(message.allowed_token_ids),
        bad_words=tuple(tuple(word.ids) for word in message.bad_words),
        min_tokens=message.min_tokens,
        n=message.n if message.HasField("n") else 1,
        echo=message.echo,
        logprobs=message.logprobs,
        num_top_logprobs=message.num_top_logprobs,
        prompt_logprobs=message.prompt_logprobs,
        grammar=grammar_from_wire(message.grammar) if message.HasField("grammar") else None,
    )


def prompt_from_wire(message: generation_pb2.Prompt) -> Prompt:
    check_prompt(message)
    match message.WhichOneof("kind"):
        case "text":
            return message.text
        case "chat":
            return tuple(ChatMessage(m.role, m.content) for m in message.chat.messages)
        case "token_ids":
            return tuple(message.token_ids.ids)
        case _:
            raise InvalidRequest("prompt is missing; give text, chat messages or token ids")


def samples_to_wire(request_id: str, samples: Sequence[Delta]) -> generation_pb2.GenerateResponse:
    """All samples, whole, in one message."""
    first, *others = (delta_to_wire(request_id, sample) for sample in samples)
    first.samples.extend(others)
    return first


def delta_to_wire(request_id: str, delta: Delta) -> generation_pb2.GenerateResponse:
    return generation_pb2.GenerateResponse(
        request_id=request_id,
        text=delta.text,
        token_ids=delta.token_ids,
        drafted=delta.drafted,
        text_lengths=delta.text_lengths,
        finish_reason=exchange_pb2.FinishReason.ValueType(delta.finish_reason),
        usage=None if delta.usage is None else generation_pb2.Usage(**asdict(delta.usage)),
        timings=None if delta.timings is None else generation_pb2.Timings(**asdict(delta.timings)),
        index=delta.index,
        logprobs=_logprobs_to_wire(delta.logprobs),
        prompt=None if delta.prompt is None else _prompt_to_wire(delta.prompt),
    )


def _prompt_to_wire(part: PromptPart) -> generation_pb2.PromptEcho:
    return generation_pb2.PromptEcho(
        token_ids=part.token_ids, text=part.text, logprobs=_logprobs_to_wire(part.logprobs)
    )


def _logprobs_to_wire(told: TokenLogprobs | None) -> generation_pb2.Logprobs | None:
    if told is None:
        return None
    return generation_pb2.Logprobs(
        logprobs=told.logprobs.tolist(),
        top_token_ids=told.top_token_ids.ravel().tolist(),
        top_logprobs=told.top_logprobs.ravel().tolist(),
    )
