"""What services are told of a way of drafting."""

from __future__ import annotations

from gateway.control.drafting import Drafting
from slipstream.exchange import Update
from slipstream.request import SamplingParams, SequenceRequest


def test_running_and_newly_opened_sequences_get_the_same_bounds() -> None:
    drafting = Drafting(("ngram",), 3, 2, 1500)
    request = SequenceRequest(sequence_id=7, token_ids=(1,), num_prompt_tokens=1, sampling=SamplingParams())
    assert drafting.update(7) == Update(7, 3, 2, 1500)
    opened = drafting.applied_to(request)
    assert (opened.num_draft_tokens, opened.fan_out, opened.max_wait_us) == (3, 2, 1500)
