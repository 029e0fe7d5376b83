"""Puts a drafter together and serves it: model, thread, event loop, port. Knows no command line."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from drafter_svc.adapter_folder import AdapterFolder
from drafter_svc.adapters import LoadAdapter
from drafter_svc.beside import Beside
from drafter_svc.config import DrafterConfig
from drafter_svc.drafter import Drafter
from drafter_svc.events import Event, Output
from drafter_svc.proposers import make_proposer
from drafter_svc.servicer import DrafterServicer
from drafter_svc.warm_up import warm_up
from slipstream.config import EngineConfig
from slipstream.engine.engine_thread import EngineThread, apart, unchanged
from slipstream.engine.lane import OwnLane
from slipstream.exchange import ModelInfo
from slipstream.metrics.endpoint import shown
from slipstream.metrics.instruments import Instrument
from slipstream.metrics.load import load_gauges
from slipstream.models.draft_checkpoint import tokenizer_folder
from slipstream.models.eagle3_checkpoint import feature_fingerprint, is_eagle3_folder
from slipstream.models.loader import load_config, open_checkpoint
from slipstream.telemetry.otlp import exporting
from slipstream.text.tokenizer import Tokenizer
from slipstream.timeline import NO_TIMELINE, Timeline
from slipstream.version import version
from slipstream.wire import server
from slipstream.wire.part import Failure, Part
from slipstream.wire.v1 import drafter_pb2, drafter_pb2_grpc

_LOG = logging.getLogger(__name__)


def make_drafter(config: DrafterConfig, timeline: Timeline = NO_TIMELINE) -> Drafter:
    """Loads the model. Raises CheckpointError naming the file, ValueError naming the setting."""
    tokenizer = Tokenizer.from_folder(_tokenizer_folder(config.engine))
    proposer = make_proposer(config, tokenizer.vocab_size)
    warm_up(proposer)
    model = ModelInfo(
        name=config.engine.model.name,
        vocabulary_hash=tokenizer.vocabulary_hash,
        vocab_size=proposer.limits.vocab_size,
        max_model_len=proposer.limits.max_model_len,
        dtype=config.engine.dtype,
        device=config.engine.device,
        version=version(),
        proposers=(config.proposer,),
        features=feature_fingerprint(config.engine.model) if proposer.limits.feature_size else "",
    )
    drafter = Drafter(
        proposer,
        config.row_limits,
        model,
        config.engine.max_num_seqs,
        stop_below=config.stop_below,
        timeline=timeline,
    )
    _load_adapters(drafter, config)
    return drafter


def _load_adapters(drafter: Drafter, config: DrafterConfig) -> None:
    if not config.adapters.wanted:
        return
    folder = adapter_folder(config)
    for name, path in config.adapters.at_start:
        drafter.adapters.load(LoadAdapter(name, str(path), folder.load(path)))
    held = drafter.adapters.listed()
    room = held.max_adapters * held.bytes_per_adapter / 2**20
    _LOG.info("room for %d adapters takes %.1f MiB; loaded: %d", held.max_adapters, room, len(held.adapters))


def adapter_folder(config: DrafterConfig) -> AdapterFolder:
    """Where adapters of the configured draft model come from."""
    settings = config.adapters
    if not settings.wanted:
        return AdapterFolder()
    model = load_config(open_checkpoint(config.engine.model, config.engine.target_model))
    return AdapterFolder(settings.directory, model, settings.max_rank)


def _tokenizer_folder(engine: EngineConfig) -> Path:
    """A head has its target's tokenizer, and seldom a copy of it."""
    if is_eagle3_folder(engine.model):
        return engine.target_model or engine.model
    return tokenizer_folder(engine.model, engine.target_model)


def instruments(drafter: Drafter) -> list[Instrument]:
    """All that this service shows."""
    return [*vars(drafter.metrics).values(), *load_gauges(drafter.info)]


async def serve_drafter(config: DrafterConfig) -> None:
    """Serves until told to stop; an engine that dies ends it with RuntimeError."""
    failure = Failure()
    async with drafter_part(config, failure) as part:
        listening = server.ServerConfig(listen=config.listen, tls=config.tls)
        await server.serve("drafter", part, listening, failure=failure.future)


@asynccontextmanager
async def drafter_part(
    config: DrafterConfig,
    failure: Failure,
    timeline: Timeline = NO_TIMELINE,
    *,
    shares_process: bool = False,
    beside: Beside | None = None,
) -> AsyncIterator[Part]:
    """A drafter at work, and its metrics, for as long as the block lasts."""
    with exporting(config.otlp_endpoint, "drafter") as tracer:
        drafter = apart(lambda: make_drafter(config, timeline), config.engine.device)
        folder = adapter_folder(config)
        servicer = DrafterServicer(lambda event: post(event), lambda: info(), drafter.metrics, folder, tracer)
        lane = OwnLane(config.engine) if shares_process else nullcontext
        divert = unchanged if beside is None else beside.take_drafts
        engine = EngineThread[Event, Output](drafter, servicer.deliver, failure.report, "drafter", lane, divert)
        post = engine.post if beside is None else beside.hear(engine)
        info = drafter.info if beside is None else lambda: replace(drafter.info(), process=beside.process)
        engine.start()
        try:
            async with shown("drafter", config.metrics_listen, instruments(drafter)):
                yield Part(
                    service_names=(drafter_pb2.DESCRIPTOR.services_by_name["Drafter"].full_name,),
                    register=lambda s: drafter_pb2_grpc.add_DrafterServicer_to_server(servicer, s),
                    drain=_no_drain,
                )
        finally:
            await engine.stop()


async def _no_drain() -> None:
    """Drafts are worth nothing to a gateway that must go elsewhere: streams end at once."""
