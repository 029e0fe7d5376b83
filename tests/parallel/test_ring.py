"""The ring in shared memory: order, long messages, readers that stop."""

import multiprocessing
import threading
import time
from collections.abc import Iterator

import pytest

from slipstream.parallel.failure import RanksFailed
from slipstream.parallel.ring import NUM_SLOTS, SLOT_BYTES, RingReader, RingWriter

CONTEXT = multiprocessing.get_context("spawn")


@pytest.fixture
def writer() -> Iterator[RingWriter]:
    writer = RingWriter(CONTEXT, 2, seconds=10)
    yield writer
    writer.close()


@pytest.fixture
def readers(writer: RingWriter) -> Iterator[list[RingReader]]:
    readers = [RingReader(end, spin_seconds) for end, spin_seconds in zip(writer.ends, (0.0, 0.01), strict=True)]
    yield readers
    for reader in readers:
        reader.close()


def test_every_reader_gets_every_message_in_order(writer: RingWriter, readers: list[RingReader]) -> None:
    messages = [b"%d" % i * (i % 50) for i in range(100)] + [b""]
    received: list[list[bytes]] = [[], []]

    def read(reader: RingReader, into: list[bytes]) -> None:
        into += [reader.receive() for _ in messages]

    threads = [threading.Thread(target=read, args=pair) for pair in zip(readers, received, strict=True)]
    for thread in threads:
        thread.start()
    for message in messages:
        writer.send(message)
    for thread in threads:
        thread.join(timeout=20)
    assert received == [messages, messages]


def test_a_message_longer_than_the_ring_passes_through_it(writer: RingWriter, readers: list[RingReader]) -> None:
    message = bytes(range(256)) * (2 * NUM_SLOTS * SLOT_BYTES // 256)
    sending = threading.Thread(target=writer.send, args=(message,))
    sending.start()
    other = threading.Thread(target=readers[1].receive)
    other.start()
    assert readers[0].receive() == message
    for thread in (sending, other):
        thread.join(timeout=20)
        assert not thread.is_alive()


def test_a_reader_that_stops_reading_is_an_error_that_names_it() -> None:
    writer = RingWriter(CONTEXT, 2, seconds=0.05)
    first = RingReader(writer.ends[0], 0.0)
    for _ in range(NUM_SLOTS):
        writer.send(b"step")
        first.receive()
    with pytest.raises(RanksFailed, match=r"rank 2 has not finished its step for 0\.05 s"):
        writer.send(b"one too many")
    first.close()
    writer.close()


def test_a_reader_that_has_lost_its_place_does_not_go_on(writer: RingWriter, readers: list[RingReader]) -> None:
    writer.send(b"first")
    writer.ends[0].written.release()
    assert readers[0].receive() == b"first"
    with pytest.raises(RanksFailed, match="message 1 of rank 0 is lost"):
        readers[0].receive()


def test_waiting_takes_no_processor_time(writer: RingWriter, readers: list[RingReader]) -> None:
    used = []

    def wait(reader: RingReader) -> None:
        start = time.thread_time()
        reader.receive()
        used.append(time.thread_time() - start)

    thread = threading.Thread(target=wait, args=(readers[0],))
    thread.start()
    time.sleep(0.3)
    writer.send(b"")
    thread.join(timeout=20)
    assert used[0] < 0.1


def test_the_memory_has_no_name_once_all_have_it(writer: RingWriter, readers: list[RingReader]) -> None:
    writer.unlink()
    writer.send(b"still heard")
    assert readers[0].receive() == b"still heard"
    with pytest.raises(FileNotFoundError):
        RingReader(writer.ends[0], 0.0)
