"""Puts a verifier together and serves it: model, thread, event loop, port. Knows no command line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, nullcontext
from dataclasses import replace
from functools import partial

from slipstream.engine.engine_thread import EngineThread, apart, unchanged
from slipstream.engine.lane import OwnLane
from slipstream.engine.scheduler import Scheduler
from slipstream.exchange import ModelInfo
from slipstream.metrics.endpoint import shown
from slipstream.metrics.instruments import Gauge, Instrument
from slipstream.metrics.load import load_gauges
from slipstream.parallel.crew import ONE_PROCESS, Crew, make_crew
from slipstream.proposers.ngram import NAME as NGRAM
from slipstream.telemetry.otlp import exporting
from slipstream.text.tokenizer import Tokenizer
from slipstream.timeline import NO_TIMELINE, Timeline, timeline_in
from slipstream.version import version
from slipstream.wire import server
from slipstream.wire.part import Failure, Part
from slipstream.wire.v1 import verifier_pb2, verifier_pb2_grpc
from verifier_svc.beside import Beside
from verifier_svc.config import VerifierConfig
from verifier_svc.guide import NAME as GRAMMAR
from verifier_svc.messages import Event, StreamOutput
from verifier_svc.observers import Observers
from verifier_svc.servicer import VerifierServicer
from verifier_svc.streams import OutgoingStreams
from verifier_svc.verifier import Verifier
from verifier_svc.warm_up import warm_up

_DRAIN_POLL_SECONDS = 0.02
_STOP_SECONDS = 5.0  # for an engine that has failed, or waits for a rank that has died


def make_verifier(config: VerifierConfig, timeline: Timeline = NO_TIMELINE, crew: Crew = ONE_PROCESS) -> Verifier:
    """Loads the model, on all ranks. Raises CheckpointError naming the file, ValueError naming the setting."""
    engine = config.engine
    scheduler = Scheduler(
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_waiting=config.max_waiting,
        pace=config.prompt_pace,
    )
    folder = engine.model if engine.model.is_dir() else engine.model.parent
    tokenizer = Tokenizer.from_folder(folder)
    local_proposers = (NGRAM, GRAMMAR) if config.ngram_fallback else (GRAMMAR,)
    runner = crew.make_runner(engine, timeline)
    if config.launches_ahead:
        runner.follow_steps()
    warm_up(runner)
    return Verifier(
        runner,
        tokenizer,
        scheduler,
        local_proposers=local_proposers,
        feature_tap=runner.feature_tap,
        timeline=timeline,
        launches_ahead=config.launches_ahead,
    )


def model_info(config: VerifierConfig, verifier: Verifier) -> ModelInfo:
    """What is served and how full it is; reads counts only, so any thread may ask."""
    served, pool = verifier.served, verifier.pool
    return ModelInfo(
        name=config.model_name,
        vocabulary_hash=served.tokenizer.vocabulary_hash,
        vocab_size=served.vocab_size,
        max_model_len=served.max_model_len,
        stop_token_ids=served.eos_token_ids,
        dtype=config.engine.dtype,
        device=config.engine.device,
        version=version(),
        kv_blocks_total=pool.num_blocks,
        kv_block_size=pool.block_size,
        kv_blocks_used=pool.num_used,
        num_sequences=len(verifier.sequences),
        features=served.features,
        max_num_seqs=config.engine.max_num_seqs,
    )


def instruments(config: VerifierConfig, verifier: Verifier) -> list[Instrument]:
    """All that this service shows."""
    return [
        *vars(verifier.metrics).values(),
        *load_gauges(lambda: model_info(config, verifier)),
        Gauge("slipstream_running_sequences", "Sequences that hold KV.", lambda: verifier.num_running),
        Gauge("slipstream_waiting_sequences", "Sequences that wait for a place.", lambda: verifier.num_waiting),
        Gauge("slipstream_graph_steps", "Steps replayed from a graph.", lambda: verifier.graph_steps.replayed),
        Gauge("slipstream_eager_steps", "Steps too large for a graph.", lambda: verifier.graph_steps.eager),
        Gauge("slipstream_graph_bytes", "GPU memory of the graphs.", lambda: verifier.graph_steps.num_bytes),
    ]


async def serve_verifier(config: VerifierConfig) -> None:
    """Serves until told to stop; an engine that dies ends it with RuntimeError."""
    failure = Failure()
    with timeline_in(config.trace) as timeline:
        async with verifier_part(config, failure, timeline) as part:
            listening = server.ServerConfig(listen=config.listen, tls=config.tls)
            await server.serve("verifier", part, listening, failure=failure.future)


@asynccontextmanager
async def verifier_part(
    config: VerifierConfig,
    failure: Failure,
    timeline: Timeline = NO_TIMELINE,
    *,
    shares_process: bool = False,
    beside: Beside | None = None,
) -> AsyncIterator[Part]:
    """A verifier at work, and its metrics, for as long as the block lasts."""
    with (
        closing(make_crew(config.engine)) as crew,
        exporting(config.otlp_endpoint, "verifier") as tracer,
    ):
        verifier = apart(lambda: make_verifier(config, timeline, crew), config.engine.device)
        streams = OutgoingStreams(config.max_queued_messages)
        lane = OwnLane(config.engine) if shares_process else nullcontext
        divert = unchanged if beside is None else beside.note_outputs
        engine = EngineThread[Event, list[StreamOutput]](
            verifier, streams.deliver, failure.report, "verifier", lane, divert
        )
        post: Callable[[Event], None] = engine.post
        if beside is not None:
            post = beside.hear(engine.post, verifier.metrics)
            verifier.hand_over_commits(beside.take_commits)
        loop = asyncio.get_running_loop()
        crew.on_death(lambda error: loop.call_soon_threadsafe(failure.report, error))
        observers = Observers(verifier.metrics, timeline, tracer)
        process = "" if beside is None else beside.process
        info = partial(_info_of, config, verifier, process)
        servicer = VerifierServicer(post, streams, verifier.served.tokenizer, info, observers)
        verifier.compile_apart(engine.post)
        if config.engine.device != "cpu":
            verifier.work_during_steps(engine.send, engine.take_in)
        engine.start()
        try:
            async with shown("verifier", config.metrics_listen, instruments(config, verifier)):
                yield Part(
                    service_names=(verifier_pb2.DESCRIPTOR.services_by_name["Verifier"].full_name,),
                    register=lambda s: verifier_pb2_grpc.add_VerifierServicer_to_server(servicer, s),
                    drain=lambda: _finished(servicer, streams, failure),
                )
        finally:
            await engine.stop(_STOP_SECONDS if failure.happened else None)


def _info_of(config: VerifierConfig, verifier: Verifier, process: str) -> ModelInfo:
    return replace(model_info(config, verifier), process=process)


async def _finished(servicer: VerifierServicer, streams: OutgoingStreams, failure: Failure) -> None:
    """Returns when every gateway has received the end of all that it opened, or nothing moves any more."""
    servicer.refuse_sequences()
    while not streams.are_quiet and not failure.happened:
        await asyncio.sleep(_DRAIN_POLL_SECONDS)
