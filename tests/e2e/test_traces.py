"""One request through three real processes is one trace, and nothing is told of its text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, eventually, request
from tests.e2e.conftest import tenants
from tests.telemetry.collector import Collector, collecting
from tests.tiny_models import make_checkpoint, make_similar_checkpoint

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLERS_SPAN = "b7ad6b7169203331"
LIMITS = ("--max-model-len", "256")


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Collector]]:
    folder = tmp_path_factory.mktemp("traces")
    target = make_checkpoint(folder / "target", seed=1)
    draft = make_similar_checkpoint(target, folder / "draft")
    with collecting() as (collector, address), Cluster(folder) as cluster:
        cluster.verifier(target, *LIMITS, "--otlp-endpoint", address)
        cluster.drafter(draft, *LIMITS, "--otlp-endpoint", address)
        cluster.gateway(tenants("ratio"), "--otlp-endpoint", address)
        yield cluster, collector


async def spans_of(collector: Collector, trace: str, *roots: str) -> dict[str, list[Any]]:
    """Of each service, once those that end last have come."""

    def found() -> dict[str, list[Any]]:
        services = ("gateway", "verifier", "drafter")
        return {one: [span for span in collector.of(one) if span.trace_id.hex() == trace] for one in services}

    async def has_all() -> bool:
        names = {span.name for spans in found().values() for span in spans}
        return set(roots) <= names

    await eventually(has_all, seconds=60.0)
    return found()


async def test_three_services_share_the_callers_trace(traced: tuple[Cluster, Collector]) -> None:
    cluster, collector = traced
    asked = request([5, 6, 7, 8], max_tokens=40, temperature=0.0, ignore_eos=True, request_id="followed")
    async with cluster.client("draft_model") as client:
        client.metadata = (*client.metadata, ("traceparent", f"00-{TRACE}-{CALLERS_SPAN}-01"))
        answer = await client.generate(asked)
    spans = await spans_of(collector, TRACE, "request", "verifier sequence", "drafter sequence")
    (root,) = [span for span in spans["gateway"] if span.name == "request"]
    assert root.parent_span_id.hex() == CALLERS_SPAN
    sequences = [span for one in spans.values() for span in one if span.name.endswith(" sequence")]
    assert [span.parent_span_id for span in sequences] == [root.span_id] * 2
    assert {span.name for span in spans["gateway"]} == {"request", "queue"}
    assert {span.name for span in spans["verifier"]} == {"verifier sequence", "queue", "prefill", "verify"}
    assert {span.name for span in spans["drafter"]} == {"drafter sequence", "draft"}
    verified = [attributes(span) for span in spans["verifier"] if span.name == "verify"]
    assert sum(one["slipstream.tokens"] for one in verified) == len(answer.token_ids) == 40
    assert attributes(root)["slipstream.accepted_tokens"] == sum(answer.drafted)
    assert {attributes(span)["slipstream.request"] for span in (root, *sequences)} == {"followed"}
    assert answer.text not in str(spans)


async def test_a_caller_that_does_not_want_a_trace_gets_none(traced: tuple[Cluster, Collector]) -> None:
    cluster, collector = traced
    unwanted, wanted = "1" * 32, "2" * 32
    async with cluster.client("ngram") as client:
        metadata = client.metadata
        for trace, flags in ((unwanted, "00"), (wanted, "01")):
            client.metadata = (*metadata, ("traceparent", f"00-{trace}-{CALLERS_SPAN}-{flags}"))
            await client.generate(request([5, 6], max_tokens=4, temperature=0.0))
    await spans_of(collector, wanted, "request", "verifier sequence")
    names = [
        span.name for one in ("gateway", "verifier") for span in collector.of(one) if span.trace_id.hex() == unwanted
    ]
    assert names == []


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}
