"""Beginnings of chats are many, different, and the same for the same seed."""

from __future__ import annotations

import random
from itertools import islice

from slipstream.training.questions import (
    TASKS,
    TOPICS,
    packaged_passages,
    passage_questions,
    passages_of,
    topic_questions,
)


def test_every_topic_meets_every_task_once() -> None:
    questions = list(topic_questions(random.Random(0)))
    assert len(set(questions)) == len(questions) == len(TASKS) * len(TOPICS)
    assert "{" not in "".join(questions)


def test_the_seed_decides_the_order() -> None:
    first, again, other = (list(islice(topic_questions(random.Random(seed)), 5)) for seed in (1, 1, 2))
    assert first == again != other


def test_short_paragraphs_are_joined_and_long_ones_left_out() -> None:
    text = "aa bb\n\ncc dd\n\n" + "e" * 50
    assert list(passages_of(text, shortest=10, longest=30)) == ["aa bb\n\ncc dd"]


def test_prose_is_unwrapped_and_code_is_not() -> None:
    text = "One line\nand another.\n\n    x = 1\n    y = 2"
    assert list(passages_of(text, shortest=1, longest=99)) == ["One line and another.", "    x = 1\n    y = 2".strip()]


def test_python_brings_thousands_of_passages_to_work_on() -> None:
    passages = packaged_passages()
    assert len(passages) > 1000
    question = next(passage_questions(passages, random.Random(0)))
    assert any(passage in question for passage in passages)
