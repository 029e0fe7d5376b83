"""What drafting adds to a pass, estimated."""

from __future__ import annotations

import random

import pytest

from gateway.control.price import Price


def measured(price: Price, share: float, passes: int, drafting: float = 0.02, noise: float = 0.01) -> Price:
    draw = random.Random(1)
    for _ in range(passes):
        price.note(drafting, share * drafting + draw.gauss(0, noise), noise)
    return price


def test_it_comes_to_what_was_measured_in_a_few_passes() -> None:
    assert measured(Price(1.0), 1.5, 30).mean == pytest.approx(1.5, abs=0.2)


def test_it_is_thought_to_be_more_than_measured_the_less_is_known() -> None:
    few, many = measured(Price(1.0), 0.0, 1), measured(Price(1.0), 0.0, 200)
    assert few.cautious > 0.3
    assert many.cautious < 0.2
    assert Price(1.0).cautious == 1.0


def test_passes_that_became_shorter_do_not_make_it_a_gain() -> None:
    assert measured(Price(1.0), -1.0, 100).mean == 0.0


def test_a_changed_price_is_learned() -> None:
    price = measured(Price(1.0), 0.0, 300)
    assert measured(price, 2.0, 150).mean == pytest.approx(2.0, abs=0.4)


def test_little_drafting_says_little() -> None:
    little, much = measured(Price(1.0), 1.0, 5, drafting=0.001), measured(Price(1.0), 1.0, 5, drafting=0.05)
    assert little.cautious - little.mean > 3 * (much.cautious - much.mean)
