"""A share, estimated from decayed counts and drawn towards what was expected. Knows numbers only."""

from __future__ import annotations


class Rate:
    """The last few trials count, about 1 / (1 - decay) of them; `weight` trials stand for what was expected.

    An expectation that is `lasting` always counts so much, one that is not is forgotten as trials are: what nobody had
    measured must not speak for ever for what never succeeds.
    """

    __slots__ = ("_decay", "_lasting", "_sum", "_weight", "trials")

    def __init__(self, decay: float, weight: float, *, lasting: bool = True) -> None:
        self._decay = decay
        self._lasting = lasting
        self._weight = weight
        self._sum = 0.0
        self.trials = 0.0  # decayed

    def add(self, value: float) -> None:
        self._sum = self._sum * self._decay + value
        self.trials = self.trials * self._decay + 1
        if not self._lasting:
            self._weight *= self._decay

    def fade(self) -> None:
        """Time has passed without a trial: what was seen counts less."""
        self._sum *= self._decay
        self.trials *= self._decay

    def fade_to(self, trials: float) -> None:
        """What was seen is old: it counts for no more than so many trials."""
        if self.trials > trials:
            share = trials / self.trials
            self._sum *= share
            self.trials = trials
            self._weight *= 1.0 if self._lasting else share

    def mean(self, expected: float) -> float:
        return (self._sum + self._weight * expected) / (self.trials + self._weight)
