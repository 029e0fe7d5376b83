"""Events reach the worker in order, outputs the event loop, and failures are reported once."""

import asyncio
import threading
import time

from slipstream.engine.engine_thread import EngineThread


class Echo:
    """Says back what it was told, all of one step in one list; notes the thread it runs on."""

    def __init__(self):
        self.pending = []
        self.threads = set()
        self.wake = None

    def handle(self, event):
        if event == "fail":
            raise RuntimeError("broken on purpose")
        self.pending.append(event)

    def step(self):
        self.threads.add(threading.get_ident())
        said, self.pending = self.pending, []
        return said or None

    def next_wake(self):
        return self.wake


async def test_events_come_out_in_order_on_the_event_loop():
    outputs = asyncio.Queue()
    here = threading.get_ident()
    seen = []
    worker = Echo()
    engine = EngineThread(worker, lambda out: (seen.append(threading.get_ident()), outputs.put_nowait(out)))
    engine.start()
    for i in range(100):
        engine.post(i)
    said = []
    while len(said) < 100:
        said += await asyncio.wait_for(outputs.get(), 5)
    await engine.stop()
    assert said == list(range(100))
    assert set(seen) == {here}
    assert len(worker.threads) == 1
    assert here not in worker.threads


async def test_what_arrived_during_a_step_is_taken_by_the_next_as_a_whole():
    class Slow(Echo):
        def step(self):
            time.sleep(0.05)
            return super().step()

    outputs = asyncio.Queue()
    engine = EngineThread(Slow(), outputs.put_nowait)
    engine.start()
    engine.post(0)
    await asyncio.sleep(0.02)
    for i in range(1, 5):
        engine.post(i)
    assert await asyncio.wait_for(outputs.get(), 5) == [0]
    assert await asyncio.wait_for(outputs.get(), 5) == [1, 2, 3, 4]
    await engine.stop()


async def test_it_steps_at_the_time_the_worker_asked_for():
    class Timer(Echo):
        def step(self):
            if self.wake is not None and time.monotonic() >= self.wake:
                self.wake = None
                return ["rang"]
            return None

    outputs = asyncio.Queue()
    worker = Timer()
    start = time.monotonic()
    worker.wake = start + 0.1
    engine = EngineThread(worker, outputs.put_nowait)
    engine.start()
    assert await asyncio.wait_for(outputs.get(), 5) == ["rang"]
    assert time.monotonic() - start >= 0.1
    await engine.stop()


async def test_a_worker_exception_is_told_once_and_ends_the_thread():
    failures = asyncio.Queue()
    engine = EngineThread(Echo(), lambda out: None, failures.put_nowait)
    engine.start()
    engine.post("fail")
    assert str(await asyncio.wait_for(failures.get(), 5)) == "broken on purpose"
    engine.post("fail")
    await asyncio.wait_for(engine.stop(), 5)
    assert failures.empty()


async def test_stopping_an_idle_thread_is_prompt():
    engine = EngineThread(Echo(), lambda out: None)
    engine.start()
    await asyncio.wait_for(engine.stop(), 5)


async def test_what_may_come_during_a_step_does_and_the_rest_waits_for_its_end_in_order():
    class Busy(Echo):
        engine = None
        during = None

        def step(self):
            if self.pending == ["start"]:
                self.engine.take_in(lambda event: isinstance(event, int), time.monotonic() + 20)
                self.during = list(self.pending)
            return super().step()

    outputs, worker = asyncio.Queue(), Busy()
    worker.engine = engine = EngineThread(worker, outputs.put_nowait)
    engine.start()
    for event in ("start", 1, 2, "later", 3):
        engine.post(event)
        await asyncio.sleep(0.02)
    said = []
    while 3 not in said:
        said += await asyncio.wait_for(outputs.get(), 5)
    await engine.stop()
    assert said == ["start", 1, 2, "later", 3]
    assert worker.during == ["start", 1, 2]


async def test_a_step_takes_nothing_in_once_its_end_is_near():
    class Late(Echo):
        engine = None

        def step(self):
            self.engine.take_in(lambda event: True, time.monotonic() - 1)
            return super().step()

    outputs, worker = asyncio.Queue(), Late()
    worker.engine = engine = EngineThread(worker, outputs.put_nowait)
    engine.post(1)
    engine.start()
    assert await asyncio.wait_for(outputs.get(), 5) == [1]
    await engine.stop()
