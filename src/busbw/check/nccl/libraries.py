"""Which NCCL a program loads."""

from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import LIBRARIES, libraries
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.nccl_libraries import live

ROW = CheckRow(
    id="BW183",
    name="nccl-libraries",
    layer=Layer.NCCL,
    title="versions of libnccl on this machine",
    right="one version, or several copies of it",
    why="PyTorch from pip loads the NCCL of its Python package. nccl-tests loads the one of the system or of LD_LIBRARY_PATH. The NCCL "
    "that was tested is then not the one used for training, and has other defaults, algorithms and bugs.",
    fix="for the test: export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH; or install the same version",
    stays="set it in the job script, or keep the versions of both packages equal",
    reads=("the Python package nvidia-nccl", "LD_LIBRARY_PATH", "library folders of the system"),
    sources=("NCCL user guide, environment variables",),
)


def look(machine: Machine) -> Iterator[Found]:
    """All libnccl.so.2 that a program may load."""
    found = libraries(machine)
    if found is None:
        yield unread("", machine.call(LIBRARIES, live), "the libraries of NCCL")
        return
    if not found:
        yield skipped("no libnccl.so.2 in the usual places")
        return
    evidence = [Evidence(one.path, one.version or "no version in the file") for one in found]
    versions = {one.version for one in found}
    if "" in versions:
        yield not_offered("", "a libnccl.so.2 does not contain its version", *evidence)
    elif len(versions) == 1:
        yield passed("", f"NCCL {versions.pop()}", *evidence)
    else:
        named = ", ".join(f"{one.version} ({one.by})" for one in found)
        folder = found[0].path.rpartition("/")[0]
        yield warned("", f"several versions of NCCL: {named}", *evidence, fix=filled(ROW.fix, folder=folder))


CHECK = Check(ROW, look)
