"""`busbw env`: shell variables that make any NCCL program use busbw's plugins."""

import json
import os
import shlex

import click

from busbw.cli.options.parameters import not_empty
from busbw.cli.streams import answer, talk
from busbw.core.networks import THREADS_VARIABLE, blocks, channels
from busbw.core.networks import is_network_chosen as chosen
from busbw.core.version import __version__
from busbw.host import net_plugin, nvml
from busbw.launch import interfaces

_SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.group("env", context_settings=_SETTINGS)
def command() -> None:
    """Print the variables that make any NCCL program use busbw's plugins."""


@command.command(
    "net", context_settings=_SETTINGS, short_help="The network plugin: many TCP streams."
)
@click.option(
    "--ifname",
    default="",
    callback=not_empty,
    help="also NCCL_SOCKET_IFNAME: a name, prefix, ^exclusion, or a network like 10.1.0.0/16",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(("sh", "json", "dotenv")),
    default="sh",
    show_default=True,
    help="output format",
)
def net(ifname: str, format_name: str) -> int:
    """The network plugin, for this shell: eval "$(busbw env net)".

    First checks that the plugin is installed, loads, and has the symbols that NCCL needs; exit code
    3 if not.
    """
    path = net_plugin.find()
    net_plugin.check(path)
    variables = net_plugin.variables("busbw")
    if ifname:
        variables["NCCL_SOCKET_IFNAME"] = interfaces.for_nccl(ifname, interfaces.local())
    count = 0 if chosen(os.environ) else channels(net_plugin.rate({**os.environ, **variables}))
    # The number of ranks of a future job is unknown.
    same = blocks(count, narrow=nvml.count() == 1 and not os.environ.get(THREADS_VARIABLE))
    if same:
        variables |= same
        settings = " and ".join(f"{name}={value}" for name, value in same.items())
        talk(f"note: {settings} must be the same on all hosts")
    version = net_plugin.version(path)
    if version != __version__:
        versions = f"busbw-native {version or 'of unknown version'}, this is busbw {__version__}"
        talk(f"note: {path} is from {versions}: install the same version of both")
    if format_name == "json":
        answer(json.dumps(variables, indent=1) + "\n")
        return 0
    prefix = "export " if format_name == "sh" else ""
    answer("".join(f"{prefix}{name}={shlex.quote(value)}\n" for name, value in variables.items()))
    return 0
