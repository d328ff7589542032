"""Hosts of a launch, and their answers."""

import json
from ipaddress import IPv4Network

from busbw.check.doctor.networks import LaunchContext
from busbw.core.version import __version__
from busbw.launch import remote
from busbw.launch.hosts import LaunchHost
from busbw.launch.remote import CommandResult

FABRIC, DOCKER = IPv4Network("10.1.0.0/24"), IPv4Network("172.17.0.0/16")


def identity(host, *, mtu=9000, busbw=__version__, names=None, gpus=8, **addresses):
    addresses = addresses or {"eth0": f"10.1.0.{host[1:]}/24"}
    own_addresses = {name: [f"10.1.0.{name[1:]}"] for name in ("h1", "h2", "h3")}
    return {
        "hostname": host,
        "busbw": busbw,
        "addresses": addresses,
        "mtus": dict.fromkeys(addresses, mtu),
        "names": own_addresses | (names or {}),
        "gpus": gpus,
    }


def context(*hosts, ifname="", **fields):
    """A launch on hosts with these identities."""
    launch_context = LaunchContext(
        tuple(LaunchHost(f"h{number}", 2) for number in range(1, len(hosts) + 1)),
        5.0,
        ifname,
        **fields,
    )
    launch_context.identities = dict(zip(launch_context.names, hosts, strict=True))
    return launch_context


def answers(monkeypatch, *results):
    """The hosts answer that; returns what they were asked."""
    calls = []

    def run_each(words, limit_s, inputs, *, together):
        assert together  # one limit for all hosts
        calls.append((words, limit_s, inputs))
        return list(results)

    monkeypatch.setattr(remote, "run_each", run_each)
    return calls


def host_result(host, answer, code=0, error="", killed=""):
    return CommandResult(
        host,
        code,
        answer if isinstance(answer, bytes) else json.dumps(answer).encode(),
        error,
        killed,
    )


def on_two(**fields):
    launch_context = context(
        *(identity(f"h{n}", eth0=f"10.1.0.{n}/24", docker0=f"172.17.0.{n}/16") for n in (1, 2)),
        **fields,
    )
    launch_context.networks = [FABRIC, DOCKER]
    return launch_context
