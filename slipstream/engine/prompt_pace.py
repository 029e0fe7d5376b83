"""How many prompt tokens a step takes while others decode. Knows what steps took; knows no sequences.

A step reads all weights for whatever it computes, so that some prompt tokens beside those that decode cost little. How
many depends on the model, the machine and how far into its prompt a sequence is: measured, not known.
"""

from __future__ import annotations

from typing import Final, Protocol

from slipstream.engine.buckets import padded_count

SLOWEST: Final = 1.7  # times a step without prompts that one with some may take
COLD_TOKENS: Final = 240  # with a few that decode a step of 256: before anything was measured
FEWEST: Final = 32  # tokens of a prompt, however slow it makes the others
TELLING: Final = 16  # tokens that say what one costs: fewer may just be the end of a prompt
_PLAIN_SHARE: Final = 0.2  # of the newest step without prompts in what such a step is taken to need
_FASTEST_GROWTH: Final = 1.15  # from step to step: where tokens stop being free, they may be dear at once
_FASTEST_SHRINKING: Final = 1.3  # what lengthened one step may have been something else


class PromptPace(Protocol):
    def room(self, num_used: int) -> int:
        """Prompt tokens for a step in which others feed `num_used` tokens."""

    def note(self, num_prompt_tokens: int, seconds: float) -> None:
        """A step in which sequences decoded took so long."""


class FixedPace:
    """Whatever it costs."""

    def __init__(self, num_tokens: int) -> None:
        self._num_tokens = num_tokens

    def room(self, num_used: int) -> int:
        return self._num_tokens

    def note(self, num_prompt_tokens: int, seconds: float) -> None:
        pass


class MeasuredPace:
    """As many as keep a step below SLOWEST times one without; padded sizes are filled."""

    def __init__(self) -> None:
        self._num_tokens = float(COLD_TOKENS)
        self._plain_seconds = 0.0  # of a step without prompts; 0 before one was measured

    def room(self, num_used: int) -> int:
        whole = padded_count(int(self._num_tokens) + num_used)
        return max(FEWEST, whole - num_used)

    def note(self, num_prompt_tokens: int, seconds: float) -> None:
        if num_prompt_tokens == 0:
            self._plain_seconds += (seconds - self._plain_seconds) * (_PLAIN_SHARE if self._plain_seconds else 1.0)
        elif self._plain_seconds and num_prompt_tokens >= TELLING:
            each = (seconds - self._plain_seconds) / num_prompt_tokens
            least, most = self._num_tokens / _FASTEST_SHRINKING, self._num_tokens * _FASTEST_GROWTH
            wanted = (SLOWEST - 1) * self._plain_seconds / each if each > 0 else most
            self._num_tokens = max(FEWEST, min(max(wanted, least), most))
