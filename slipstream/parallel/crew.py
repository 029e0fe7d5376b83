"""The processes that hold one model, seen from rank 0: how they start, follow, die and end. Knows no requests."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import connection
from typing import Protocol

import torch.distributed as dist

from slipstream.config import EngineConfig, Torchrun, torchrun
from slipstream.engine.loading import make_runner
from slipstream.engine.model_runner import ModelRunner
from slipstream.engine.rank_runner import LeadingRunner
from slipstream.engine.rank_steps import Step
from slipstream.errors import CheckpointError
from slipstream.parallel.control import Broadcast, Sender
from slipstream.parallel.failure import RanksFailed
from slipstream.parallel.follower import follow, run_follower
from slipstream.parallel.joining import STEP_SECONDS, Place, join, leave, make_store
from slipstream.parallel.ring import RingWriter
from slipstream.timeline import NO_TIMELINE, Timeline

_LOG = logging.getLogger(__name__)
END_SECONDS = 5.0  # for a rank to end by itself once it was asked
LAST_RESORT_SECONDS = 30.0  # for the service to end once a rank has died; more than it drains
LOAD_SECONDS = 5.0  # the same while the model loads, when nobody is served
EXPLAIN_SECONDS = 1.0  # in which a rank that broke a connection by dying is seen to be dead
IDLE = timedelta(days=20)  # ranks on other machines wait so long for a step
OnDeath = Callable[[RanksFailed], object]


class Crew(Protocol):
    def make_runner(self, config: EngineConfig, timeline: Timeline = NO_TIMELINE) -> ModelRunner:
        """Loads the model on all ranks. What it returns drives them all."""

    def on_death(self, report: OnDeath) -> None:
        """Calls `report` once, from any thread, when a rank ends before it was asked to."""

    def close(self) -> None:
        """Ends the other ranks."""


class OneProcess:
    """It holds the model whole."""

    def make_runner(self, config: EngineConfig, timeline: Timeline = NO_TIMELINE) -> ModelRunner:
        return make_runner(config, timeline=timeline)

    def on_death(self, report: OnDeath) -> None:
        """Nobody else can die."""

    def close(self) -> None:
        """Nobody else is there."""


class LocalCrew:
    """Starts the other ranks as processes of this machine."""

    def __init__(self, config: EngineConfig) -> None:
        size = config.tensor_parallel_size
        context = multiprocessing.get_context("spawn")
        self._store = make_store(size)
        self._ring = RingWriter(context, size - 1, STEP_SECONDS)
        self._closing = threading.Event()
        self._joined = False
        self._runner: ModelRunner | None = None
        self._burying = threading.Lock()  # of two threads that wait for one process, one learns nothing
        self._report: OnDeath | None = None
        self._processes = [
            context.Process(target=run_follower, args=(config, _local(rank, size), self._store.port, end), daemon=True)
            for rank, end in enumerate(self._ring.ends, start=1)
        ]
        for process in self._processes:
            process.start()
        threading.Thread(target=self._watch, name="ranks", daemon=True).start()

    def make_runner(self, config: EngineConfig, timeline: Timeline = NO_TIMELINE) -> ModelRunner:
        place, send = _local(0, config.tensor_parallel_size), _step_sender(self._ring)
        try:
            ranks = join(place, config, self._store)
            self._joined = True
            self._ring.unlink()
            runner = make_runner(place.own(config), timeline=timeline, ranks=ranks, send=send)
        except CheckpointError:
            raise  # every rank finds the same
        except RuntimeError as error:
            raise self._explained(error) from error
        self._runner = LeadingRunner(runner, send, self._explained)
        return self._runner

    def on_death(self, report: OnDeath) -> None:
        self._report = report

    def close(self) -> None:
        """A rank that does not end when asked is killed: it may be waiting for a step that will not come."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._joined and all(process.is_alive() for process in self._processes):
            self._part(time.monotonic() + END_SECONDS)
        for process in self._processes:
            process.kill()  # or it has ended
            process.join()
        self._ring.close()

    def _part(self, until: float) -> None:
        """All leave together, for leaving may wait for one another."""
        _send_stop(self._ring)
        _release(self._runner)
        leaving = threading.Thread(target=leave, name="leave", daemon=True)
        leaving.start()
        for join_within in (*(process.join for process in self._processes), leaving.join):
            join_within(max(0.0, until - time.monotonic()))

    def _watch(self) -> None:
        death = self._death(None)
        if self._closing.is_set() or death is None:
            return
        if self._report is not None:
            self._report(death)
        # Who waits for the dead rank, perhaps where nothing can reach it, has so long to give up.
        if not self._closing.wait(LAST_RESORT_SECONDS if self._report else LOAD_SECONDS):
            _LOG.error("%s, and nothing else has ended this process", death)
            os._exit(1)

    def _death(self, seconds: float | None) -> RanksFailed | None:
        """Of the first rank to end, if one does in so long."""
        ended = connection.wait([process.sentinel for process in self._processes], seconds)
        size = len(self._processes) + 1
        for rank, process in enumerate(self._processes, start=1):
            if process.sentinel in ended:
                with self._burying:
                    process.join()  # what it had open is closed a moment before it is gone
                    code = process.exitcode or 0
                how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
                return RanksFailed(f"rank {rank} of {size} {how}")
        return None

    def _explained(self, error: RuntimeError) -> RuntimeError:
        """An exchange that failed because a rank died says so."""
        return self._death(EXPLAIN_SECONDS) or error


