"""What the last step brought and nobody has been told yet. Knows who hears of it when; makes nothing final."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from verifier_svc.active_sequence import ActiveSequence
from verifier_svc.beside import TakeCommits
from verifier_svc.meanwhile import Send
from verifier_svc.messages import StreamOutput
from verifier_svc.outcome import PassOutcome, StepOutcome


class HeldOutputs:
    """Gateways hear through `send`, once the next step is launched; a drafter in this process through `hand_over`."""

    def __init__(self, outputs_of: Callable[[StepOutcome], list[StreamOutput] | None]) -> None:
        self.send: Send | None = None  # None: nothing is held for gateways, the step returns its outputs
        self.hand_over: TakeCommits | None = None
        self._outputs_of = outputs_of
        self._unsent: StepOutcome | None = None  # of the last step, until the next one is launched
        self._waits = False  # it is held while drafts are waited for, too
        self._unheard: Sequence[PassOutcome] = ()  # of the last step, by a drafter in this process

    @property
    def is_due(self) -> bool:
        """Whether something must go out even if no step can start."""
        return self._unsent is not None and not self._waits

    def note_settled(self, settled: Sequence[PassOutcome]) -> None:
        """Keeps what was committed until a drafter in this process hears of it."""
        self._unheard = settled

    def keep(self, outcome: StepOutcome) -> list[StreamOutput] | None:
        """Keeps what gateways are to hear; returns it if nothing is held for them."""
        if self.send is None:
            return self._outputs_of(outcome)
        self._unsent = outcome
        return None

    def tell_drafter(self, *, waits: bool) -> None:
        """Hands commits over, unless it was done. `waits`: the next step waits for drafts that build on them."""
        unheard, self._unheard = self._unheard, ()
        if self.hand_over is not None and unheard:
            self.hand_over([(one.ran.active.stream, one.commit()) for one in unheard], waits=waits)

    def waits_with(self, sequences: Collection[ActiveSequence]) -> bool:
        """Whether what gateways are to hear stays until the next step is launched, though these wait for drafts.

        It does if none of these drafts come over the network, whose loop wants the interpreter to send it: a commit is
        then sent a few milliseconds later.
        """
        come_beside = self.hand_over is not None and all(active.is_drafted_beside for active in sequences)
        self._waits = self._unsent is not None and len(sequences) > 0 and come_beside
        return self._waits

    def tell(self) -> None:
        """Tells everyone what they have not heard of the last step."""
        self.tell_drafter(waits=False)
        self._waits = False
        if self._unsent is not None and self.send is not None:
            outcome, self._unsent = self._unsent, None
            if outputs := self._outputs_of(outcome):
                self.send(outputs)
