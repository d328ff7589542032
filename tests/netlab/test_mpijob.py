"""The command of a manifest's MPIJob launcher, with the variables and the hostfile of the MPI
Operator v0.6.0, over emulated workers.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from busbw.core.errors import NoMeasurement
from busbw.launch import mpirun
from busbw.launch.manifest import mpijob
from busbw.launch.manifest.plan import plan

pytestmark = pytest.mark.netlab

SOURCE = str(Path(__file__).parents[2] / "src")
RANK = str(Path(__file__).with_name("rank.py"))
SMALL = ("-b", "1K", "-e", "4K", "--timing", "classic", "--iters", "5")


@pytest.fixture
def open_mpi() -> str:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    try:
        return mpirun.find().path
    except NoMeasurement as error:
        pytest.skip(error.message)


def launch(
    lab: Any, folder: Path, words: tuple[str, ...], launcher: str
) -> subprocess.CompletedProcess[str]:
    """Run the launcher's command of two workers with two slots each on the first host."""
    hostfile = folder / "hostfile"
    hostfile.write_text("".join(f"{host.address} slots=2\n" for host in lab.hosts))
    own = {
        "busbw": [sys.executable, "-m", "busbw"],
        "mpirun": [launcher, "-x", "PYTHONPATH"],
        mpijob.HOSTFILE: [str(hostfile)],
    }
    argv = [
        part
        for word in mpijob.command(plan("job", 2, 0, 4, words))
        for part in own.get(word, [word])
    ]
    environment = {
        **lab.environment(),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": str(hostfile),
        "OMPI_MCA_orte_set_default_slots": "2",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        "PYTHONPATH": SOURCE,
    }
    return subprocess.run(
        lab.hosts[0].enter(*argv),
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_busbw_measures_over_the_operators_hosts(open_mpi, two_hosts, tmp_path):
    done = launch(
        two_hosts, tmp_path, ("busbw", "run", "all_reduce", *SMALL, "--format", "json"), open_mpi
    )
    assert done.returncode == 0, done.stderr
    first, second = two_hosts.hosts
    result = json.loads(done.stdout)
    assert [device["host"] for device in result["world"]["devices"]] == [first.name] * 2 + [
        second.name
    ] * 2


def test_another_program_runs_on_every_rank(open_mpi, two_hosts, tmp_path):
    done = launch(two_hosts, tmp_path, (sys.executable, RANK, "meet", "4"), open_mpi)
    assert done.returncode == 0, done.stderr
    first, second = two_hosts.hosts
    assert json.loads(done.stdout)["hosts"] == [first.name] * 2 + [second.name] * 2
