"""What a process other than rank 0 does: joins, loads its part, takes every step that rank 0 tells, ends with it."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
import threading
from multiprocessing import connection, parent_process

from torch._C._distributed_c10d import TCPStore

from slipstream.config import EngineConfig
from slipstream.engine.engine_thread import apart
from slipstream.engine.loading import make_runner
from slipstream.engine.rank_runner import take
from slipstream.errors import CheckpointError
from slipstream.parallel.control import Receiver
from slipstream.parallel.joining import LOOPBACK, Place, join, leave
from slipstream.parallel.ranks import RankGroup
from slipstream.parallel.ring import ReaderEnd, RingReader

_LOG = logging.getLogger(__name__)
SPIN_SECONDS = 0.02  # on a GPU machine, where the next step is due at once; a CPU is needed for something better


def run_follower(config: EngineConfig, place: Place, port: int, end: ReaderEnd) -> None:
    """The whole life of a process that rank 0 has started. Signals are rank 0's affair: it ends the others."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_rank_0, daemon=True).start()
    try:
        reader = RingReader(end, SPIN_SECONDS if config.device == "cuda" else 0.0)
        store = TCPStore(LOOPBACK, port, place.size, is_master=False, wait_for_workers=False)
        follow(place.own(config), join(place, config, store), reader)
        leave()
    except Exception as error:
        _end_in_error(place, error)


def follow(config: EngineConfig, ranks: RankGroup, receiver: Receiver) -> None:
    """Takes steps until rank 0 says that there are no more."""
    runner = apart(lambda: make_runner(config, ranks=ranks), config.device)
    while (step := pickle.loads(receiver.receive())) is not None:
        take(runner, step)
    runner.close()


def _end_with_rank_0() -> None:
    """Rank 0 may die while this process waits for it in a way that nothing else would end."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _end_in_error(place: Place, error: Exception) -> None:
    """What an operator can mend is one line, as rank 0 prints it; if rank 0 is gone there is nothing to say."""
    parent = parent_process()
    if parent is not None and parent.is_alive():
        mendable = isinstance(error, ValueError | OSError | CheckpointError)
        _LOG.error("rank %d of %d failed: %s", place.rank, place.size, error, exc_info=None if mendable else error)
    sys.stderr.flush()
    os._exit(1)
