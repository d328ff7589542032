"""Stages: every host can be logged into, has this busbw, and knows the others' names."""

import contextlib
import json
import socket

from busbw.check.doctor.launch_context import LaunchContext, failed, identity, passed, warned
from busbw.check.doctor.networks import LARGER_THAN
from busbw.check.shell_words import filled
from busbw.check.types import Stage
from busbw.core.sizes import counted
from busbw.core.version import __version__
from busbw.launch.failures import known
from busbw.launch.remote_ps import SSH_FAILED

SSH_PORT = 22
SAME = (
    "install busbw at the same path on every host, or on a shared file system: ssh {host} ls -l"
    " {path}"
)
APART = (
    "in /etc/hosts on {host}, take {name} out of the line of {address}, and keep the other names of"
    " that line"
)
BANNER_S = 3.0  # sshd sends its banner at once


def ssh(context: LaunchContext) -> Stage:
    """The launch agent reaches all hosts."""
    for done in context.on_all(["true"]):
        if done.code is None and (banner := _banner(done.host)):
            message = (
                f"{done.host}: sshd answers ('{banner}'), but ssh gets no further: the path may"
                " drop large packets"
            )
            return failed("ssh", message, done.error.strip()[-300:], fix=LARGER_THAN)
        if done.code == SSH_FAILED or done.code is None or done.code == 127:
            found = known(done.error, [done.host])
            fix = (
                found.hint
                if found
                else filled(
                    "ssh -o BatchMode=yes -o ConnectTimeout=5 {host} true   (must exit with 0,"
                    " without a prompt)",
                    host=done.host,
                )
            )
            return failed(
                "ssh",
                f"{done.host} cannot be logged into: {done.problem}",
                done.error.strip()[-300:],
                fix=fix,
            )
        if done.code:
            fix = filled(
                "the startup files of its shell on {host} must not exit or print", host=done.host
            )
            message = f"on {done.host} every command in a login shell exits with {done.code}"
            return failed("ssh", message, done.error.strip()[-300:], fix=fix)
    return passed(
        "ssh", f"{counted(len(context.hosts), 'host')} can be logged into without a prompt"
    )


def _banner(host: str) -> str:
    """sshd's banner; '' if nothing answers on port 22."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, SSH_PORT), timeout=BANNER_S) as connection,
    ):
        connection.settimeout(BANNER_S)
        return connection.recv(255).decode("ascii", "replace").partition("\r")[0].strip()
    return ""


def install(context: LaunchContext) -> Stage:
    """The same busbw is at the same path."""
    asked = context.node("identity")
    for done in context.on_all(asked, json.dumps({"names": context.names}).encode()):
        try:
            context.identities[done.host] = identity(done)
        except ValueError:
            message = f"{done.host}: {asked[0]} does not run busbw: {done.problem or 'no answer'}"
            fix = filled(SAME, host=done.host, path=asked[0])
            return failed("install", message, done.error.strip()[-300:], fix=fix)
    other = {
        host: said["busbw"]
        for host, said in context.identities.items()
        if said["busbw"] != __version__
    }
    if other:
        host, version = next(iter(other.items()))
        return failed(
            "install",
            f"{host} has busbw {version}, this host {__version__}",
            fix="install the same version on all hosts",
        )
    return passed("install", f"busbw {__version__} is at the same path on all hosts")


def names(context: LaunchContext) -> Stage:
    """Host names resolve on all hosts, and no host resolves its own name to a loopback address."""
    for host, said in context.identities.items():
        unresolved = [name for name in context.names if not said["names"].get(name)]
        if unresolved:
            fix = filled(
                "add {name} to /etc/hosts on {host}, or use addresses",
                name=unresolved[0],
                host=host,
            )
            return failed("names", f"{host} cannot resolve {unresolved[0]}", fix=fix)
    twice = {said["hostname"] for said in context.identities.values()}
    if len(twice) < len(context.identities):
        shared = ", ".join(sorted(twice))
        message = f"several hosts have the name {shared}: launchers count them as one host"
        fix = "while no job runs there: hostnamectl set-hostname NAME, a different one on each"
        return failed("names", message, fix=fix)
    for host, said in context.identities.items():
        own = said["names"].get(said["hostname"], [])
        if own and all(address.startswith("127.") for address in own):
            message = (
                f"{host} resolves its own name {said['hostname']} to {own[0]}, where other hosts"
                " would reach themselves"
            )
            fix = filled(APART, name=said["hostname"], address=own[0], host=host)
            return warned(
                "names", message, f"getent ahosts {said['hostname']}: {', '.join(own)}", fix=fix
            )
    return passed("names", "all names resolve on all hosts")
