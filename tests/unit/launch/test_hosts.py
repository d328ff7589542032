"""--hosts and --hostfile: parsing, the distribution of ranks, and invalid input."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.launch.hosts import Host, parse_hostfile, parse_hosts, read_hostfile, share


def test_hosts_with_and_without_slots_and_ipv6():
    assert parse_hosts("h1:8, h2,[fd00::2]:4,10.0.0.1:2,[fe80::1%eth0]") == (
        Host("h1", 8),
        Host("h2"),
        Host("fd00::2", 4),
        Host("10.0.0.1", 2),
        Host("fe80::1%eth0"),
    )


names = st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z0-9](\.[a-z]{2,4})?", fullmatch=True)


@given(
    st.lists(
        st.builds(Host, names, st.integers(0, 64)),
        min_size=1,
        max_size=5,
        unique_by=lambda host: host.name,
    )
)
def test_hosts_survive_formatting_and_parsing(hosts):
    assert parse_hosts(",".join(map(str, hosts))) == tuple(hosts)


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("h1:h2", "'h1:h2': a number of slots must follow the colon", "use a comma: h1,h2"),
        ("h1:8,h1:8", "h1 is given twice", "h1:8"),
        ("h1:0", "h1 has 0 slots", "h1:8"),
        ("h1:", "'' is not a number of slots of h1", "h1:8"),
        ("h1:-2", "'-2' is not a number of slots", "h1:8"),
        ("h1,,h2", "'' is not a host name", "h1:8,h2:8"),
        ("", "'' is not a host name", "h1:8"),
        ("h1;rm", "'h1;rm' is not a host name", "h1:8"),
        ("-oProxyCommand=x", "is not a host name", "h1:8"),
        ("fd00::2", "more than one colon", "[fd00::2]:8"),
        ("[fd00::2", "not an IPv6 address in brackets", "[fd00::2]"),
        ("[h1]:2", "not an IPv6 address in brackets", "[fd00::2]"),
        ("[fd00::2]8", "not an IPv6 address in brackets", "[fd00::2]"),
    ],
)
def test_invalid_hosts_are_named_with_a_hint(text, words, hint):
    with pytest.raises(UsageError) as caught:
        parse_hosts(text)
    assert words in caught.value.message
    assert hint in caught.value.hint


def test_hostfiles_of_open_mpi_mpich_and_pbs():
    text = "# the cluster\nh1 slots=8 max_slots=8  # first\n\nh2:4\n  [fd00::2] slots = 2\nh3\nh3\n"
    assert parse_hostfile(text, "f") == (
        Host("h1", 8),
        Host("h2", 4),
        Host("fd00::2", 2),
        Host("h3", 2),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("h1 slots=8\nh2 slots=x\n", "f, line 2: 'x' is not a number of slots of h2"),
        ("h1 slots=\n", "f, line 1: '' is not a number of slots of h1"),
        ("h1 slots=0\n", "f, line 1: h1 has 0 slots"),
        ("h1 h2\n", "f, line 1: 'h1 h2' is not a host with its slots"),
        ("# nothing\n", "f: no host in it"),
    ],
)
def test_a_bad_line_of_a_hostfile_is_named(text, words):
    with pytest.raises(UsageError, match=words) as caught:
        parse_hostfile(text, "f")
    assert caught.value.hint


def test_a_hostfile_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"--hostfile .*none: No such file"):
        read_hostfile(str(tmp_path / "none"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not text"):
        read_hostfile(str(tmp_path / "binary"))
    (tmp_path / "good").write_text("h1 slots=2\n")
    assert read_hostfile(str(tmp_path / "good")) == (Host("h1", 2),)


@given(st.integers(1, 9), st.integers(1, 100))
def test_hosts_without_slots_share_the_ranks_evenly(count, ranks):
    shared = share([Host(f"h{i}") for i in range(count)], ranks)
    slots = [host.slots for host in shared]
    assert sum(slots) == ranks
    assert max(slots) - min(slots) <= 1
    assert len(shared) == min(count, ranks)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (4, (Host("h1", 4),)),
        (8, (Host("h1", 8),)),
        (10, (Host("h1", 8), Host("h2", 2))),
        (17, (Host("h1", 8), Host("h2", 8), Host("h3", 1))),
    ],
)
def test_fewer_ranks_than_slots_fill_the_first_hosts(ranks, expected):
    assert share([Host("h1", 8), Host("h2", 8), Host("h3")], ranks) == expected


def test_given_slots_are_kept_and_must_suffice():
    hosts = (Host("h1", 8), Host("h2"))
    assert share(hosts, None) == share(hosts, 9) == (Host("h1", 8), Host("h2", 1))
    with pytest.raises(UsageError, match="-n 10: the 2 hosts have 9 slots") as caught:
        share(hosts, 10)
    assert "--hosts h1:5,h2:5" in caught.value.hint
    with pytest.raises(UsageError, match="at least one rank"):
        share(hosts, 0)
