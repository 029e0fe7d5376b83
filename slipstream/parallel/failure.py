"""How the process of a rank learns that it cannot go on. Knows no tensors."""

from __future__ import annotations


class RanksFailed(RuntimeError):
    """Another process that holds a part of the model is gone or stuck: the whole must start anew."""
