"""Which port a check names where ports differ, and at which limit."""

import pytest
from cases_nic import NET, PORT, changed, finding_of, run, statistic
from healthy import healthy

from busbw.core.finding import Verdict

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)


def verdicts_by_subject(name, *changes, ports=8):
    """The subjects that a check complains of, after changes of the healthy server."""
    tree = healthy(ports=ports)
    for change in changes:
        change(tree)
    return {
        finding.subject: finding.verdict
        for finding in run(name, tree)
        if finding.verdict not in (PASS, SKIP)
    }


@pytest.mark.parametrize("mtu", ["1500", "4200", "9200"])
def test_interface_with_another_mtu_than_most_is_named(mtu):
    assert verdicts_by_subject("nic-mtu-equal", lambda tree: tree.file(f"{NET}/mtu", mtu)) == {
        "eth3": WARN
    }
    assert (
        "ip link set dev eth3 mtu 9000"
        in finding_of(
            "nic-mtu-equal", changed(lambda tree: tree.file(f"{NET}/mtu", mtu)), "eth3"
        ).fix
    )


def test_interface_without_a_readable_mtu_is_named_and_does_not_count():
    def silent(tree):
        for index in (0, 1, 2, 4, 5):
            tree.drop(f"/sys/class/net/eth{index}/mtu")
        tree.file(f"{NET}/mtu", "1500")

    assert verdicts_by_subject("nic-mtu-equal", silent) == {
        f"eth{index}": UNKNOWN for index in (0, 1, 2, 4, 5)
    } | {"eth3": WARN}


def test_port_whose_gids_are_in_another_order_is_named():
    from cases_nic import gids_in_another_order

    assert verdicts_by_subject("nic-gid-order", gids_in_another_order) == {"mlx5_3": WARN}
    assert (
        finding_of("nic-gid-order", changed(gids_in_another_order)).message
        == "its RoCE v2 GID has index 7, on most ports 3"
    )


def test_the_gid_with_an_ipv4_address_counts_else_the_first():
    ipv6_gid = "2001:0db8:0000:0000:0000:0000:0000:0003"

    def two_gids(tree):
        ipv4_gid = tree.paths[f"{PORT}/gids/3"]["text"].strip()
        tree.file(f"{PORT}/gids/3", ipv6_gid).file(f"{PORT}/gids/5", ipv4_gid).file(
            f"{PORT}/gid_attrs/types/5", "RoCE v2"
        )

    def only_wide(tree):
        port = PORT.replace("mlx5_3", "mlx5_4")
        tree.file(f"{port}/gids/3", ipv6_gid).file(f"{port}/gids/5", ipv6_gid).file(
            f"{port}/gid_attrs/types/5", "RoCE v2"
        )

    assert verdicts_by_subject("nic-gid-order", two_gids, only_wide) == {"mlx5_3": WARN}
    assert (
        finding_of("nic-gid-order", changed(two_gids)).message
        == "its RoCE v2 GID has index 5, on most ports 3"
    )


def test_port_without_a_gid_is_named_and_does_not_count():
    def without(tree):
        for index in (0, 1, 2, 4, 5):
            port = f"/sys/class/infiniband/mlx5_{index}/ports/1"
            tree.drop(f"{port}/gids/2").drop(f"{port}/gids/3")

    assert verdicts_by_subject("nic-gid-order", without) == {
        f"mlx5_{index}": UNKNOWN for index in (0, 1, 2, 4, 5)
    }


def test_port_with_more_corrected_bits_is_named():
    assert verdicts_by_subject("nic-ber", statistic(rx_corrected_bits_phy=10**11)) == {
        "mlx5_3": WARN
    }


@pytest.mark.parametrize(
    ("mtu", "verdict", "carried"),
    [
        (4200, PASS, ""),
        (4199, WARN, "carry 2048 bytes"),
        (2200, WARN, "carry 2048 bytes"),
        (2199, WARN, "carry 1024 bytes"),
    ],
)
def test_the_least_mtu_of_each_size_of_packets(mtu, verdict, carried):
    finding = finding_of("nic-mtu", changed(lambda tree: tree.file(f"{NET}/mtu", str(mtu))))
    assert (finding.verdict, carried in finding.message) == (verdict, True)


@pytest.mark.parametrize(
    "name", ["nic-gid-order", "nic-mtu-equal", "nic-multirail", "nic-link-layer"]
)
@pytest.mark.parametrize(("ports", "verdict"), [(1, SKIP), (2, PASS)])
def test_two_ports_can_be_compared_and_one_cannot(name, ports, verdict):
    assert {finding.verdict for finding in run(name, healthy(ports=ports))} == {verdict}
