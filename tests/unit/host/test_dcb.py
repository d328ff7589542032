"""DCB by netlink: the message that asks, answers that were built byte by byte, and a real
interface without DCB.
"""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree import Tree

from busbw.host import dcb
from busbw.host.dcb import Dcb
from busbw.host.source import LiveMachine, Unavailable

NESTED = 0x8000


def attribute(kind, value):
    """One attribute of netlink, padded to four bytes."""
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def answer(*attributes, kind=78):
    """The answer of the kernel: header, struct dcbmsg, attributes."""
    body = struct.pack("=BBH", 0, 21, 0) + b"".join(attributes)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 4242) + body


def app(selector, priority, protocol):
    return attribute(1, struct.pack("=BBH", selector, priority, protocol))


def mellanox(pfc=0b1000, dscp=((26, 3), (48, 6)), trust=None):
    """An answer like that of mlx5: ETS, PFC, entries for DSCP, the peer's state, DCBX."""
    ets = (
        bytes((0, 8, 0))
        + bytes((12, 13) * 4)
        + bytes(8)
        + bytes((2,) * 8)
        + bytes((1, 0, 2, 3, 4, 5, 6, 7))
        + bytes(24)
    )
    state = attribute(1, ets) + attribute(2, struct.pack("=BBBxH2x8Q8Q", 8, pfc, 0, 7, *range(16)))
    state += attribute(
        3, b"".join(app(5, priority, value) for value, priority in dscp) + app(1, 4, 0x8915)
    )
    if trust is not None:
        state += attribute(
            11 | NESTED, b"".join(attribute(1, bytes((selector,))) for selector in trust)
        )
    return answer(attribute(1, b"eth0\0"), attribute(13, state), attribute(14, b"\x0d"))


def test_request_names_the_interface():
    message = dcb.request("eth0")
    assert struct.unpack_from("=IHH", message) == (len(message), 78, 1)
    assert message[16:20] == struct.pack("=BBH", 0, 21, 0)
    assert message[20:] == struct.pack("=HH", 9, 1) + b"eth0\0\0\0\0"


def test_answer_of_an_interface_with_dcb():
    state = dcb.decode(mellanox(), "eth0")
    assert state == Dcb(
        pfc=(3,),
        pfc_most=8,
        classes=(1, 0, 2, 3, 4, 5, 6, 7),
        shares=(12, 13, 12, 13, 12, 13, 12, 13),
        dscp={26: 3, 48: 6},
        host=True,
    )


def test_trust_table_is_read_in_its_order():
    assert dcb.decode(mellanox(trust=(5, 255)), "eth0").trust == ("dscp", "pcp")
    selectors = dcb.decode(mellanox(trust=(1, 2, 3, 4, 6)), "eth0").trust
    assert selectors == ("ethertype", "stream port", "datagram port", "any port", "6"), (
        "as linux/dcbnl.h numbers them"
    )


@given(
    priorities=st.frozensets(st.integers(0, 7)),
    dscp=st.dictionaries(st.integers(0, 63), st.integers(0, 7)),
)
def test_every_set_of_priorities_is_read_back(priorities, dscp):
    decoded = dcb.decode(
        mellanox(sum(1 << priority for priority in priorities), tuple(dscp.items())), "eth0"
    )
    assert decoded.pfc == tuple(sorted(priorities))
    assert decoded.dscp == dscp


def state(*parts, dcbx=b""):
    return dcb.decode(answer(attribute(13, b"".join(parts)), attribute(14, dcbx)), "eth0")


@pytest.mark.parametrize(("size", "classes"), [(35, (2,) * 8), (34, ())])
def test_ets_needs_its_four_tables(size, classes):
    decoded = state(attribute(1, (bytes(3) + bytes((9,) * 8) + bytes(16) + bytes((2,) * 8))[:size]))
    assert (decoded.classes, decoded.shares) == (classes, (9,) * 8 if classes else ())


@pytest.mark.parametrize(
    ("pfc", "flow_control"), [(b"\x08\x05", ((0, 2), 8)), (b"\x08", (None, 8)), (b"", (None, 0))]
)
def test_pfc_needs_its_mask(pfc, flow_control):
    decoded = state(attribute(2, pfc))
    assert (decoded.pfc, decoded.pfc_most) == flow_control


@pytest.mark.parametrize(("dcbx", "host"), [(b"\x0d", True), (b"\x0c", False), (b"", None)])
def test_who_negotiates_dcbx(dcbx, host):
    assert state(dcbx=dcbx).host is host


@pytest.mark.parametrize(
    ("size", "reason"), [(20, "no such interface"), (19, "an answer of 19 bytes by netlink")]
)
def test_the_shortest_error(size, reason):
    with pytest.raises(Unavailable, match=f"eth0: {reason}"):
        dcb.decode(struct.pack("=IHHIIi", 20, 2, 0, 1, 0, -19)[:size], "eth0")


def test_driver_without_parts_of_dcb():
    assert dcb.decode(answer(attribute(13, b"")), "eth0") == Dcb()


@pytest.mark.parametrize(
    ("code", "reason"),
    [(95, "its driver has no DCB"), (19, "no such interface"), (1, "operation not permitted")],
)
def test_error_gives_its_reason(code, reason):
    reply = struct.pack("=IHHIIi", 36, 2, 0, 1, 0, -code) + bytes(16)
    with pytest.raises(Unavailable, match=f"eth0: {reason}"):
        dcb.decode(reply, "eth0")


@given(st.binary(max_size=80), st.sampled_from([2, 3, 78]))
def test_no_answer_is_more_than_unavailable(data, kind):
    for reply in (
        data,
        answer(kind=kind)[:16] + data,
        answer(data, kind=kind),
        answer(attribute(13, data), kind=kind),
    ):
        try:
            assert isinstance(dcb.decode(reply, "eth0"), Dcb)
        except Unavailable:
            continue


@pytest.mark.parametrize(
    "name", ["lo", "not-there", "just-15-letters", "just-16-letters-", "a-name-that-is-too-long"]
)
def test_real_interface_without_dcb_gives_a_reason(name):
    reason = (
        "its driver has no DCB, or a virtual function may not see it"
        if name == "lo"
        else "no such interface"
    )
    assert dcb.read_dcb(LiveMachine(), name) == f"{name}: {reason}"


def test_recorded_state_equals_the_state_read():
    state = '{"pfc":[3,4],"pfc_most":8,"classes":[],"shares":[],"dscp":{"26":3},"trust":["dscp"],"host":false}'
    tree = Tree().call("dcb eth0", state).failing("dcb eth1", "eth1: its driver has no DCB")
    assert dcb.read_dcb(tree.source(), "eth0") == Dcb(
        pfc=(3, 4), pfc_most=8, dscp={26: 3}, trust=("dscp",), host=False
    )
    assert dcb.read_dcb(tree.source(), "eth1") == "eth1: its driver has no DCB"
