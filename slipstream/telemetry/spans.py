"""Spans: what took how long, within what. Knows a trace's form; no exporter (otlp.py is one), no request.

Times are seconds since 1970, for spans of several machines are laid beside each other.
"""

from __future__ import annotations

from typing import Final, Protocol

Attribute = str | int | float | bool


class Span(Protocol):
    @property
    def traceparent(self) -> str:
        """The W3C trace context that makes other spans children of this one, here or in another service."""

    def end(self, at: float, error: str = "", **attributes: Attribute) -> None:
        """Once. `error` says what went wrong, if anything did."""


class Tracer(Protocol):
    @property
    def is_on(self) -> bool:
        """Whether anything is kept; for what is dear to find out."""

    def start(self, name: str, parent: str, at: float, **attributes: Attribute) -> Span:
        """`parent` is a traceparent; one that is empty or makes no sense begins a trace."""


class NoSpan:
    traceparent = ""

    def end(self, at: float, error: str = "", **attributes: Attribute) -> None:
        return


class NoTracer:
    """Keeps nothing, at the price of a call."""

    is_on = False

    def start(self, name: str, parent: str, at: float, **attributes: Attribute) -> Span:
        return NO_SPAN


NO_SPAN: Final[Span] = NoSpan()
NO_TRACER: Final[Tracer] = NoTracer()
