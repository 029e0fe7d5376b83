"""What goes into the verifier and what comes out, as plain data. Knows streams by number; knows no network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from slipstream.exchange import CommitBatch, DraftBatch, Features, FeaturesWanted, SequenceFailure, Update
from slipstream.request import SequenceRequest


@dataclass(frozen=True, slots=True)
class Close:
    sequence_id: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """A message about a sequence that could not even be read; ends that sequence like any other error of its own."""

    failure: SequenceFailure


@dataclass(frozen=True, slots=True)
class GrammarCompiled:
    """The grammar of a sequence that was to be opened is compiled, or cannot be."""

    sequence_id: int


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """Nobody listens any more: everything opened on the stream is to be freed."""


Message: TypeAlias = (
    SequenceRequest | Update | Close | DraftBatch | FeaturesWanted | Refuse | GrammarCompiled | StreamEnded
)
Event: TypeAlias = tuple[int, Message]  # the stream, and what came on it


@dataclass(frozen=True, slots=True)
class StreamOutput:
    """What one step has to say on one stream."""

    stream: int
    commits: CommitBatch  # may be empty
    failures: tuple[SequenceFailure, ...]
    features: tuple[Features, ...] = ()  # of tokens that are final before the commits here
