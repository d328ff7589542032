"""Whether MPI uses the RDMA ports that NCCL uses."""

from collections.abc import Iterator

from busbw.check.base import Check, no_environment, passed, warned
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

PML, COLL, HCOLL, NET, TRANSPORTS = "OMPI_MCA_pml", "OMPI_MCA_coll", "OMPI_MCA_coll_hcoll_enable", "UCX_NET_DEVICES", "UCX_TLS"
RDMA = ("mlx5", "mlx4", "bnxt", "irdma", "rdmap", "all")

ROW = CheckRow(
    id="BW209",
    name="mpi-transport",
    layer=Layer.LAUNCHER,
    title="transport of MPI when NCCL moves the data",
    right="TCP: pml ob1, or UCX on an interface without RDMA; no hcoll",
    why="In nccl-tests and most training, MPI only starts the ranks. UCX opens queue pairs on the ports that NCCL uses, and hcoll may "
    "offload to the same switches. A fault in either stops the start.",
    fix="export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self OMPI_MCA_coll=^hcoll",
    stays="set it in the job script",
    reads=("environment",),
    sources=("Open MPI documentation, point-to-point messaging", "OpenUCX documentation, environment variables"),
)


def look(machine: Machine) -> Iterator[Found]:
    """What variables choose for MPI."""
    if machine.environment is None:
        yield no_environment()
        return
    every = machine.environment
    seen = [Evidence(f"${name}", every[name]) for name in (PML, COLL, HCOLL, NET, TRANSPORTS) if name in every]
    coll = every.get(COLL, "")
    if every.get(HCOLL, "0").lower() not in ("0", "false") or ("hcoll" in coll.split(",") and not coll.startswith("^")):
        yield warned("", "hcoll is on: MPI's collectives use the network's offloads", *seen, fix=ROW.fix)
    elif every.get(PML) == "ucx" and not _tcp(every.get(NET, "all"), every.get(TRANSPORTS, "all")):
        yield warned("", f"{PML}=ucx without {NET} on an interface: MPI and NCCL both use RDMA", *seen, fix=ROW.fix)
    elif PML not in every and NET in every and not _tcp(every[NET], every.get(TRANSPORTS, "all")):
        yield warned("", f"{NET}={every[NET]}: if Open MPI was built with UCX, MPI and NCCL both use RDMA", *seen, fix=ROW.fix)
    else:
        yield passed("", "MPI is not set to RDMA" if seen else "no variable sets MPI's transport", *seen)


def _tcp(devices: str, transports: str) -> bool:
    """Whether UCX is kept to interfaces without RDMA."""
    return not any(part.startswith(RDMA) for part in devices.split(",")) or {"tcp", "self"} >= set(transports.split(",")) - {"sm"}


CHECK = Check(ROW, look)
