"""Stages: every host can be logged into without a prompt, has this busbw, and knows the others' names."""

import contextlib
import json
import socket

from busbw.check.doctor.networks import LARGER_THAN
from busbw.check.doctor.patient import Patient, failed, identity, passed, warned
from busbw.core.checking import Stage
from busbw.core.sizes import counted
from busbw.core.version import __version__
from busbw.launch.agent import SSH_FAILED
from busbw.launch.failures import known

SSH_PORT = 22
BANNER_S = 3.0  # sshd sends its banner at once


def ssh(patient: Patient) -> Stage:
    """The launch agent reaches all hosts."""
    for done in patient.on_all(["true"]):
        if done.code is None and (banner := _banner(done.host)):
            message = f"{done.host}: sshd answers ('{banner}'), but ssh gets no further: the path may drop large packets"
            return failed("ssh", message, done.error.strip()[-300:], fix=LARGER_THAN)
        if done.code == SSH_FAILED or done.code is None or done.code == 127:
            found = known(done.error, [done.host])
            fix = (
                found.hint if found else f"ssh -o BatchMode=yes -o ConnectTimeout=5 {done.host} true   (must exit with 0, without a prompt)"
            )
            return failed("ssh", f"{done.host} cannot be logged into: {done.problem}", done.error.strip()[-300:], fix=fix)
        if done.code:
            return failed("ssh", f"on {done.host} every command in a login shell exits with {done.code}", done.error.strip()[-300:],
                          fix=f"check the shell's startup files on {done.host}: they must not exit or print")  # fmt: skip
    return passed("ssh", f"{counted(len(patient.hosts), 'host')} can be logged into without a prompt")


def _banner(host: str) -> str:
    """sshd's banner; '' if nothing answers on port 22."""
    with contextlib.suppress(OSError), socket.create_connection((host, SSH_PORT), timeout=BANNER_S) as connection:
        connection.settimeout(BANNER_S)
        return connection.recv(255).decode("ascii", "replace").partition("\r")[0].strip()
    return ""


def install(patient: Patient) -> Stage:
    """The same busbw is at the same path."""
    asked = patient.node("identity")
    for done in patient.on_all(asked, json.dumps({"names": patient.names}).encode()):
        try:
            patient.identities[done.host] = identity(done)
        except ValueError:
            message = f"{done.host}: {asked[0]} does not run busbw: {done.problem or 'no answer'}"
            fix = f"install busbw at the same path on every host, or on a shared file system: ssh {done.host} ls -l {asked[0]}"
            return failed("install", message, done.error.strip()[-300:], fix=fix)
    other = {host: said["busbw"] for host, said in patient.identities.items() if said["busbw"] != __version__}
    if other:
        host, version = next(iter(other.items()))
        return failed("install", f"{host} has busbw {version}, this host {__version__}", fix="install the same version on all hosts")
    return passed("install", f"busbw {__version__} is at the same path on all hosts")


def names(patient: Patient) -> Stage:
    """Host names resolve on all hosts, and no host resolves its own name to a loopback address."""
    for host, said in patient.identities.items():
        unresolved = [name for name in patient.names if not said["names"].get(name)]
        if unresolved:
            fix = f"add {unresolved[0]} to /etc/hosts on {host}, or use addresses"
            return failed("names", f"{host} cannot resolve {unresolved[0]}", fix=fix)
    twice = {said["hostname"] for said in patient.identities.values()}
    if len(twice) < len(patient.identities):
        return failed("names", f"several hosts have the name {', '.join(sorted(twice))}: launchers count them as one host",
                      fix="hostnamectl set-hostname NAME, a different one on each")  # fmt: skip
    for host, said in patient.identities.items():
        own = said["names"].get(said["hostname"], [])
        if own and all(address.startswith("127.") for address in own):
            message = f"{host} resolves its own name {said['hostname']} to {own[0]}, where other hosts would reach themselves"
            fix = f"remove the line '{own[0]} {said['hostname']}' from /etc/hosts on {host}"
            return warned("names", message, f"getent ahosts {said['hostname']}: {', '.join(own)}", fix=fix)
    return passed("names", "all names resolve on all hosts")
