"""Hosts with several NICs: what NCCL sees of them, and which of them carry a device's messages."""

import pytest
from peers import Peer, assert_complete, link, move
from rails import Rails

pytestmark = [pytest.mark.netlab, pytest.mark.timeout(120), pytest.mark.xdist_group("native")]

SIZE = 4 << 20
LITTLE = SIZE // 100


def carried(a: Peer, b: Peer, rails: Rails, device: int, count: int = 2) -> list[int]:
    """Bytes on each rail while a connection of a device moves messages."""
    before = rails.sent(0)
    pair = link(a, b, device=device)[0]
    messages = [[SIZE, number] for number in range(count)]
    assert_complete(*move(a, b, pair, messages), messages=count)
    return [late - early for early, late in zip(before, rails.sent(0), strict=True)]


@pytest.mark.parametrize("count", [1, 2, 8])
def test_each_nic_is_a_device_that_carries_its_own_messages(job, own_rails, count):
    rails = own_rails(count)
    a, b = job(rails)
    devices = a.call("init")["devices"]
    assert [device["name"] for device in devices] == rails.hosts[0].interfaces
    assert len({device["guid"] for device in devices}) == count
    for device in range(count):
        moved = carried(a, b, rails, device)
        assert moved.pop(device) > 2 * SIZE and all(other < LITTLE for other in moved)


def test_merged_nics_are_one_device_and_carry_each_message_together(job, own_rails):
    rails = own_rails(8)
    a, b = job(rails, BUSBW_NET_MERGE="1")
    (device,) = a.call("init")["devices"]
    assert device["name"] == "+".join(rails.hosts[0].interfaces)
    assert all(bytes_ > LITTLE for bytes_ in carried(a, b, rails, 0, 20))


def test_rails_without_routes_between_them_are_not_crossed(job, own_rails):
    rails = own_rails(4)
    a, b = job(rails)
    listening = b.call("listen", device=2)
    a.start("connect", handles=[listening["handle"]], device=0, limit_s=10)
    b.start("accept", listeners=[listening["comm"]], limit_s=10)
    pair = (a.result()["comms"][0], b.result()["comms"][0])
    before = rails.sent(0)
    assert_complete(*move(a, b, pair, [[SIZE, 1]]), messages=1)
    moved = [late - early for early, late in zip(before, rails.sent(0), strict=True)]
    assert moved[2] > SIZE and sum(moved) - moved[2] < LITTLE


@pytest.mark.parametrize("size", [100, SIZE])
def test_another_nic_takes_over_when_that_of_a_device_fails(job, own_rails, size):
    rails = own_rails(3)
    a, b = job(rails)
    pair = link(a, b, device=1)[0]
    assert_complete(*move(a, b, pair, [[size, 1]]), messages=1)
    rails.blackhole(1)
    before = rails.sent(0)
    assert_complete(*move(a, b, pair, [[size, 2]] * 3), messages=3)
    moved = [late - early for early, late in zip(before, rails.sent(0), strict=True)]
    assert moved[2] > max(3 * size, moved[0]), "neighbors are looked up on all, in up to 400 bytes"
