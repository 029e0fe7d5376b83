"""What a gateway does: admits requests, runs their sessions, reads text. Knows no gRPC; servicer.py speaks it."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from gateway.admission import admit, check_ids, check_request_id, encode_prompt, num_chars
from gateway.catalog import Catalog, ServedModel
from gateway.client_stream import ClientStream
from gateway.completion import Completion, Prompt
from gateway.completion_text import CompletionText
from gateway.config import GatewayConfig
from gateway.dialects import DrafterDialect, VerifierDialect
from gateway.ledger import Ledger
from gateway.output import Output
from gateway.pool import Pool
from gateway.proposers import Complaints
from gateway.request_log import log_ended, log_refused
from gateway.session import Ended, Peers, Session
from gateway.tenants import Tenant, Tenants
from gateway.tokenizer_store import TextTools, TokenizerStore
from slipstream.errors import Exhausted
from slipstream.exchange import ModelInfo
from slipstream.request import SequenceRequest

LONG_PROMPT_CHARS = 20_000  # encoded in another thread, so that other requests go on meanwhile


@dataclass(frozen=True, slots=True)
class Running:
    """A request that was admitted."""

    request_id: str
    deltas: ClientStream


class Gateway:
    def __init__(
        self, config: GatewayConfig, tenants: Tenants, on_serving: Callable[[bool], None] = lambda serving: None
    ) -> None:
        self.tenants = tenants
        self._config = config
        self._on_serving = on_serving
        tokenizers = TokenizerStore()
        self._peers = Peers(
            verifiers=Pool(config.verifiers, lambda a: VerifierDialect(a, tokenizers), self._verifiers_changed),
            drafters=Pool(config.drafters, lambda a: DrafterDialect()),
            complaints=Complaints(),
            recovery_seconds=config.recovery_seconds,
        )
        self.catalog = Catalog(self._peers.verifiers, tokenizers)
        self._sequence_ids = itertools.count(1)
        self._running: Counter[str] = Counter()  # requests by tenant

    @property
    def num_peers(self) -> int:
        """Verifiers and drafters that are there now."""
        return len(self._peers.verifiers.available) + len(self._peers.drafters.available)

    async def run(self) -> None:
        """Keeps the links to all peers, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._peers.verifiers.run())
            tasks.create_task(self._peers.drafters.run())

    @asynccontextmanager
    async def complete(self, tenant: Tenant, completion: Completion, deadline: float | None) -> AsyncIterator[Running]:
        """Runs a request for as long as the block lasts; `deadline` is by time.monotonic()."""
        received = time.monotonic()  # uvloop's own clock counts milliseconds
        completion = replace(completion, request_id=completion.request_id or uuid.uuid4().hex)
        try:
            request, model = await self._admit(tenant, completion)
        except Exception as error:
            log_refused(completion.request_id, tenant.name, error)
            raise
        output = self._output(completion, request, model, received)
        session = Session(
            request, model.info.name, self._peers, output, self._on_end(completion, tenant, output), deadline
        )
        self._running[tenant.name] += 1  # until the session ends, however it does
        try:
            session.start()
            yield Running(completion.request_id, output.stream)
        finally:
            session.close()

    async def tokenize(self, model: str, prompt: Prompt) -> tuple[tuple[int, ...], list[str]]:
        """Token ids and the vocabulary's entries for them."""
        served = self.catalog.find(model)
        text = served.text
        token_ids = await _encode(text, prompt)
        check_ids("prompt", token_ids, served.info.vocab_size)
        return token_ids, [text.tokenizer.token(token_id) for token_id in token_ids]

    async def models(self) -> list[ModelInfo]:
        return await self.catalog.list()

    async def _admit(self, tenant: Tenant, completion: Completion) -> tuple[SequenceRequest, ServedModel]:
        check_request_id(completion.request_id)
        model = self.catalog.find(completion.model)
        prompt_ids = await _encode(model.text, completion.prompt)
        request = admit(completion, prompt_ids, tenant=tenant, model=model, sequence_id=next(self._sequence_ids))
        if self._running[tenant.name] >= tenant.max_concurrent:
            raise Exhausted(
                f"tenant {tenant.name!r} has {tenant.max_concurrent} requests running, its limit; try again later"
            )
        return request, model

    def _output(self, completion: Completion, request: SequenceRequest, model: ServedModel, received: float) -> Output:
        text = CompletionText(model.text.tokenizer, completion.stop, include_stop=completion.include_stop)
        ledger = Ledger(
            received=received,
            prompt_tokens=request.num_prompt_tokens,
            num_draft_tokens=request.num_draft_tokens,
            seed=request.seed,
        )
        return Output(text, ledger, ClientStream(self._config.max_unsent_tokens))

    def _on_end(self, completion: Completion, tenant: Tenant, output: Output) -> Callable[[Ended], None]:
        def on_end(ended: Ended) -> None:
            self._running[tenant.name] -= 1
            log_ended(completion.request_id, tenant.name, output.ledger, ended)

        return on_end

    def _verifiers_changed(self) -> None:
        self._on_serving(bool(self._peers.verifiers.available))


async def _encode(tools: TextTools, prompt: Prompt) -> tuple[int, ...]:
    if num_chars(prompt) > LONG_PROMPT_CHARS:
        return await asyncio.to_thread(encode_prompt, tools, prompt)
    return encode_prompt(tools, prompt)
