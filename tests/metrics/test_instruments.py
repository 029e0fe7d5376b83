"""Counters, histograms and gauges, and how many series a peer can make."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from slipstream.metrics.endpoint import make_registry
from slipstream.metrics.instruments import MAX_SERIES, OTHER, Counter, Gauge, Histogram, Instrument


def shown(*instruments: Instrument) -> CollectorRegistry:
    return make_registry("test", instruments)


def test_a_counter_adds_up_by_label() -> None:
    drops = Counter("drops", "d", ("reason",))
    drops.add(1, "stale")
    drops.add(2, "stale")
    drops.add(1, "empty")
    registry = shown(drops)
    assert registry.get_sample_value("drops_total", {"reason": "stale"}) == 3
    assert registry.get_sample_value("drops_total", {"reason": "empty"}) == 1


def test_a_counter_without_labels_is_shown_before_its_first_addition() -> None:
    assert shown(Counter("drops", "d")).get_sample_value("drops_total") == 0


def test_a_histogram_counts_a_value_on_a_bound_below_it() -> None:
    seconds = Histogram("seconds", "s", ("tenant",), bounds=(1, 2))
    for value in (0.5, 1.0, 1.5, 9.0):
        seconds.observe(value, "acme")
    registry = shown(seconds)

    def at_most(bound: str) -> float | None:
        return registry.get_sample_value("seconds_bucket", {"tenant": "acme", "le": bound})

    assert (at_most("1.0"), at_most("2.0"), at_most("+Inf")) == (2, 3, 4)
    assert registry.get_sample_value("seconds_sum", {"tenant": "acme"}) == 12
    assert registry.get_sample_value("seconds_count", {"tenant": "acme"}) == seconds.count("acme") == 4


def test_a_gauge_is_read_when_it_is_scraped() -> None:
    open_sequences: list[int] = []
    registry = shown(Gauge("open", "o", lambda: len(open_sequences)))
    open_sequences += [1, 2]
    assert registry.get_sample_value("open") == 2


def test_invented_labels_share_one_series_beyond_a_bound() -> None:
    drops, seconds = Counter("drops", "d", ("tenant",)), Histogram("seconds", "s", ("tenant",))
    for number in range(MAX_SERIES + 10):
        drops.add(1, f"tenant {number}")
        seconds.observe(1, f"tenant {number}")
    drops.add(1, "tenant 0")
    assert (drops.value(OTHER), seconds.count(OTHER), drops.value("tenant 0")) == (10, 10, 2)


def test_two_services_of_one_process_do_not_clash() -> None:
    first, second = Counter("drops", "d"), Counter("drops", "d")
    first.add(1)
    assert shown(first).get_sample_value("drops_total") == 1
    assert shown(second).get_sample_value("drops_total") == 0
