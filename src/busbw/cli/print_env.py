"""`busbw run --print-env`: the variables that make any NCCL program use a network of --net."""

import json
import os
import shlex

from busbw.cli.streams import print_err, print_out
from busbw.core.errors import UsageError
from busbw.core.networks import (
    BY_NAME,
    NETWORKS,
    THREADS_VARIABLE,
    blocks,
    channels,
    is_network_chosen,
)
from busbw.core.version import __version__


def print_env(net: str, ifname: str, format_name: str) -> int:
    """Print the variables for a network as shell commands, JSON, or lines of a .env file.

    For a plugin, first checks that it is installed, loads, and has the symbols that NCCL needs;
    NoMeasurement if not.
    """
    if not net:
        names = ", ".join(row.name for row in NETWORKS)
        raise UsageError(
            f"--print-env: the network is missing, one of {names}",
            "busbw run --net busbw --print-env",
        )
    from busbw.host import net_plugin

    variables = net_plugin.variables(net)
    if ifname:
        from busbw.launch import interfaces

        variables["NCCL_SOCKET_IFNAME"] = interfaces.for_nccl(ifname, interfaces.local())
    if BY_NAME[net].plugin:
        variables |= _of_plugin(variables)
    if format_name == "json":
        print_out(json.dumps(variables, indent=1) + "\n")
        return 0
    prefix = "export " if format_name == "sh" else ""
    print_out(
        "".join(f"{prefix}{name}={shlex.quote(value)}\n" for name, value in variables.items())
    )
    return 0


def _of_plugin(variables: dict[str, str]) -> dict[str, str]:
    """The variables for NCCL's channels over busbw's plugin, after checking that it loads."""
    from busbw.host import net_plugin, nvml

    path = net_plugin.find()
    net_plugin.check(path)
    version = net_plugin.version(path)
    if version != __version__:
        versions = f"busbw-native {version or 'of unknown version'}, this is busbw {__version__}"
        print_err(f"note: {path} is from {versions}: install the same version of both")
    count = (
        0
        if is_network_chosen(os.environ)
        else channels(net_plugin.rate({**os.environ, **variables}))
    )
    # The number of ranks of a future job is unknown.
    same = blocks(count, narrow=nvml.count() == 1 and not os.environ.get(THREADS_VARIABLE))
    if same:
        settings = " and ".join(f"{name}={value}" for name, value in same.items())
        print_err(f"note: {settings} must be the same on all hosts")
    return same
