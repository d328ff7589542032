"""Labs: what each of their hosts is, and how to use it."""

from collections.abc import Sequence

from busbw.core.sizes import counted
from busbw.lab.types import HostStatus, Lab, LabStatus, Shape
from busbw.link.types import bits_text
from busbw.ui.columns import Column, aligned

COLUMNS = (
    Column(title="host", value=lambda one: one.host.name, left=True),
    Column(title="address", value=lambda one: one.host.address, left=True),
    Column(title="interface", value=lambda one: one.host.interface, left=True),
    Column(title="cores", value=lambda one: ranges(one.host.cores) or "all", left=True),
    Column(title="GPUs", value=lambda one: _gpus(one), left=True),
    Column(title="processes", value=lambda one: one.processes),
    Column(title="state", value=lambda one: _state(one), left=True),
)


def made(lab: Lab) -> str:
    """What `busbw lab up` made, and the commands that use it."""
    name = "" if lab.name == "lab" else f" --name {lab.name}"
    names = [host.name for host in lab.hosts]
    way = (
        "by ssh"
        if lab.spec.sshd
        else "through the lab's launch agent, which Open MPI and busbw use"
    )
    places = ",".join(f"{name}:1" for name in names)
    return (
        f"{_head(lab)}\n"
        f"reach each other {way}: {', '.join(names)}\n\n"
        f"run    busbw lab exec{name} {names[0]} -- busbw run all_reduce --hosts {places}\n"
        f"end    busbw lab down{name}\n"
    )


def status(labs: Sequence[LabStatus]) -> str:
    """Every lab with its hosts."""
    return "\n".join(_lab(one) for one in labs) or "no lab\n"


def ranges(numbers: Sequence[int]) -> str:
    """`0-3,8`: numbers in ascending order."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def _lab(one: LabStatus) -> str:
    left = (
        f"\nleft behind by a process that has ended: busbw lab down --name {one.lab.name}"
        if one.leftover
        else ""
    )
    return f"{_head(one.lab)}{left}\n{aligned(COLUMNS, one.hosts)}"


def _head(lab: Lab) -> str:
    return (
        f"{lab.name}: {counted(len(lab.hosts), 'host')}, {_shape(lab.spec.shape)}, MTU"
        f" {lab.spec.mtu}"
    )


def _shape(shape: Shape) -> str:
    parts = [bits_text(shape.rate) if shape.rate else "no rate limit"]
    if shape.delay:
        parts.append(
            f"{shape.delay * 1e6:.6g} us delay"
            if shape.delay < 1e-3
            else f"{shape.delay * 1e3:.6g} ms delay"
        )
    if shape.loss:
        parts.append(f"{shape.loss * 100:.6g} % loss")
    return ", ".join(parts)


def _gpus(one: HostStatus) -> str:
    numbers = ranges(one.host.gpus)
    return (
        f"{numbers} ({one.host.gpu_percent} %)"
        if one.host.gpu_percent is not None
        else numbers or "none"
    )


def _state(one: HostStatus) -> str:
    if not one.there:
        return "its network is gone"
    return "sshd has ended" if one.sshd is False else "ok"
