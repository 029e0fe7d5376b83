"""Decides whether a request can be served at all. Knows the model's limits; knows nothing of load or other requests."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.errors import InvalidRequest, VocabularyMismatch
from slipstream.request import SequenceRequest
from slipstream.text.tokenizer import Tokenizer
from slipstream.vocabulary_check import check_ids, check_sampling_ids


@dataclass(frozen=True, kw_only=True)
class Served:
    """The model's side of every request."""

    tokenizer: Tokenizer
    vocab_size: int  # rows of the logits
    max_model_len: int  # most tokens of one sequence, output included
    eos_token_ids: tuple[int, ...]
    features: str = ""  # names those that can be sent, empty = none

    def max_len(self, request: SequenceRequest) -> int:
        """Most tokens that this sequence may come to: context or max_tokens, whichever is less."""
        return min(self.max_model_len, request.num_prompt_tokens + request.sampling.max_tokens)

    def makes_features_for(self, request: SequenceRequest) -> bool:
        """Not for another head, whose drafter then drafts nothing."""
        return bool(self.features) and request.features == self.features


def validate(request: SequenceRequest, served: Served) -> None:
    """Raises what is wrong with the request, naming thing, value and what to do."""
    check_ids("token_ids", request.token_ids, served.vocab_size)
    check_sampling_ids(request.sampling, served.vocab_size)
    num_tokens, num_output, max_tokens = len(request.token_ids), request.num_output_tokens, request.sampling.max_tokens
    if num_tokens >= served.max_model_len:
        raise InvalidRequest(
            f"the prompt has {num_tokens} tokens and the context {served.max_model_len}, which must hold at least one "
            "more; shorten the prompt"
        )
    if num_output >= max_tokens:
        raise InvalidRequest(
            f"{num_output} output tokens are committed and max_tokens is {max_tokens}; nothing is left"
        )
    ours = served.tokenizer.vocabulary_hash
    if request.vocabulary_hash not in ("", ours):
        raise VocabularyMismatch(
            f"vocabulary_hash is {request.vocabulary_hash}, this model's is {ours}; fetch the tokenizer again"
        )
