"""Options on NCCL: which to load in place of the one installed, and --print-env."""

import click

from busbw.cli.options.parameters import File, not_empty
from busbw.cli.options.shared import options

wheels_option = click.option(
    "--wheels",
    type=File(),
    metavar="DIR",
    help=(
        "folder of wheels, or of files like libnccl-2.32.3.so.xz  [default: what pip downloads,"
        " once]"
    ),
)
nccl_options = options(
    click.option(
        "--nccl",
        default="",
        callback=not_empty,
        metavar="RELEASE",
        help="release of NCCL to load in place of the one installed: 2.32.3, or a path",
    ),
    wheels_option,
)
print_env_option = click.option(
    "--print-env",
    "env_format",
    type=click.Choice(("sh", "json", "dotenv")),
    is_flag=False,
    flag_value="sh",
    help="print the variables with which any NCCL program uses --net and --ifname, and stop",
)
