"""The end of one sequence by an error, as a message and back. Knows the table of statuses; no stream."""

from __future__ import annotations

from slipstream.exchange import SequenceFailure
from slipstream.wire import status
from slipstream.wire.v1 import exchange_pb2 as pb


def failure_to_wire(failure: SequenceFailure) -> pb.SequenceError:
    code, text = status.to_status(failure.error)
    return pb.SequenceError(sequence_id=failure.sequence_id, code=status.number(code), message=text)


def failure_from_wire(message: pb.SequenceError) -> SequenceFailure:
    return SequenceFailure(message.sequence_id, status.from_status(message.code, message.message))
