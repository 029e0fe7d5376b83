"""Which tokens of a path are fed next, and what then counts as computed. Knows tokens and features; no model."""

from __future__ import annotations

from drafter_svc.feature_feed import FeatureFeed, FeatureRows
from drafter_svc.path import Path


class Feeding:
    """Of one sequence's paths."""

    def __init__(
        self,
        committed: list[int],  # grows with the sequence
        features: FeatureFeed,
        *,
        feeds_drawn: bool,  # Limits.feeds_drawn
    ) -> None:
        self._committed, self._features, self._feeds_drawn = committed, features, feeds_drawn

    def token_ids(self, path: Path) -> list[int]:
        """What stands before the next token to draw and has no KV; the last token always, since its logits are lost."""
        start = self.start(path)
        drafted = path.tokens[max(0, start - len(self._committed)) :]
        return self._committed[start:] + [token.token_id for token in drafted]

    def start(self, path: Path) -> int:
        return min(path.num_computed, self._end(path) - 1)

    def num_tokens(self, path: Path, *, waits: bool) -> int:
        """Of these, how many one row may feed now. `waits`: as FeatureFeed.most_tokens has it."""
        return self._features.most_tokens(self.start(path), self._end(path), len(self._committed), waits=waits)

    def features(self, path: Path, num_tokens: int) -> FeatureRows | None:
        start = self.start(path)
        return self._features.rows_for(start, start + num_tokens, len(self._committed))

    def mark_target_fed(self, path: Path, end: int) -> None:
        """Before anything else is noted of a row that fed up to `end`: whether it was with the target's features."""
        by_target = self._features.num_fed_by_target(len(self._committed))
        if self.start(path) <= path.num_by_target and end <= by_target:
            path.num_by_target = end

    def mark_computed(self, path: Path, end: int, num_drawn: int) -> None:
        """A row fed up to `end`, and the path has taken what it drew."""
        num_fed = max(0, num_drawn - 1) if self._feeds_drawn else 0
        path.num_computed = min(end + num_fed, self._end(path))

    def _end(self, path: Path) -> int:
        return len(self._committed) + len(path.tokens)
