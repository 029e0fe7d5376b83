"""Sweeps how attention of verify passes is cut up: `python -m bench.sweep_attention`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from bench.kernels.attention import SHAPES, attention_inputs
from bench.timing import copy_bandwidth, microseconds
from slipstream.kernels.gpu.attention import attend_batch
from slipstream.kernels.gpu.attention_plan import AttentionPlan, plan_of

INPUT_SETS = 4
SPLITS, STAGES = (1, 2, 4, 8, 16, 32, 64), (2, 3, 4)


def variants(plan: AttentionPlan) -> list[AttentionPlan]:
    """The plan itself, and those near it."""
    near = [splits for splits in SPLITS if plan.num_splits // 2 <= splits <= 2 * plan.num_splits]
    return [
        replace(plan, num_splits=splits, most_usual=splits, num_stages=stages) for splits in near for stages in STAGES
    ]


@torch.inference_mode()
def main() -> None:
    bandwidth = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, copy {bandwidth / 1e12:.2f} TB/s; us by splits x stages; * = as planned")
    for shape in SHAPES:
        name, sequences, query_len, context, _, kv_heads, dim = shape
        if query_len > 16:
            continue
        inputs = [attention_inputs(*shape[1:]) for _ in range(INPUT_SETS)]
        floor = 4 * dim * sequences * context * kv_heads / bandwidth * 1e6
        planned = plan_of(inputs[0][0], inputs[0][1], inputs[0][3])
        figures = []
        for plan in variants(planned):
            time = microseconds([partial(attend_batch, *given, plan) for given in inputs])
            mark = "*" if plan == planned else ""
            figures.append(f"{plan.num_splits} x {plan.num_stages}{mark}: {time:.1f}")
        print(f"{name} {sequences} x {query_len} over {context}, floor {floor:.1f}: {', '.join(figures)}", flush=True)


if __name__ == "__main__":
    main()
