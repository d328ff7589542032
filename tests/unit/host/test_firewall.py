"""Rules of nftables as its JSON has them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.host.firewall import closed_chains, ruleset
from busbw.host.source import Unavailable

PLACE = {"family": "inet", "table": "filter"}


def rules(*rules, policy="accept", hook="input"):
    """A ruleset with one base chain and its rules, each a list of statements."""
    chain = {
        "chain": {
            **PLACE,
            "name": "in",
            "type": "filter",
            "hook": hook,
            "prio": 0,
            "policy": policy,
        }
    }
    return json.dumps(
        {
            "nftables": [
                {"metainfo": {"version": "1"}},
                chain,
                *({"rule": {**PLACE, "chain": "in", "expr": expression}} for expression in rules),
            ]
        }
    )


def source(address, length):
    prefix = {"prefix": {"addr": address, "len": length}}
    return {
        "match": {
            "op": "==",
            "left": {"payload": {"protocol": "ip", "field": "saddr"}},
            "right": prefix,
        }
    }


def interface(name):
    return {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": name}}


PORT = {
    "match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 22}
}
ACCEPT, DROP, REJECT, COUNT = (
    {"accept": None},
    {"drop": None},
    {"reject": {"type": "icmpx"}},
    {"counter": {"packets": 1, "bytes": 2}},
)


def test_policy_that_drops():
    (chain,) = closed_chains(rules([PORT, ACCEPT], [interface("lo"), ACCEPT], policy="drop"))
    assert (chain.place, chain.accepts) == ("inet filter in", ())


def test_last_rule_that_rejects_everything():
    assert closed_chains(rules([COUNT, REJECT]))
    assert not closed_chains(rules([PORT, DROP]))
    assert closed_chains(rules([COUNT, {"log": None}, REJECT, DROP]))


def test_networks_and_interfaces_that_are_accepted_as_a_whole():
    (chain,) = closed_chains(
        rules(
            [source("10.1.0.0", 16), COUNT, ACCEPT],
            [interface("ib0"), {"goto": {"target": "filter_IN_trusted"}}],
            [DROP],
        )
    )
    assert chain.accepts == ("10.1.0.0/16", "ib0")


def test_set_of_networks():
    network_set = {"set": [{"prefix": {"addr": "10.2.0.0", "len": 16}}, "10.3.0.1"]}
    match = {
        "match": {
            "op": "==",
            "left": {"payload": {"protocol": "ip", "field": "saddr"}},
            "right": network_set,
        }
    }
    (chain,) = closed_chains(rules([match, ACCEPT], policy="drop"))
    assert chain.accepts == ("10.2.0.0/16, 10.3.0.1",)


def test_network_that_is_accepted_for_one_port():
    (chain,) = closed_chains(rules([source("10.1.0.0", 16), PORT, ACCEPT], policy="drop"))
    assert chain.accepts == ()


@pytest.mark.parametrize(("last", "accepts"), [(29_999, ()), (30_000, ("ports 10000 to 30000",))])
def test_a_wide_range_of_ports_is_accepted(last, accepts):
    match = {
        "match": {"op": "==", "left": PORT["match"]["left"], "right": {"range": [10_000, last]}}
    }
    (chain,) = closed_chains(rules([match, ACCEPT], policy="drop"))
    assert chain.accepts == accepts


def test_chains_of_other_hooks_are_left_out():
    assert closed_chains(rules(policy="drop", hook="forward")) == []
    assert closed_chains('{"nftables": []}') == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"nftables": [1]}',
        '{"nftables": [{"chain": {"hook": "input", "policy": "drop"}}]}',
    ],
)
def test_other_text_is_not_a_ruleset(text):
    with pytest.raises(ValueError):
        closed_chains(text)


@given(
    st.recursive(
        st.none() | st.text(max_size=5) | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    )
)
def test_any_statement_of_a_rule_is_read(expr):
    assert closed_chains(
        rules(
            [{"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": expr}}, ACCEPT],
            policy="drop",
        )
    )


def test_missing_tool_is_the_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="nft is not installed"):
        ruleset()
    (tmp_path / "nft").write_text("#!/bin/sh\necho Operation not permitted >&2\nexit 1\n")
    (tmp_path / "nft").chmod(0o755)
    with pytest.raises(Unavailable, match="nft --json list ruleset: Operation not permitted"):
        ruleset()
