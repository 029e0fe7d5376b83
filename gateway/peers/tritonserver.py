"""A draft model on NVIDIA Triton Inference Server: what it says next, and whether it is there. Knows no sequence."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
from tritonclient.grpc import InferInput, InferRequestedOutput, InferResult
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from gateway.control.call_times import CallTimes
from gateway.peers.addresses import DNS_PREFIX, check_target
from gateway.peers.complaints import Complaints
from slipstream.wire.channel import CLIENT_OPTIONS
from slipstream.wire.tls import ClientTls

_LOG = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.25  # seconds before a server that went away is asked again; twice as long each time
LONGEST_PAUSE: Final = 8.0
OUTPUT: Final = "output_ids"

# What distinguishes a server that cannot draft for these tokens from one that is not there, or too slow.
_REFUSALS: Final = ("INVALID_ARGUMENT", "OUT_OF_RANGE", "INTERNAL", "UNIMPLEMENTED")


class Lost(Exception):
    """The server is away, has not loaded the model, or did not answer in time: later it may."""


class Refused(Exception):
    """The server is there and did not draft for these tokens: it would not for more of them either."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TritonServerConfig:
    """Raises ValueError naming field and value."""

    address: str  # host:port of its gRPC service
    model: str
    tls: ClientTls | None = None  # None: plaintext
    max_calls: int = 32  # at one time, over all sequences
    call_seconds: float = 1.0  # for one answer: a draft that takes longer is of no use

    def __post_init__(self) -> None:
        check_target("tritonserver", self.address)
        if self.address.startswith(DNS_PREFIX):
            raise ValueError(f"tritonserver is {self.address!r}; it must be one host:port")
        if not self.model:
            raise ValueError("tritonserver-model is empty; it must be the name of a model on the tritonserver")
        if not self.max_calls >= 1 or not self.call_seconds > 0:
            raise ValueError(
                f"max_calls is {self.max_calls} and call_seconds {self.call_seconds}; they must be >= 1 and > 0"
            )


def tritonserver_config(address: str, model: str, tls: ClientTls | None) -> TritonServerConfig | None:
    """None if nothing is given. Raises ValueError for half of it."""
    if not address and not model and tls is None:
        return None
    if not address:
        raise ValueError("tritonserver is empty, and its model or CA is given; give the server's host:port, too")
    return TritonServerConfig(address=address, model=model, tls=tls)


class TritonServer:
    """Is looked for, with pauses that grow, whenever it is away; nobody asks it meanwhile."""

    def __init__(
        self,
        config: TritonServerConfig,
        count: Callable[[str], None] = lambda outcome: None,  # of each attempt, by how it ended
    ) -> None:
        self._config = config
        self._complaints = Complaints()
        self._count = count
        self._client: Any = None
        self._there = asyncio.Event()
        self._away = asyncio.Event()
        self._pause = FIRST_PAUSE
        self.times = CallTimes()
        self.turn = asyncio.Semaphore(config.max_calls)  # to be held during a call

    @property
    def available(self) -> bool:
        return self._there.is_set()

    async def run(self) -> NoReturn:
        """Keeps looking for the server when it is away, until cancelled."""
        config = self._config
        credentials = None if config.tls is None else config.tls.credentials()
        client = InferenceServerClient(config.address, creds=credentials, channel_args=list(CLIENT_OPTIONS))
        try:
            while True:
                await self._find(client)
                self._arrive(client)
                await self._away.wait()
                await self._rest()
        finally:
            self._there.clear()
            await client.close()

    async def draft(self, token_ids: Sequence[int], num_tokens: int) -> tuple[int, ...]:
        """What the model says after these tokens. Raises Lost or Refused."""
        if not self.available:
            raise Lost(f"tritonserver {self._config.address} is away")
        began = time.monotonic()
        try:
            answer = await self._client.infer(
                self._config.model,
                _inputs(token_ids, num_tokens),
                outputs=[InferRequestedOutput(OUTPUT)],
                client_timeout=self._config.call_seconds,
            )
            drafted = _drafted(answer)
        except InferenceServerException as error:
            raise self._failure(error) from error
        except Refused as error:
            raise self._note(error) from None
        self._pause = FIRST_PAUSE
        self.times.note(num_tokens, time.monotonic() - began)
        self._count("answered")
        return drafted

    async def _find(self, client: Any) -> None:
        """Returns once the server says that it has the model."""
        while True:
            try:
                if await client.is_model_ready(self._config.model, client_timeout=self._config.call_seconds):
                    return
                self._note(Lost("has not loaded the model"))
            except InferenceServerException as error:
                self._note(Lost(_reason(error)))
            await self._rest()

    def _arrive(self, client: Any) -> None:
        _LOG.info("tritonserver %s drafts with %s", self._config.address, self._config.model)
        self._client = client
        self._away.clear()
        self._there.set()

    async def _rest(self) -> None:
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _failure(self, error: InferenceServerException) -> Lost | Refused:
        kind = Refused if _code(error) in _REFUSALS else Lost
        return self._note(kind(_reason(error)))

    def _note(self, failure: Lost | Refused) -> Lost | Refused:
        """Says it once, however often it happens."""
        where = f"tritonserver {self._config.address}, model {self._config.model!r}"
        if isinstance(failure, Refused):
            self._complaints.once(f"{where} refused a sequence, which goes on without it: {failure}")
            self._count("refused")
        else:
            self._complaints.once(f"{where} is away, and sequences go on without it: {failure}")
            self._count("lost")
            self._there.clear()
            self._away.set()
        return failure


def _inputs(token_ids: Sequence[int], num_tokens: int) -> list[InferInput]:
    """One prefix and how many tokens are wanted after it, named as in NVIDIA's LLM backends."""
    return [
        _tensor("input_ids", token_ids),  # [1, n]
        _tensor("input_lengths", [len(token_ids)]),  # [1, 1]
        _tensor("request_output_len", [num_tokens]),  # [1, 1]
    ]


def _drafted(answer: InferResult) -> tuple[int, ...]:
    """The tokens after the prefix, of whatever shape; raises Refused for anything else."""
    try:
        tokens: npt.NDArray[Any] | None = answer.as_numpy(OUTPUT)
    except (ValueError, IndexError) as error:  # data that does not fit its shape, or none
        raise Refused(f"{OUTPUT} cannot be read: {error}") from error
    if tokens is None:
        raise Refused(f"its answer has no tensor {OUTPUT!r}")
    if tokens.dtype.kind not in "iu":
        raise Refused(f"{OUTPUT} is of {tokens.dtype}; it must be of integers")
    return tuple(tokens.reshape(-1).tolist())


def _tensor(name: str, values: Sequence[int]) -> InferInput:
    tensor = InferInput(name, [1, len(values)], "INT32")
    tensor.set_data_from_numpy(np.array([values], np.int32))
    return tensor


def _code(error: InferenceServerException) -> str:
    return str(error.status()).removeprefix("StatusCode.")


def _reason(error: InferenceServerException) -> str:
    """In one line, without the tracebacks that models in Python send."""
    said = (error.message() or "").strip()
    return f"{_code(error)}: {said.splitlines()[0] if said else 'it said nothing'}"
