"""Bad arguments of `busbw lab`, and how labs are printed."""

import os
import sys

import pytest

from busbw.cli.main import main
from busbw.lab import types as view
from busbw.lab.types import Lab, LabHost, LabHostStatus, LabSpec, LabStatus, Shape

ABSENT = "a-lab-that-is-not-there"


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rate", "25"], "--rate 25: a rate needs its unit"),
        (["--rate", "40Gbit/s"], "--rate: 40 Gbit/s is out of range"),
        (["--rate", "1kbit"], "--rate: 1e-06 Gbit/s is out of range"),
        (["--rate-of", "h2"], "--rate-of h2: no HOST=RATE"),
        (["--rate-of", "h3=300Mbit/s"], "--rate-of h3: no such host"),
        (["--rate-of", "h2=40Gbit/s"], "--rate-of: 40 Gbit/s is out of range"),
        (["--delay", "50"], "--delay 50: must be seconds from 0 to 10"),
        (["--delay", "11s"], "--delay 11s: must be seconds from 0 to 10"),
        (["--delay", "0.5us"], "--delay: 5e-07 s is out of range"),
        (["--loss", "0.00000001%"], "--loss: 1e-10 is out of range"),
        (["--loss", "5"], "--loss 5: a fraction is at most 1"),
        (["--loss", "100%"], "--loss 100%: must be above 0% and below 100%"),
        (["--nodes", "9"], "9 is not in the range 2<=x<=8"),
        (["--nodes", "1"], "1 is not in the range 2<=x<=8"),
        (["--mtu", "99"], "--mtu 99: must be from 1280 to 65535"),
        (["--name", "../x"], "--name ../x: it is not the name of a lab"),
        (["--name", ""], "--name '': it is empty"),
    ],
)
def test_a_bad_option_of_up_is_named(words, message, capsys):
    assert main(["busbw", "lab", "up", *words]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert "hint: " in errors


@pytest.mark.parametrize(
    "words", [["exec", "--name", ABSENT, "h1", "--", "true"], ["status", "--name", ABSENT]]
)
def test_a_lab_that_is_not_there_is_named(words, capsys):
    assert main(["busbw", "lab", *words]) == 2
    assert f"error: no lab '{ABSENT}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["exec", "--name", "../x", "h1", "--", "true"],
        ["status", "--name", "../x"],
        ["down", "--name", "../x"],
    ],
)
def test_a_name_that_leads_to_another_folder_is_refused(words, capsys):
    assert main(["busbw", "lab", *words]) == 2
    assert "error: --name ../x: it is not the name of a lab" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["up"], ["exec", "h1", "--", "true"], ["status"], ["down"]])
def test_a_user_other_than_root_gets_an_error(words, monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["busbw", "lab", *words]) == 3
    assert (
        "error: a lab needs root: it makes network namespaces and mounts\n\nhint: sudo busbw lab"
        in capsys.readouterr().err
    )


def test_a_missing_pyroute2_is_named_with_the_command_that_installs_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyroute2", None)
    assert main(["busbw", "lab", "up"]) == 3
    assert "hint: pip install 'busbw[lab]'" in capsys.readouterr().err


def lab(**shape: float) -> Lab:
    first = LabHost(
        name="h1",
        namespace="bb1h1",
        address="10.77.0.1",
        interface="v1",
        cores=[0, 1, 2, 5],
        gpus=[0],
        gpu_percent=50,
    )
    second = LabHost(name="h2", namespace="bb1h2", address="10.77.0.2", interface="v2", gpus=[2, 3])
    spec = LabSpec(names=["h1", "h2"], shape=Shape(**shape))
    return Lab(
        boot_id="",
        token="1",
        folder="/run/busbw-lab/lab",
        spec=spec,
        hosts=[first, second],
        owner=None,
    )


def test_a_made_lab_is_printed_with_the_commands_that_use_it():
    text = view.usage(lab(rate=3.125e9, delay=50e-6, loss=1e-4))
    assert text.splitlines() == [
        "lab: 2 hosts, 25 Gbit/s, 50 us delay, 0.01 % loss, MTU 9000",
        "reach each other by ssh: h1, h2",
        "",
        "run    busbw lab exec h1 -- busbw run all_reduce --hosts h1:1,h2:1 -b 1K -e 16M -f 4",
        "link   busbw lab exec h1 -- busbw link --hosts h1,h2",
        "end    busbw lab down",
    ]


def test_status_names_ended_parts():
    test_lab = lab()
    hosts = [
        LabHostStatus(host=test_lab.hosts[0], there=True, processes=1, sshd=False),
        LabHostStatus(host=test_lab.hosts[1], there=False, processes=0, sshd=False),
    ]
    status = LabStatus(lab=test_lab, leftover=False, hosts=hosts)
    assert not status.fine
    assert view.status([status]).splitlines() == [
        "lab: 2 hosts, no rate limit, MTU 9000",
        "host  address    interface  cores  GPUs      processes  state",
        "h1    10.77.0.1  v1         0-2,5  0 (50 %)          1  sshd has ended",
        "h2    10.77.0.2  v2         all    2-3               0  its network is gone",
    ]


def test_status_names_leftovers():
    status = LabStatus(lab=lab(), leftover=True, hosts=[])
    assert not status.fine
    assert (
        view.status([status]).splitlines()[1]
        == "left behind by a process that has ended: busbw lab down --name lab"
    )
