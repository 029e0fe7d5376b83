"""What ranks sum and gather while they compute."""

import torch

from slipstream.parallel.all_reduce import GroupAllReduce, make_all_reduce
from slipstream.parallel.ranks import ALONE, RankGroup
from tests.parallel.rank_threads import on_ranks


def test_ranks_add_up_and_put_theirs_side_by_side() -> None:
    def run(ranks: RankGroup) -> tuple[list[float], list[list[float]]]:
        mine = torch.full((2, 2), float(ranks.shard.rank + 1))
        return ranks.sum(mine.clone()).flatten().tolist(), ranks.gather(mine).tolist()

    assert on_ranks(3, run) == [([6.0] * 4, [[1.0, 1.0, 2.0, 2.0, 3.0, 3.0]] * 2)] * 3


def test_a_lone_rank_has_all_there_is() -> None:
    x = torch.ones(2, 3)
    assert ALONE.sum(x) is x
    assert ALONE.gather(x) is x


def test_without_gpus_of_one_machine_the_group_adds_up_whatever_was_asked() -> None:
    def run(ranks: RankGroup) -> list[type]:
        group = ranks._group
        cpu, gpu = torch.device("cpu"), torch.device("cuda")
        return [
            type(make_all_reduce("symmetric", group, cpu, True)),
            type(make_all_reduce("symmetric", group, gpu, False)),
            type(make_all_reduce("group", group, gpu, True)),
        ]

    assert on_ranks(2, run) == [[GroupAllReduce] * 3] * 2
