"""torchft's DiLoCo as `busbw train` runs it: busbw_accel's local steps with the same settings reach
the same parameters.
"""

import sys
from importlib.util import find_spec
from typing import Any

import jobs
import pytest
import torch.distributed as dist
from local_models import flat, sgd
from trainings import DEVICE, model, parameters, step_of

from busbw.core.errors import NoMeasurement, UsageError
from busbw_accel.train.methods import TORCHFT_DILOCO, TORCHFT_EVERY, parse
from busbw_accel.train.torchft_diloco import check

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]

installed = pytest.mark.skipif(find_spec("torchft") is None, reason="torchft is not installed")
MOST_APART = 1e-5  # of all parameters; sums are rounded in another order


def two_exchanges() -> dict[str, Any]:
    """By busbw_accel, and by torchft with the same batches. A scenario of a rank."""
    # pytest itself, which finds this module too, does not need them
    from busbw_accel.train.bench import wrap
    from busbw_accel.train.loop import scaler_for

    check("fp32")
    nets = []
    for name in (f"every={TORCHFT_EVERY}", TORCHFT_DILOCO):
        net = model(seed=dist.get_rank())  # that of rank 0 is taken
        before, optimizer = flat(net), sgd(net)
        wrapped = wrap(net, parse(name), DEVICE, 25.0, scaler_for("fp32", DEVICE), optimizer)
        for number in range(2 * TORCHFT_EVERY):
            step_of(wrapped.net, optimizer, number)
        wrapped.close()
        nets.append(flat(net))
    one, other = nets
    return {
        "apart": float((one - other).norm() / one.norm()),
        "moved": float((one - before).norm() / one.norm()),
        "digest": parameters(net),
    }


@installed
def test_torchft_and_local_steps_reach_the_same_parameters(tmp_path):
    results = jobs.run(tmp_path, "test_torchft_diloco", ["two_exchanges"], 2)
    found = [result["two_exchanges"] for result in results]
    assert len({one["digest"] for one in found}) == 1, "after an exchange ranks are equal"
    assert all(one["moved"] > 0.1 and one["apart"] < MOST_APART for one in found)


def test_torchft_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchft", None)
    with pytest.raises(NoMeasurement, match="torchft is not installed") as caught:
        check("fp32")
    assert "pip install torchft" in caught.value.hint


def test_a_precision_whose_steps_are_skipped_is_refused():
    with pytest.raises(UsageError, match="fp16"):
        check("fp16")
