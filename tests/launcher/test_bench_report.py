"""What a bench run says: percentiles, rates of sums, failures, and numbers that scripts can read."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from launcher.bench_report import BenchReport, Sample, percentiles
from slipstream.wire.v1 import generation_pb2 as pb


def make_report() -> BenchReport:
    report = BenchReport(num_streams=2, seconds=4.0)
    usage = pb.Usage(completion_tokens=10, num_passes=5, num_drafts=4, num_draft_tokens=12, accepted_tokens=6)
    for first, each in ((0.1, 0.02), (0.3, None)):
        report.add(Sample(first, each), pb.GenerateResponse(usage=usage))
    return report


def test_rates_are_of_all_streams_together() -> None:
    values = make_report().as_dict()
    assert (values["requests"], values["output_tokens"], values["tokens_per_second"]) == (2, 20, 5.0)
    assert (values["acceptance_length"], values["tokens_per_pass"]) == (1 + 6 / 4, 2.0)


def test_a_request_of_one_message_has_no_time_per_token() -> None:
    values = make_report().as_dict()
    assert values["tpot_ms"] == {"p50": pytest.approx(20), "p99": pytest.approx(20)}
    assert values["ttft_ms"]["p50"] == pytest.approx(200)


def test_percentiles_of_nothing_are_zero() -> None:
    assert percentiles([]) == {"p50": 0.0, "p99": 0.0}


def test_json_is_one_document_and_failures_are_counted_by_text() -> None:
    report = make_report()
    report.add_failure("RESOURCE_EXHAUSTED: full")
    report.add_failure("RESOURCE_EXHAUSTED: full")
    assert json.loads(report.as_json_text())["failures"] == {"RESOURCE_EXHAUSTED: full": 2}
    console = Console(width=100, record=True, file=StringIO())
    console.print(report.as_table())
    text = console.export_text()
    assert "2 failed" in text
    assert "200.0 / 298.0 ms" in text
