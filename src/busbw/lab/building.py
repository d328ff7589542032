"""Makes, finds and removes labs."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path

import msgspec

from busbw.core.errors import NoMeasurement, UsageError
from busbw.lab import gpus, host_exec, network, sshd, state
from busbw.lab.processes import exists, inside, kill_all, mark, mounting
from busbw.lab.types import NETWORK, Lab, LabHost, LabHostStatus, LabSpec, LabStatus, check_name


def check_root() -> None:
    """NoMeasurement for another user than root."""
    if os.geteuid() != 0:
        raise NoMeasurement(
            "a lab needs root: it makes network namespaces and mounts",
            "sudo busbw lab ..., or a container with CAP_SYS_ADMIN",
        )


def _check_programs() -> None:
    missing = [
        program
        for program in ("nsenter", "unshare", "taskset", "mount", "hostname")
        if not shutil.which(program)
    ]
    if missing:
        raise NoMeasurement(
            f"no {' and no '.join(missing)} here",
            "Debian, Ubuntu: apt-get install util-linux hostname",
        )


def up(spec: LabSpec) -> Lab:
    """Make a lab that stays until `down`.

    UsageError if there is one with this name, NoMeasurement if it cannot be made.
    """
    with announced(spec) as lab:
        return msgspec.structs.replace(lab, owner=None)


@contextlib.contextmanager
def announced(spec: LabSpec) -> Iterator[Lab]:
    """A lab that stays until `down`; the block tells the user about it. If Ctrl-C interrupts the
    block, the lab is removed.
    """
    lab = _make(spec)
    try:
        yield lab
    except KeyboardInterrupt:
        with state.locked():
            remove(lab)
        raise
    except BaseException:
        _keep(lab)
        raise
    _keep(lab)


def _keep(lab: Lab) -> None:
    """From now on no process has to remove the lab."""
    with state.locked():
        current = state.read(lab.name)
        if current and current.token == lab.token:  # nobody has removed it meanwhile
            state.write(msgspec.structs.replace(lab, owner=None))


@contextlib.contextmanager
def temporary_lab(spec: LabSpec) -> Iterator[Lab]:
    """A lab that is removed at the end, or by the next `up` or `down` if this process is killed."""
    lab = _make(spec)
    try:
        yield lab
    finally:
        with state.locked():
            remove(lab)


def down(name: str) -> None:
    """Remove a lab with everything in it, and all labs that were left behind.

    UsageError if there is no lab with this name.
    """
    check_name(name)
    check_root()
    network.check()
    with state.locked():
        lab = state.read(name)
        swept = _sweep()
        if lab is None and name not in swept:
            raise _no_lab(name)
        if lab is not None and name not in swept:
            _check_outside(lab)
            remove(lab)


def find(name: str) -> Lab:
    """The lab with this name; UsageError if there is none, or one that was left behind."""
    check_name(name)
    check_root()
    lab = state.read(name)
    if lab is None:
        raise _no_lab(name)
    if state.left_behind(lab):
        raise UsageError(
            f"lab '{name}' was left behind by a process that has ended",
            f"busbw lab down --name {name}",
        )
    return lab


def check_hosts(lab: Lab, hosts: Sequence[LabHost]) -> None:
    """NoMeasurement if the network of a host is gone."""
    for host in hosts:
        if not exists(host.namespace):
            raise NoMeasurement(
                f"the network of {host.name} in lab '{lab.name}' is gone",
                f"busbw lab down --name {lab.name}, and make it anew",
            )


def all_labs() -> list[Lab]:
    """All labs, including those that were left behind."""
    check_root()
    return list(filter(None, map(state.read, state.names())))


def status(lab: Lab) -> LabStatus:
    """Which parts of a lab exist now."""
    hosts = [
        LabHostStatus(
            host=host,
            there=exists(host.namespace),
            processes=len(inside(host.namespace)),
            sshd=sshd.listens(lab, host) if lab.spec.sshd else None,
        )
        for host in lab.hosts
    ]
    return LabStatus(lab=lab, leftover=state.left_behind(lab), hosts=hosts)


def _make(spec: LabSpec) -> Lab:
    spec.validate()
    check_root()
    network.check()
    _check_programs()
    if spec.sshd:
        sshd.check()
    lab = _plan(spec)
    # Locked until the lab stands: a `down` meanwhile would remove the state, and what is made after
    # that would have none.
    with state.locked():
        _sweep()
        for other in all_labs():
            _check_outside(other)
        if state.read(spec.name):
            raise UsageError(
                f"there is a lab '{spec.name}'",
                f"busbw lab down --name {spec.name}, or use another --name",
            )
        try:
            state.write(lab)
            _build(lab)
        except BaseException as error:
            remove(lab)
            if isinstance(error, OSError):
                where = error.filename or lab.folder
                raise NoMeasurement(
                    f"{where}: {error.strerror or error}", f"df -h {state.FOLDER.parent}"
                ) from error
            raise
    return lab


def _check_outside(lab: Lab) -> None:
    """UsageError on a host of the lab: `down` would end itself, and `up` would act only here."""
    if lab.hosts_name in Path("/proc/self/mountinfo").read_text(errors="replace"):
        raise UsageError(
            f"this command runs on a host of lab '{lab.name}'", "run it outside of the lab's hosts"
        )


def _build(lab: Lab) -> None:
    network.make(lab)
    host_exec.write_hosts(lab)
    if lab.spec.sshd:
        sshd.start(lab)
    else:
        host_exec.write_agent(lab)
    if lab.shares_gpus:
        reason = gpus.start_mps(lab.mps)
        if reason:
            lab.notes.append(reason)


def _plan(spec: LabSpec) -> Lab:
    token, count = uuid.uuid4().hex[:6], len(spec.names)
    usable, notes = sorted(os.sched_getaffinity(0)), []
    cores_per_host = 0 if spec.share_cores else len(usable) // count
    if not cores_per_host and not spec.share_cores:
        notes.append(f"{count} hosts share {len(usable)} cores: there are fewer cores than hosts")
    shares = gpus.divide(count, [] if spec.gpus == 0 else gpus.visible_gpus(), spec.gpus)
    addresses = [str(address) for address in IPv4Network(NETWORK).hosts()][:count]
    hosts = [
        LabHost(
            name=name,
            namespace=f"bb{token}h{number + 1}",
            address=addresses[number],
            interface=f"v{number + 1}",
            cores=usable[number * cores_per_host : (number + 1) * cores_per_host],
            gpus=list(shares[number].gpus),
            gpu_percent=shares[number].percent,
        )
        for number, name in enumerate(spec.names)
    ]
    return Lab(
        boot_id=state.boot_id(),
        token=token,
        folder=str(state.folder(spec.name)),
        spec=spec,
        hosts=hosts,
        owner=mark(os.getpid()),
        notes=notes,
        mps=gpus.mps_folder(),
    )


def _sweep() -> list[str]:
    """Remove the labs that were left behind, and return their names. Under the lock."""
    swept = []
    for name in state.names():
        lab = state.read(name)
        if lab is None:  # killed before it made anything
            state.forget(name)
        elif state.left_behind(lab):
            remove(lab)
        else:
            continue
        swept.append(name)
    return swept


def remove(lab: Lab) -> None:
    """Remove everything of a lab, its state last. Under the lock."""
    if lab.boot_id == state.boot_id():
        for namespace in lab.namespaces:
            network.remove(namespace)
        # Processes whose network somebody else has removed, or which have left it.
        kill_all(partial(mounting, lab.hosts_name))
        if lab.shares_gpus and not _mps_of_another(lab):
            gpus.stop_mps(lab.mps)
    current = state.read(lab.name)
    if current is None or current.token == lab.token:  # not a later one of the same name
        state.forget(lab.name)


def _mps_of_another(lab: Lab) -> bool:
    """Whether another lab uses the same MPS."""
    others = [state.read(name) for name in state.names() if name != lab.name]
    return any(other and other.shares_gpus and other.mps == lab.mps for other in others)


def _no_lab(name: str) -> UsageError:
    names = state.names()
    hint = f"the labs are {', '.join(names)}" if names else "busbw lab up --nodes 2"
    return UsageError(f"no lab '{name}'", hint)
