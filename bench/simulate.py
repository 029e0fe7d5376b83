"""Which waiting rule and which fan-out pay, by simulation (pipeline_simulation.py). Prints tables of tokens a second.

    python -m bench.simulate [--machine gpu-8b|...] [--acceptance .8,.7,.6] [--seconds S] [--streams 1,8,32]
    python -m bench.simulate --against FILE

The second takes what `bench_serving --json FILE` measured: a pass's time, that of a batch of drafts, the round trip,
acceptance by position and hit rates. From these it predicts tokens a second, prompts left out, at each point with
drafts of a model, and prints the measured ones beside them. Wanted: within 10 %.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench.controller_machines import MACHINES, Machine
from bench.pipeline_simulation import Counts, Pipeline, Setting, Text

FAN_OUTS: Final = (0, 1, 2, 4, 8, 16)
BOUNDS: Final = (0.0, 0.5, 1.0, 2.0)  # of waiting, in passes
LONG: Final = 60.0  # seconds: a bound that only patience ends
WARM_SHARE: Final = 0.2  # of the time, before counting begins
GOAL: Final = 0.10  # relative error
BISECTIONS: Final = 7


@dataclass(frozen=True, slots=True)
class Prediction:
    name: str
    measured: float  # tokens a second
    predicted: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def rate(machine: Machine, text: Text, setting: Setting, seconds: float) -> tuple[float, Counts]:
    """Tokens a second, and what was counted."""
    pipeline = Pipeline(machine, text, setting)
    pipeline.run(WARM_SHARE * seconds)
    counts = pipeline.run(seconds)
    return counts.tokens / seconds, counts


def waiting_rules(machine: Machine, num_draft_tokens: int) -> dict[str, tuple[float, bool]]:
    """Longest wait and whether patience may end it, by name."""
    one_pass = machine.verify_seconds(1 + num_draft_tokens)
    rules = {f"up to {bound:g} passes" if bound else "never": (bound * one_pass, False) for bound in BOUNDS}
    return rules | {"as long as it pays": (LONG, True)}


def explore(machine: Machine, text: Text, k: int, streams: Sequence[int], seconds: float) -> Iterator[str]:
    for num_streams in streams:
        plain, _ = rate(machine, text, Setting(num_draft_tokens=0, num_streams=num_streams), seconds)
        yield f"{machine.name}, {num_streams} streams, K = {k}: plain {plain:.0f} tok/s; tok/s (hit rate) by fan-out"
        yield f"  {'waits':20}" + "".join(f"{fan_out:>14}" for fan_out in FAN_OUTS)
        rules = waiting_rules(machine, k) if num_streams == 1 else {"never": (0.0, False)}
        for name, (most, is_patient) in rules.items():
            base = Setting(num_draft_tokens=k, max_wait=most, is_patient=is_patient, num_streams=num_streams)
            cells = [rate(machine, text, replace(base, fan_out=fan_out), seconds) for fan_out in FAN_OUTS]
            yield f"  {name:20}" + "".join(f"{found:8.0f} ({counts.hit_rate:.2f})" for found, counts in cells)


def compare(run: dict[str, Any], seconds: float) -> Iterator[Prediction]:
    """Of each measured point whose drafts came from a drafter service. Many streams tell as much in less time."""
    together = run.get("hands_over", False)
    plain = {(point["temperature"], point["streams"]): point for point in run["points"] if point["proposer"] == "none"}
    for point in run["points"]:
        beside = plain.get((point["temperature"], point["streams"]))
        if beside is not None and point["draft_ms"] > 0 and point["decode_tokens_per_second"] > 0:
            setting = measured_setting(point, together=together)
            predicted = predict(point, beside, setting, seconds / max(1.0, setting.num_streams / 4))
            yield Prediction(point["name"], point["decode_tokens_per_second"], predicted)


def predict(point: dict[str, Any], plain: dict[str, Any], setting: Setting, seconds: float) -> float:
    machine = measured_machine(point, plain)
    text = Text(acceptance=tuple(point["acceptance_per_position"]) or (0.0,))
    if setting.fan_out:
        text = fitted(machine, text, setting, point["hit_rate"], seconds)
    return rate(machine, text, setting, seconds)[0]


def fitted(machine: Machine, text: Text, setting: Setting, hit_rate: float, seconds: float) -> Text:
    """With guesses right so often that the hit rate is the measured one, as far as time lets it."""
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        text = replace(text, recovered_first=middle, bonus_first=middle)
        _, counts = rate(machine, text, setting, seconds)
        low, high = (middle, high) if counts.hit_rate < hit_rate else (low, middle)
    return text


def measured_machine(point: dict[str, Any], plain: dict[str, Any]) -> Machine:
    """Every pass takes what the point's did on average, and what plain decoding took between two steps besides.

    Mean step times of two sizes say less: what drafts of a few sequences cost is not their tokens but their drafting.
    """
    gap = max(0.0, plain["streams"] / plain["decode_tokens_per_second"] - plain["step_ms"] * 1e-3)
    one_pass = point["step_ms"] * 1e-3 + gap
    return Machine(
        name=point["name"],
        verify=((1.0, one_pass), (2.0, one_pass)),
        draft_token=point["draft_ms"] / max(1, point["num_draft_tokens"]) * 1e-3,  # a loop draws all in one step
        draft_rows=1 << 20,  # the measured time is that of all rows
        round_trip=point["round_trip_ms"] * 1e-3,
        overlaps=point["overlaps"],
    )


def measured_setting(point: dict[str, Any], *, together: bool) -> Setting:
    """`together`: verifier and drafter are one process on one GPU, where all streams wait for their drafts."""
    return Setting(
        num_draft_tokens=point["num_draft_tokens"],
        fan_out=point["fan_out"],
        max_wait=point["max_wait_ms"] * 1e-3,
        is_patient=True,
        waits_together=together,
        draws_at_once=point["draft_step_ms"] > 0.6 * point["draft_ms"],
        num_streams=point["streams"],
    )


def show(predictions: Sequence[Prediction]) -> None:
    print(f"{'point':44} {'measured':>10} {'predicted':>10} {'error':>8}   tok/s")
    for one in predictions:
        print(f"{one.name:44} {one.measured:10.1f} {one.predicted:10.1f} {one.error:+8.1%}")
    within = sum(abs(one.error) <= GOAL for one in predictions)
    print(f"{within} of {len(predictions)} within {GOAL:.0%}")


def numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", choices=sorted(MACHINES), default="gpu-8b")
    parser.add_argument("--acceptance", type=numbers, default=(0.75, 0.7, 0.68))
    parser.add_argument("--draft-tokens", type=int, default=5)
    parser.add_argument("--streams", type=numbers, default=(1, 8, 32))
    parser.add_argument("--seconds", type=float, default=4.0, help="simulated, of each cell")
    parser.add_argument("--against", type=Path, help="what bench_serving --json wrote")
    options = parser.parse_args()
    if options.against is not None:
        show(list(compare(json.loads(options.against.read_text()), options.seconds)))
        return
    text, streams = Text(acceptance=options.acceptance), [int(number) for number in options.streams]
    for line in explore(MACHINES[options.machine], text, options.draft_tokens, streams, options.seconds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
