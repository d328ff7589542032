"""--hosts and --hostfile: parsing, the distribution of ranks, and invalid input."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.core.host_ranges import fold
from busbw.launch.hostfile import given_hosts, parse_hostfile, read_hostfile
from busbw.launch.hosts import LaunchHost, is_host, parse_hosts, probe_command, share


def test_hosts_with_and_without_slots_and_ipv6():
    assert parse_hosts("h1:8, h2,[fd00::2]:4,10.0.0.1:2,[fe80::1%eth0]") == (
        LaunchHost("h1", 8),
        LaunchHost("h2"),
        LaunchHost("fd00::2", 4),
        LaunchHost("10.0.0.1", 2),
        LaunchHost("fe80::1%eth0"),
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu[001-003]", ["gpu001", "gpu002", "gpu003"]),
        ("gpu[1,3-4]", ["gpu1", "gpu3", "gpu4"]),
        ("gpu[09-11] login1", ["gpu09", "gpu10", "gpu11", "login1"]),
        ("gpu[98-101].cluster", [f"gpu{n}.cluster" for n in range(98, 102)]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("10.0.0.[1-2], [fd00::1]\th3", ["10.0.0.1", "10.0.0.2", "fd00::1", "h3"]),
        ("root@gpu[1-2],ann@h3", ["root@gpu1", "root@gpu2", "ann@h3"]),
        ("[1-2]a", ["1a", "2a"]),
        ("h2 h1", ["h2", "h1"]),
    ],
)
def test_ranges_users_and_separators(text, names):
    assert [host.name for host in parse_hosts(text)] == names
    assert all(is_host(name) for name in names)


def test_every_host_of_a_range_has_the_slots_and_a_user_is_kept_in_text():
    assert parse_hosts("root@r[1-2]n[01-16]:8")[-1] == LaunchHost("root@r2n16", 8)
    assert str(LaunchHost("root@fd00::2", 8)) == "root@[fd00::2]:8"
    assert parse_hosts("root@[fd00::2]:8") == (LaunchHost("root@fd00::2", 8),)


def test_commands_with_hosts_can_be_pasted_with_ipv6_addresses_and_ranges():
    for names in (["fd00::2", "fe80::1%eth0", "h1", "root@fd00::3", "h2"], list("abcdefg")):
        hosts = shlex.split(probe_command(names))[-1]
        assert [host.name for host in parse_hosts(hosts)] == names
    many = [f"gpu{number:02}" for number in range(1, 65)]
    assert probe_command(many) == "busbw check launch --hosts 'gpu[01-64]'"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["gpu", "r1n", "r2n", "10.0.0.", "rack7-node", "x"]),
            st.from_regex(r"[0-9]{1,4}", fullmatch=True),
            st.sampled_from(["", "a", ".cluster", "-ib0"]),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_folded_names_are_parsed_to_the_same_names(parts):
    names = {"".join(part) for part in parts}
    assert {host.name for host in parse_hosts(fold(names))} == names


@given(st.text(st.sampled_from("gpu019-[],:@. =%"), max_size=30))
def test_any_text_is_hosts_or_a_usage_error(text):
    for parse in (parse_hosts, lambda text: parse_hostfile(text, "f")):
        try:
            hosts = parse(text)
        except UsageError as error:
            assert error.hint
        else:
            assert parse_hosts(",".join(map(str, hosts))) == hosts
            assert all(is_host(host.name) for host in hosts)


names = st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z0-9](\.[a-z]{2,4})?", fullmatch=True)


@given(
    st.lists(
        st.builds(LaunchHost, names, st.integers(0, 64)),
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
        ("[fd00::2", "a bracket is not closed", "gpu[001-064]"),
        ("[h1]:2", "not an IPv6 address in brackets", "[fd00::2]"),
        ("[fd00::2]8", "not an IPv6 address in brackets", "[fd00::2]"),
        ("gpu[3-1]", "'gpu[3-1]': the range 3-1 runs backwards", "1-3"),
        ("gpu[1-]", "'gpu[1-]': '1-' is not a number or a range", "gpu[001-064]"),
        ("gpu[]", "'gpu[]': '' is not a number or a range", "gpu[001-064]"),
        ("gpu[a-c]", "'a-c' is not a number or a range", "gpu[001-064]"),
        ("gpu[1-064]", "the ends of the range 1-064 have different widths", "001-064"),
        ("gpu[1-4", "a bracket is not closed", "gpu[001-064]"),
        ("gpu1-4]", "the brackets do not match", "gpu[001-064]"),
        ("gpu[1[2-3]]", "the brackets do not match", "gpu[001-064]"),
        ("gpu[1-99999999]", "has more than 65536 numbers", "gpu[001-064]"),
        ("r[1-999]n[1-999]", "names 998001 hosts, more than 65536", "gpu[001-064]"),
        ("gpu[1-4],gpu3", "gpu3 is given twice", "gpu3:8"),
        ("h1,root@h1", "h1 is given twice", "h1:8"),
        ("-l@h1", "'-l' is not the name of a user", "user@host"),
        ("@h1", "'' is not the name of a user", "user@host"),
        ("h1:99999999", "'99999999' is not a number of slots", "h1:8"),
    ],
)
def test_invalid_hosts_are_named_with_a_hint(text, words, hint):
    with pytest.raises(UsageError) as caught:
        parse_hosts(text)
    assert words in caught.value.message
    assert hint in caught.value.hint


def test_hostfiles_of_open_mpi_mpich_pbs_slurm_and_pdsh():
    text = """# the cluster
