"""`python -m launcher.host [--hand-over | --no-hand-over] VERIFIER-OPTIONS + DRAFTER-OPTIONS`: both in one process.

They are on one port and one event loop. What they say of a sequence that a gateway has open at both they hand over in
memory (hand_over.py); by default where the drafter has a GPU, for on cores it should rest while others draft. On one
GPU the drafter runs ahead of commits for a lone sequence only, unless `--most-ahead` says otherwise: what it computes
for several takes longer than the pass that it is for. Beyond `--most-drafted` it rests.

Options are those of the two services; of the drafter's, where to listen and how to log do not count. Each engine has
its thread and, on a GPU, its stream: the interpreter is free while a thread waits for the GPU, so one computes on the
host while the other's kernels run, and a verifier whose drafter rests has the process to itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, TypeVar

import typer

import drafter_svc.__main__
import verifier_svc.__main__
from drafter_svc.config import DrafterConfig
from drafter_svc.service import drafter_part
from launcher.hand_over import HandOver
from launcher.stack import BETWEEN
from slipstream import command_line
from slipstream.parallel.crew import follows
from slipstream.timeline import timeline_in
from slipstream.wire import server
from slipstream.wire.part import Failure
from verifier_svc.config import VerifierConfig
from verifier_svc.service import verifier_part

NAME: Final = "verifier+drafter"

ON_ONE_GPU: Final = ("--most-ahead", "1", "--most-drafted", "12")  # of the drafter, unless it is told otherwise
ASKED: Final = {"--hand-over": True, "--no-hand-over": False}

ConfigT = TypeVar("ConfigT")


def main(words: Sequence[str]) -> None:
    verifier, drafter = configurations([word for word in words if word not in ASKED])
    asked = [ASKED[word] for word in words if word in ASKED]
    hands_over = asked[-1] if asked else drafter.engine.device != "cpu"
    with command_line.mistakes_in_one_line():
        other_rank = follows(verifier.engine)
    if not other_rank:
        server.run(serve_both(verifier, drafter, hands_over=hands_over))


def configurations(words: Sequence[str]) -> tuple[VerifierConfig, DrafterConfig]:
    """A mistake ends the process with exit code 2 and one line on stderr, as with one service."""
    if BETWEEN not in words:
        print(f"error: give the verifier's options, {BETWEEN!r}, then the drafter's", file=sys.stderr)
        sys.exit(2)
    at = words.index(BETWEEN)
    verifier = _read(verifier_svc.__main__.app, words[:at], VerifierConfig)
    drafter = _read(drafter_svc.__main__.app, words[at + 1 :], DrafterConfig)
    if drafter.engine.device == verifier.engine.device != "cpu":  # of an option that is given twice the last one counts
        drafter = _read(drafter_svc.__main__.app, [*ON_ONE_GPU, *words[at + 1 :]], DrafterConfig)
    return verifier, drafter


async def serve_both(verifier: VerifierConfig, drafter: DrafterConfig, *, hands_over: bool) -> None:
    """Serves until told to stop. What ends one of them ends both, so that a supervisor starts both again."""
    one_device = drafter.engine.device == verifier.engine.device
    failure, door = Failure(), HandOver(by_one_thread=one_device) if hands_over else None
    of_verifier, of_drafter = (door.for_verifier, door.for_drafter) if door else (None, None)
    with timeline_in(verifier.trace) as timeline:
        async with (
            verifier_part(verifier, failure, timeline, shares_process=True, beside=of_verifier) as one,
            drafter_part(drafter, failure, timeline, shares_process=True, beside=of_drafter) as other,
        ):
            listening = server.ServerConfig(listen=verifier.listen, tls=verifier.tls)
            await server.serve(NAME, other.beside(one), listening, failure=failure.future)


def _read(app: typer.Typer, words: Sequence[str], kind: type[ConfigT]) -> ConfigT:
    """What the service's own command line makes of these words."""
    read: list[ConfigT] = []
    try:
        typer.main.get_command(app).main(list(words), obj=read.append)
    except SystemExit as ended:
        if ended.code or not read:  # a mistake, or help was asked for
            raise
    assert isinstance(read[0], kind)
    return read[0]


if __name__ == "__main__":
    main(sys.argv[1:])
