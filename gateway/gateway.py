"""What a gateway does: admits requests, runs their sessions, reads text. Knows no gRPC; servicer.py speaks it."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from gateway.admission import admit, identified
from gateway.client_stream import ClientStream
from gateway.completion import Completion, Prompt
from gateway.completion_text import CompletionText
from gateway.config import GatewayConfig
from gateway.control.controllers import Controllers
from gateway.control.decision_board import DecisionBoard
from gateway.encoding import encode
from gateway.endings import note_end
from gateway.ledger import Ledger
from gateway.metrics import GatewayMetrics
from gateway.output import Output
from gateway.peers.capacity import VerifierCapacity
from gateway.peers.catalog import Catalog, ServedModel
from gateway.peers.complaints import Complaints
from gateway.peers.dialects import DrafterDialect, VerifierDialect
from gateway.peers.peers import Peers
from gateway.peers.pool import Pool
from gateway.peers.tokenizer_store import TokenizerStore
from gateway.peers.tritonserver import TritonServer
from gateway.places import Places, place_limits
from gateway.policy.tenants import Tenant, Tenants
from gateway.policy.token_budget import TokenBudgets
from gateway.prompt_echo import PromptEcho
from gateway.recent_output import RecentOutputs
from gateway.request_log import CANCELLED, log_refused
from gateway.request_spans import RequestSpans
from gateway.samples import check_num_samples, samples_of
from gateway.session import Ended, Session
from gateway.watch.feed import Feed
from gateway.watch.lanes import WatchedDialect
from gateway.watch.streams import WatchedText
from slipstream.exchange import ModelInfo
from slipstream.metrics.instruments import Gauge, Instrument
from slipstream.request import SequenceRequest
from slipstream.telemetry.spans import NO_TRACER, Tracer
from slipstream.vocabulary_check import check_ids
from slipstream.wire.status import to_status


@dataclass(frozen=True, slots=True)
class Running:
    """A request that was admitted."""

    request_id: str
    deltas: ClientStream
    num_samples: int = 1


class Gateway:
    def __init__(
        self,
        config: GatewayConfig,
        tenants: Tenants,
        on_serving: Callable[[bool], None] = lambda serving: None,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self.tenants = tenants
        self._tracer = tracer
        self._config = config
        self._on_serving = on_serving
        self.metrics = GatewayMetrics()
        tokenizers, self.feed = TokenizerStore(), Feed()
        self._controllers = Controllers(
            tenants, lambda: self._peers.offered, lambda *change: self._board.note_change(*change)
        )
        self._board = DecisionBoard(lambda: self._controllers.all)
        self._peers = self._make_peers(tokenizers)
        self.catalog = Catalog(self._peers.verifiers, tokenizers)
        self._sequence_ids = itertools.count(1)
        capacity = VerifierCapacity(self._peers.verifiers, self._controllers)
        self._places = Places(place_limits(config), capacity=capacity)
        self._budgets = TokenBudgets()

    @property
    def num_peers(self) -> int:
        """Verifiers and drafters that are there now."""
        return len(self._peers.verifiers.available) + len(self._peers.drafters.available)

    @property
    def is_serving(self) -> bool:
        """Whether there is a verifier to serve with."""
        return bool(self._peers.verifiers.available)

    def instruments(self) -> list[Instrument]:
        """All that this service shows."""
        places, verifiers, drafters = self._places, self._peers.verifiers, self._peers.drafters
        return [
            *vars(self.metrics).values(),
            self._board,
            Gauge("slipstream_running_requests", "Requests that have a place.", lambda: places.num_running),
            Gauge("slipstream_queued_requests", "Requests that wait for one.", lambda: places.num_queued),
            Gauge("slipstream_verifiers", "Verifiers connected.", lambda: len(verifiers.available)),
            Gauge("slipstream_drafters", "Drafters connected.", lambda: len(drafters.available)),
        ]

    async def run(self) -> None:
        """Keeps the links to all peers, until cancelled."""
        await self._peers.run()

    def take_up(self, tenants: Tenants) -> None:
        """New policies: limits, keys and modes for requests to come; who drafts and how much for running ones too."""
        self.tenants = tenants
        self._controllers.take_up(tenants)

    @asynccontextmanager
    async def complete(self, tenant: Tenant, completion: Completion, deadline: float | None) -> AsyncIterator[Running]:
        """Runs a request for as long as the block lasts; `deadline` is by time.monotonic()."""
        received = time.monotonic()  # uvloop's own clock counts milliseconds
        spans = RequestSpans(self._tracer, completion.traceparent)
        try:
            completion = identified(completion)
            admitted, model = await self._admit(tenant, completion)
            requests = spans.begun(admitted)
            stream = ClientStream(self._config.max_unsent_tokens, len(requests))
            outputs = [self._output(completion, tenant, request, model, received, stream) for request in requests]
            sessions = [
                Session(request, model.info.name, self._peers, output, self._on_end(tenant, output, spans), deadline)
                for request, output in zip(requests, outputs, strict=True)
            ]
            await self._take_places(tenant, deadline, len(sessions))  # each until its session ends, however it does
            self._budgets.charge(tenant, requests[0].num_prompt_tokens)
        except BaseException as error:
            spans.refused(self.refuse(completion.request_id, tenant.name, error))
            raise
        try:
            for session in sessions:
                session.start(beside=sessions[0])
            yield Running(completion.request_id, stream, len(sessions))
        finally:
            for session in sessions:
                session.close()

    def refuse(self, request_id: str, tenant: str, error: BaseException) -> str:
        """Notes a request that never began, and says how it ended; `tenant` is empty if the caller is unknown."""
        code, reason = to_status(error) if isinstance(error, Exception) else (None, "")
        outcome = code.name if code else CANCELLED
        self.metrics.requests.add(1, tenant, outcome)
        log_refused(request_id, tenant, outcome, reason)
        return outcome

    async def tokenize(self, model: str, prompt: Prompt) -> tuple[tuple[int, ...], list[str]]:
        """Token ids and the vocabulary's entries for them."""
        served = self.catalog.find(model)
        text = served.text
        token_ids = await encode(text, prompt)
        check_ids("prompt", token_ids, served.info.vocab_size)
        return token_ids, [text.tokenizer.token(token_id) for token_id in token_ids]

    async def models(self) -> list[ModelInfo]:
        return await self.catalog.list()

    async def _admit(self, tenant: Tenant, completion: Completion) -> tuple[list[SequenceRequest], ServedModel]:
        """A sequence for each sample."""
        check_num_samples(completion.n, tenant, self._config.max_running)
        self._places.check(tenant, completion.n)  # early, for it is cheap
        self._budgets.check(tenant)
        model = self.catalog.find(completion.model)
        prompt_ids = await encode(model.text, completion.prompt, completion.tools)
        request = admit(completion, prompt_ids, tenant=tenant, model=model, sequence_id=next(self._sequence_ids))
        request = replace(request, proposers=self._controllers.begin(tenant))
        return samples_of(request, completion.n, self._sequence_ids), model

    async def _take_places(self, tenant: Tenant, deadline: float | None, num_places: int) -> None:
        began = time.monotonic()
        await self._places.take(tenant, deadline, num_places)
        self.metrics.admission_seconds.observe(time.monotonic() - began, tenant.name)

    def _output(
        self,
        completion: Completion,
        tenant: Tenant,
        request: SequenceRequest,
        model: ServedModel,
        received: float,
        stream: ClientStream,
    ) -> Output:
        text = CompletionText(model.text.tokenizer, completion.stop, include_stop=completion.include_stop)
        ledger = Ledger(
            self.metrics,
            request.tenant,
            received=received,
            prompt_tokens=request.num_prompt_tokens,
            num_draft_tokens=request.num_draft_tokens,
            seed=request.seed,
        )
        prompt = PromptEcho(
            request.token_ids,
            model.text.tokenizer,
            echo=completion.echo and request.sample_index == 0,
            logprobs=request.sampling.prompt_logprobs,
        )
        charge = partial(self._budgets.charge, tenant)
        watched = WatchedText(text, self.feed, request, model.info.name)
        return Output(watched, ledger, stream, charge, prompt, request.sample_index)

    def _on_end(self, tenant: Tenant, output: Output, spans: RequestSpans) -> Callable[[Ended], None]:
        def on_end(ended: Ended) -> None:
            self._places.give_back(tenant)
            note_end(ended, output, spans, self.feed)

        return on_end

    def _make_peers(self, tokenizers: TokenizerStore) -> Peers:
        config, feed = self._config, self.feed
        verifiers = Pool(
            config.verifiers,
            lambda address: WatchedDialect(VerifierDialect(address, tokenizers), address, feed),
            self._verifiers_changed,
            tls=config.peer_tls,
            note_malformed=self._note_malformed,
        )
        drafters = Pool(
            config.drafters,
            lambda address: WatchedDialect(DrafterDialect(), address, feed),
            tls=config.peer_tls,
            note_malformed=self._note_malformed,
        )
        return Peers(
            verifiers=verifiers,
            drafters=drafters,
            complaints=Complaints(),
            controllers=self._controllers,
            recent_outputs=RecentOutputs(),
            recovery_seconds=config.recovery_seconds,
            tritonserver=self._make_tritonserver(),
        )

    def _make_tritonserver(self) -> TritonServer | None:
        config = self._config.tritonserver
        return None if config is None else TritonServer(config, partial(self.metrics.tritonserver_calls.add, 1))

    def _note_malformed(self, peer: str) -> None:
        self.metrics.malformed_messages.add(1, peer)

    def _verifiers_changed(self) -> None:
        self._places.look_again()
        self._on_serving(self.is_serving)