class TorchrunCrew:
    """Rank 0 of processes that torchrun has started, perhaps on several machines; torchrun ends all if one dies."""

    def __init__(self, config: EngineConfig, started: Torchrun) -> None:
        self._place = _torchrun_place(config, started)
        self._control: Broadcast | None = None
        self._runner: ModelRunner | None = None

    def make_runner(self, config: EngineConfig, timeline: Timeline = NO_TIMELINE) -> ModelRunner:
        ranks = join(self._place, config, None)
        self._control = _control_group()
        send = _step_sender(self._control)
        runner = make_runner(self._place.own(config), timeline=timeline, ranks=ranks, send=send)
        self._runner = LeadingRunner(runner, send, lambda error: error)
        return self._runner

    def on_death(self, report: OnDeath) -> None:
        """Torchrun sees to it."""

    def close(self) -> None:
        if self._control is not None:
            _send_stop(self._control)
            _release(self._runner)
            leave()


ONE_PROCESS = OneProcess()


def make_crew(config: EngineConfig) -> Crew:
    """For rank 0. ValueError if torchrun has started another number of ranks."""
    started = torchrun()
    if started is not None:
        return TorchrunCrew(config, started)
    return ONE_PROCESS if config.tensor_parallel_size == 1 else LocalCrew(config)


def follows(config: EngineConfig) -> bool:
    """Whether this process is another rank than 0, started by torchrun; if so, returns when rank 0 has ended."""
    started = torchrun()
    if started is None or started.rank == 0:
        return False
    place = _torchrun_place(config, started)
    ranks = join(place, config, None)
    follow(place.own(config), ranks, _control_group())
    leave()
    return True


def _local(rank: int, size: int) -> Place:
    return Place(rank=rank, size=size, local_rank=rank, one_machine=True)


def _torchrun_place(config: EngineConfig, started: Torchrun) -> Place:
    if started.size != config.tensor_parallel_size:
        raise ValueError(
            f"tensor_parallel_size is {config.tensor_parallel_size}, but torchrun has started {started.size} ranks"
        )
    one_machine = started.local_size == started.size
    return Place(rank=started.rank, size=started.size, local_rank=started.local_rank, one_machine=one_machine)


def _control_group() -> Broadcast:
    group = dist.new_group(backend="gloo", timeout=IDLE)
    assert isinstance(group, dist.ProcessGroup)
    return Broadcast(group)


def _step_sender(sender: Sender) -> Callable[[Step], None]:
    return lambda step: sender.send(pickle.dumps(step, pickle.HIGHEST_PROTOCOL))


def _release(runner: ModelRunner | None) -> None:
    if runner is not None:
        runner.close()


def _send_stop(sender: Sender) -> None:
    try:
        sender.send(pickle.dumps(None))
    except RuntimeError as error:  # they are beyond hearing, and will be ended otherwise
        _LOG.debug("could not ask the ranks to end: %s", error)
