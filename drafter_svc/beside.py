"""What a verifier in the drafter's own process has to do with it. Knows events and outputs; no verifier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from drafter_svc.events import Event, Output
from slipstream.engine.engine_thread import EngineThread

Post = Callable[[Event], None]
Engine = EngineThread[Event, Output]


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    process: str  # names it to gateways
    hear: Callable[[Engine], Post]  # how to post what the network says; from now on commits come, too
    take_drafts: Callable[[Output], Output]  # on the engine's thread; what is left goes over the network now
