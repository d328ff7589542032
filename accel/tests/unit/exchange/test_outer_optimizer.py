"""The division of a model into fragments and buckets."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from busbw_accel import outer_optimizer
from busbw_accel.outer_optimizer import divide, fragments_of, renew
from busbw_accel.settings import Settings

pytestmark = pytest.mark.torch


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40), st.data())
def test_fragments_have_all_parameters_in_order_and_none_is_empty(lengths, data):
    parts = data.draw(st.integers(1, len(lengths)))
    ranges = divide(lengths, parts)
    assert len(ranges) == parts and all(ranges)
    assert [at for indices in ranges for at in indices] == list(range(len(lengths)))


def test_fragments_of_equal_layers_are_equal():
    assert [len(indices) for indices in divide([100] * 12, 4)] == [3, 3, 3, 3]
    assert divide([1000, 10, 10, 10], 2) == [range(1), range(1, 4)]


def model():
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4))


def names_of(fragments):
    return [[bucket.names for bucket in fragment] for fragment in fragments]


def test_codecs_get_matrices_and_the_first_fragment_the_buffers():
    found = fragments_of(model(), Settings(every=4, fragments=2))
    assert names_of(found) == [
        [["0.weight"], ["1.running_mean", "1.running_var"]],
        [["2.weight"], ["0.bias", "1.weight", "1.bias", "2.bias"]],
    ]
    assert [[bucket.dense for bucket in buckets] for buckets in found] == [[False, True]] * 2


def test_large_buckets_are_divided_and_types_apart(monkeypatch):
    monkeypatch.setattr(outer_optimizer, "BUCKET_BYTES", 1 << 10)
    net = model()
    net[2].weight.data = net[2].weight.data.bfloat16()
    settings = Settings(every=4, dense_below_2d=False)
    [buckets] = fragments_of(net, settings)
    assert names_of([buckets]) == [
        [
            ["0.weight", "0.bias", "1.weight", "1.bias"],
            ["2.weight"],
            ["2.bias"],
            ["1.running_mean", "1.running_var"],
        ]
    ]
    assert {bucket.outer.dtype for bucket in buckets} == {torch.float32}


def test_a_parameter_that_is_replaced_is_used_and_another_shape_is_named():
    net = model()
    [buckets] = fragments_of(net, Settings(every=4))
    net[0].weight = nn.Parameter(torch.ones(16, 8))
    assert renew(buckets, net) == "" and buckets[0].tensors[0] is net[0].weight
    net[0].weight = nn.Parameter(torch.ones(16, 9))
    assert renew(buckets, net) == "0.weight"
