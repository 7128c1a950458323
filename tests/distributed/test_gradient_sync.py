"""What averages gradients, in one process."""

from collections.abc import Iterator

import pytest
import torch.distributed as dist
from torch import nn, ones

from lmsweep.trials.distributed.parallel.gradient_sync import SYNCHRONIZERS


@pytest.fixture
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("variant", ["naive", "flat", "overlap", "bucketed"])
@pytest.mark.usefixtures("one_rank")
def test_a_parameter_without_a_part_in_the_loss_is_an_error(variant: str) -> None:
    model = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.Linear(3, 3, bias=False)])
    synchronizer = SYNCHRONIZERS[variant](model, None)
    model[0](ones(1, 2)).sum().backward()
    with pytest.raises(ValueError, match=r"shape \(3, 3\) has no gradient after backward"):
        synchronizer.finish()