h1 slots=8 max_slots=8  # first

h2:4
  [fd00::2] slots = 2
h3
h3
gpu[001-002], login[1,3]
r[1-2]n1 count=2 max-slots=4
root@h4 slots=1
h5 user=ann slots=2
"""
    assert parse_hostfile(text, "f") == (
        LaunchHost("h1", 8),
        LaunchHost("h2", 4),
        LaunchHost("fd00::2", 2),
        LaunchHost("h3", 2),
        *map(LaunchHost, ("gpu001", "gpu002", "login1", "login3")),
        LaunchHost("r1n1", 2),
        LaunchHost("r2n1", 2),
        LaunchHost("root@h4", 1),
        LaunchHost("ann@h5", 2),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("h1 slots=8\nh2 slots=x\n", "f, line 2: 'x' is not a number of slots of h2"),
        ("h1 slots=\n", "f, line 1: '' is not a number of slots of h1"),
        ("h1 slots=0\n", "f, line 1: h1 has 0 slots"),
        ("h1 h2\n", "f, line 1: 'h1 h2' is not a host with its slots"),
        ("# nothing\n", "f: no host in it"),
        ("h1\ngpu[1-2] compute,ib\n", "f, line 2: 'gpu.*ib' is not a host with its slots"),
        ("slots=8\n", "f, line 1: 'slots=8' is not a host with its slots"),
        ("gpu[3-1]\n", "f, line 1: .*the range 3-1 runs backwards"),
        ("h1 ifname=ib0\n", "f, line 1: ifname=ib0 is not a setting that busbw reads"),
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
    assert given_hosts("", tmp_path / "good") == (LaunchHost("h1", 2),)
    with pytest.raises(UsageError, match="both name the hosts"):
        given_hosts("h1", tmp_path / "good")


@given(st.integers(1, 9), st.integers(1, 100))
def test_hosts_without_slots_share_the_ranks_evenly(count, ranks):
    shared = share([LaunchHost(f"h{i}") for i in range(count)], ranks)
    slots = [host.slots for host in shared]
    assert sum(slots) == ranks
    assert max(slots) - min(slots) <= 1
    assert len(shared) == min(count, ranks)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (4, (LaunchHost("h1", 4),)),
        (8, (LaunchHost("h1", 8),)),
        (10, (LaunchHost("h1", 8), LaunchHost("h2", 2))),
        (17, (LaunchHost("h1", 8), LaunchHost("h2", 8), LaunchHost("h3", 1))),
    ],
)
def test_fewer_ranks_than_slots_fill_the_first_hosts(ranks, expected):
    assert share([LaunchHost("h1", 8), LaunchHost("h2", 8), LaunchHost("h3")], ranks) == expected


def test_given_slots_are_kept_and_must_suffice():
    hosts = (LaunchHost("h1", 8), LaunchHost("h2"))
    assert share(hosts, None) == share(hosts, 9) == (LaunchHost("h1", 8), LaunchHost("h2", 1))
    with pytest.raises(UsageError, match="--ranks 10: the 2 hosts have 9 slots") as caught:
        share(hosts, 10)
    assert "--hosts h1:5,h2:5" in caught.value.hint
    with pytest.raises(UsageError, match="at least one rank"):
        share(hosts, 0)
