"""What an evaluation asks, and of which proposers. Knows settings; loads nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.policy.tenants import DRAFT_MODEL, EAGLE3, MAX_DRAFT_TOKENS, NONE, PARD
from slipstream.proposers.ngram import NAME as NGRAM
from slipstream.request import SamplingParams, VerificationMode

WITH_MODEL: Final = (DRAFT_MODEL, PARD, EAGLE3)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What every prompt is asked for. Raises ValueError naming field and value."""

    num_draft_tokens: int = 5  # K
    max_tokens: int = 128
    temperature: float = 0.0
    mode: VerificationMode = VerificationMode.RATIO
    seed: int = 0  # of every prompt
    chat: bool = True  # through the chat template

    def __post_init__(self) -> None:
        if not 0 <= self.num_draft_tokens <= MAX_DRAFT_TOKENS:
            raise ValueError(f"num_draft_tokens is {self.num_draft_tokens}; it must be in 0..{MAX_DRAFT_TOKENS}")
        assert self.sampling  # validates the rest

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(temperature=self.temperature, max_tokens=self.max_tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A proposer to measure. Raises ValueError naming what is wrong or missing."""

    proposer: str
    folder: Path | None = None  # of its model

    def __post_init__(self) -> None:
        name = self.proposer
        if name not in (NONE, NGRAM, *WITH_MODEL):
            raise ValueError(f"proposer is {name!r}; it must be one of {', '.join((NONE, NGRAM, *WITH_MODEL))}")
        if name in WITH_MODEL and self.folder is None:
            raise ValueError(f"proposer {name} needs a model; write {name}=FOLDER")
        if name not in WITH_MODEL and self.folder is not None:
            raise ValueError(f"proposer {name} takes no model; leave out ={self.folder}")
        if self.folder is not None and not self.folder.exists():  # told before others were measured for minutes
            raise ValueError(f"proposer {name}: there is no model at {self.folder}")

    @classmethod
    def parse(cls, text: str) -> Candidate:
        """From NAME or NAME=FOLDER."""
        name, _, folder = text.partition("=")
        return cls(proposer=name, folder=Path(folder) if folder else None)

    @property
    def label(self) -> str:
        return self.proposer if self.folder is None else f"{self.proposer} {self.folder.name}"
