"""What a lab asks of the kernel for a rate, a delay and a loss, compared with what tc of iproute2
6.1 asks for the same.

The messages of tc were read with strace. pyroute2 writes them without a socket here, so a kernel
without netem does not matter.
"""

import struct

import pytest

from busbw.lab import network
from busbw.lab.types import Shape

pyroute2 = pytest.importorskip("pyroute2")

# linux/netlink.h, struct nlmsghdr; linux/rtnetlink.h, struct tcmsg
NETLINK, TCMSG = 16, struct.Struct("=BxxxiIII")
# tc qdisc add dev lo root handle 1: netem delay 50us loss 0.01% limit 1000000
NETEM = (
    "000000000100000000000100ffffffff000000000a0001006e6574656d0000001c000200"
    # delay in ticks of 64 ns, limit, loss of 2^32, gap, duplicate, jitter
    "0d03000040420f00b98d0600000000000000000000000000"
)
# tc qdisc add dev lo parent 1:1 handle 10: tbf rate 25gbit burst 4194304 latency 20ms
TBF = (
    "000000000100000000001000010001000000000008000100746266003804020028000100"
    # rate, limit, burst in ticks
    "03010000ffff000040b743ba000000000000000000000000a0acf903e851000000000000"
)
LOSS = 44  # of NETEM
# of TBF: tc also sends the burst in bytes, and a link layer, which only DSL needs
SIZE, LINK_LAYER = 28, 37


def messages(shape: Shape) -> list[bytes]:
    """The netlink messages, without their headers."""
    with pyroute2.IPBatch() as batch:
        network.queue(batch, 1, shape)
        messages, remaining = [], bytes(batch.batch)
    while remaining:
        (size,) = struct.unpack_from("=I", remaining)
        messages.append(remaining[NETLINK:size])
        remaining = remaining[size:]
    return messages


def loss_of(message: bytes) -> int:
    return int.from_bytes(message[LOSS : LOSS + 4], "little")


def test_a_delay_and_a_loss_are_asked_for_as_tc_does():
    [message] = messages(Shape(delay=50e-6, loss=1e-4))
    reference = bytes.fromhex(NETEM)
    assert loss_of(message) == pytest.approx(loss_of(reference), abs=1), "pyroute2 rounds down"
    assert message[:LOSS] == reference[:LOSS]
    assert message[LOSS + 4 :] == reference[LOSS + 4 :]


@pytest.mark.parametrize(("delay", "ticks"), [(1e-6, 15), (50e-6, 781), (10.0, 156_250_000)])
def test_a_delay_is_counted_in_ticks_of_64_ns(delay, ticks):
    [message] = messages(Shape(delay=delay))
    assert int.from_bytes(message[LOSS - 8 : LOSS - 4], "little") == ticks


@pytest.mark.parametrize("loss", [1e-9, 1e-4, 0.125, 0.99])
def test_a_loss_is_counted_in_shares_of_the_largest_number(loss):
    [message] = messages(Shape(loss=loss))
    assert loss_of(message) == pytest.approx(loss * (2**32 - 1), abs=1)


def test_a_rate_below_a_delay_is_asked_for_as_tc_does():
    netem, tbf = messages(Shape(rate=3.125e9, burst=4 << 20, delay=50e-6))
    reference = bytes.fromhex(TBF)
    assert TCMSG.unpack_from(tbf)[3] == TCMSG.unpack_from(netem)[2] | 1, (
        "its parent is the class of netem"
    )
    assert tbf[:SIZE] == reference[:SIZE]
    assert tbf[SIZE + 4 : LINK_LAYER] == reference[SIZE + 4 : LINK_LAYER]
    assert tbf[LINK_LAYER + 1 : len(reference)] == reference[LINK_LAYER + 1 :]


@pytest.mark.parametrize("rate", [1250.0, 1e6, float(2**32 - 1)])
def test_every_rate_that_is_allowed_fits_into_the_message(rate):
    Shape(rate=rate).validate()
    [message] = messages(Shape(rate=rate))
    assert struct.pack("=I", int(rate)) in message


def test_nothing_is_asked_for_without_a_shape():
    assert messages(Shape()) == []


@pytest.mark.parametrize(
    ("cpus", "mask"), [([0], "00000001"), ([0, 1, 31], "80000003"), ([4, 33], "00000002,00000010")]
)
def test_a_set_of_cpus_is_written_as_the_kernel_reads_it(cpus, mask):
    assert network.cpu_mask(cpus) == mask
