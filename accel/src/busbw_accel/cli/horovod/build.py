"""`busbw horovodrun --check-build`: what is available, in the form that horovodrun prints and
scripts search.
"""

import click

from busbw.cli.streams import print_out
from busbw.core.version import __version__
from busbw_accel.horovod import __version__ as API_VERSION

_FORM = """\
busbw v{version}, with the API of Horovod v{api}:

Available Frameworks:
    [ ] TensorFlow
    [{torch}] PyTorch
    [ ] MXNet

Available Controllers:
    [ ] MPI
    [{gloo}] Gloo

Available Tensor Operations:
    [{nccl}] NCCL
    [ ] DDL
    [ ] CCL
    [ ] MPI
    [{gloo}] Gloo
"""


def text() -> str:
    """What --check-build prints. Without PyTorch nothing is available."""
    try:
        from busbw_accel.horovod.torch import builds
    except ImportError:
        torch = gloo = nccl = False
    else:
        torch, gloo, nccl = True, builds.gloo_built(), bool(builds.nccl_built())
    available = {"torch": torch, "gloo": gloo, "nccl": nccl}
    marks = {name: "X" if value else " " for name, value in available.items()}
    return _FORM.format(version=__version__, api=API_VERSION, **marks)


def show(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    """The callback of --check-build: print, and end."""
    if asked:
        print_out(text())
        context.exit()
