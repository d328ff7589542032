"""Whether Slurm can start MPI programs."""

from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, skipped, unread, warned
from busbw.check.launcher.programs import pmix_listing
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.errors import NoMeasurement
from busbw.launch import slurm

UNCONFIGURED = "Could not establish a configuration source"  # srun without slurm.conf, and without a server that has one

ROW = CheckRow(
    id="BW205",
    name="slurm-mpi",
    layer=Layer.LAUNCHER,
    title="srun's MPI plugins",
    right="pmix is among them",
    why="Open MPI 5 ranks find each other only through PMIx. Without the plugin each rank runs as a separate job of size one.",
    fix="install the plugin mpi/pmix of Slurm, or start the ranks with mpirun inside salloc",
    stays="permanent once installed; MpiDefault=pmix in slurm.conf makes it the default",
    reads=("srun --mpi=list",),
    sources=("Slurm, MPI users guide", "Open MPI 5 documentation, launching with Slurm"),
)


def look(machine: Machine) -> Iterator[Found]:
    """What srun lists."""
    reading = machine.call("srun-mpi", pmix_listing)
    if reading.text is None:
        if UNCONFIGURED in reading.reason:
            yield not_offered("", f"this host is in no Slurm cluster: {reading.reason}", fix="scontrol ping")
        else:
            yield unread("", reading, "srun's list of MPI plugins", fix="scontrol ping")
        return
    if not reading.text:
        yield skipped("no srun on PATH")
        return
    evidence = Evidence("srun --mpi=list", " ".join(reading.text.split()), "pmix")
    try:
        yield passed("", f"srun has {slurm.pmix(reading.text)}", evidence)
    except NoMeasurement as error:
        yield warned("", str(error), evidence, fix=ROW.fix)


CHECK = Check(ROW, look)
