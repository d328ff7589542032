"""The table and the cache that every rank keeps alike."""

import pytest
import torch

from busbw_accel.horovod.torch.requests import Cache, OperationKind, Request, RequestTable, Response

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("warm_python")]
MEMBERS = {0: (0, 1), 1: (1,)}


def request(name, shape=(2,), kind=OperationKind.ALLREDUCE, set_id=0):
    return Request(kind, name, set_id, (shape,), (torch.float32,))


def answer(name, set_id=0, shape=(2,)):
    return Response(
        (set_id, name), dict.fromkeys(MEMBERS[set_id], request(name, shape, set_id=set_id))
    )


def test_requests_of_all_ranks_run_in_order_of_first_request():
    table = RequestTable()
    for rank, name in ((0, "b"), (0, "a"), (1, "a"), (1, "c"), (1, "b")):
        table.add(rank, request(name))
    assert [response.key for response in table.take_ready(MEMBERS)] == [(0, "b"), (0, "a")]
    assert (0, "c") in table and (0, "a") not in table


def test_a_process_set_waits_for_its_ranks_only():
    table = RequestTable()
    table.add(1, request("a", set_id=1))
    assert [response.error for response in table.take_ready(MEMBERS)] == [""]
    table.add(1, request("a", set_id=7))
    assert "process set 7 no longer exists" in table.take_ready(MEMBERS)[0].error


def test_joined_ranks_are_not_waited_for():
    table = RequestTable()
    table.add(0, request("join", kind=OperationKind.JOIN))
    table.add(1, request("a"))
    table.add(1, request("g", kind=OperationKind.ALLGATHER))
    assert [bool(response.error) for response in table.take_ready(MEMBERS)] == [False, True]
    assert table.joined == {0}
    table.add(1, request("join", kind=OperationKind.JOIN))
    assert list(table.take_ready(MEMBERS)[0].requests) == [0, 1] and not table.joined


def test_waiting_requests_are_reported_periodically():
    table = RequestTable()
    table.add(0, request("a"))
    assert not table.stalled(MEMBERS, 1e6, 0)
    (stalled,) = table.stalled(MEMBERS, 0.0, 1e9)
    assert (stalled.key, stalled.ready, stalled.missing) == ((0, "a"), (0,), (1,))
    assert not table.stalled(MEMBERS, 10.0, 1e9 + 5) and table.stalled(MEMBERS, 10.0, 1e9 + 15)
    assert table.overdue(10.0, 1e9) == [(0, "a")]
    assert table.fail((0, "a"), "late").error == "late" and table.fail((0, "a"), "late") is None


def test_a_known_request_has_a_slot():
    cache = Cache(2, 0)
    cache.put(answer("a"), MEMBERS[0])
    assert cache.slot(request("a")) == 0
    assert cache.slot(request("a", (3,))) is None, "another shape is another request"
    assert cache.slot(request("b")) is None
    cache.put(answer("a", shape=(3,)), MEMBERS[0])
    assert cache.slot(request("a", (3,))) == 0 and cache.slots == 1


def test_the_least_recently_used_slot_is_reused():
    cache = Cache(2, 0)
    for name in ("a", "b"):
        cache.put(answer(name), MEMBERS[0])
    assert [request.key for request in cache.take(0b01)] == [(0, "a")]
    cache.put(answer("c"), MEMBERS[0])
    assert (cache.slot(request("a")), cache.slot(request("b")), cache.slot(request("c"))) == (
        0,
        None,
        1,
    )


def test_ranks_outside_a_set_count_as_ready():
    cache = Cache(4, 0)
    cache.put(answer("a"), MEMBERS[0])
    cache.put(answer("b", set_id=1), MEMBERS[1])
    assert cache.foreign == 0b10
    cache.drop_set(1)
    assert cache.foreign == 0 and cache.slots == 1


def test_one_off_requests_are_not_cached():
    cache = Cache(4, 0)
    cache.put(answer("allreduce.noname.3"), MEMBERS[0])
    cache.put(Response((0, "x"), answer("x").requests, "wrong"), MEMBERS[0])
    cache.put(Response((0, "y"), {1: request("y")}), MEMBERS[0])
    Cache(0, 0).put(answer("a"), MEMBERS[0])
    assert cache.slots == 0
