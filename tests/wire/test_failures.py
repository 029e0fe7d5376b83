"""Failures keep their kind on the wire."""

from __future__ import annotations

from slipstream.errors import VocabularyMismatch
from slipstream.exchange import SequenceFailure
from slipstream.wire.failures import failure_from_wire, failure_to_wire


def test_a_failure_keeps_its_kind_and_words() -> None:
    failure = SequenceFailure(6, VocabularyMismatch("draft has 10 entries, target 12"))
    back = failure_from_wire(failure_to_wire(failure))
    assert back.sequence_id == 6
    assert isinstance(back.error, VocabularyMismatch)
    assert str(back.error) == "draft has 10 entries, target 12"
