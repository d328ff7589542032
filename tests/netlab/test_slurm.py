"""`busbw run --slurm` and sbatch scripts on a real Slurm over two emulated nodes, with real PMIx
ranks on CPUs.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# After or before the faults, one of which sets the clock an hour forward: Slurm's credentials would
# be out of date.
pytestmark = [pytest.mark.netlab, pytest.mark.xdist_group("faults")]

Here = Callable[..., Any]
SOURCE = str(Path(__file__).parents[2] / "src")
RANK = str(Path(__file__).with_name("rank.py"))
BUSBW = (sys.executable, "-m", "busbw")
# Unlike mpirun, srun does not tell ranks that they share processors.
VARIABLES = {"PYTHONPATH": SOURCE, "OMPI_MCA_mpi_yield_when_idle": "1"}
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
SMALL = ("-b", "1K", "-e", "64K", "-f", "8", "--timing", "classic", "--iters", "5")
LIMIT_S = 60.0


def busbw(
    cluster: Any, *words: str, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    return cluster.run(*before, *BUSBW, *words, limit_s=LIMIT_S, **VARIABLES)


def start(cluster: Any, *words: str) -> subprocess.Popen[str]:
    line = cluster.lab.hosts[0].enter(*BUSBW, *words)
    environment = {**cluster.environment(), **VARIABLES}
    return subprocess.Popen(
        line,
        env=environment,
        cwd=cluster.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ranks(host: Any) -> list[int]:
    """Processes of ranks on a node."""
    pids = []
    for pid in host.pids():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(Path(sys.executable).name.encode()) and b"busbw.measure.rank" in words:
            pids.append(pid)
    return pids


def until(condition: Any) -> bool:
    deadline = time.monotonic() + LIMIT_S / 2
    while not (held := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return bool(held)


def ended(cluster: Any) -> bool:
    return until(
        lambda: (
            not cluster.run("squeue", "--noheader").stdout
            and not any(ranks(host) for host in cluster.lab.hosts)
        )
    )


def test_a_sweep_over_two_nodes_is_verified(slurm_cluster):
    first, second = slurm_cluster.lab.hosts
    file = slurm_cluster.folder / "r.json"
    words = ("--slurm", "--nodes", "2", "--ntasks-per-node", "2", "--ifname", "10.77.0.0/24")
    done = busbw(slurm_cluster, "run", "all_reduce", *words, *SMALL, "--json", str(file))
    assert done.returncode == 0, done.stderr
    result = json.loads(file.read_text())
    assert result["complete"]
    assert [device["host"] for device in result["world"]["devices"]] == [first.name] * 2 + [
        second.name
    ] * 2
    assert [row["size_bytes"] for row in result["rows"]] == [1024, 8192, 65536]
    assert all(
        row[placement]["wrong"] == 0
        for row in result["rows"]
        for placement in ("out_of_place", "in_place")
    )
    assert "note: measuring on CPUs" in done.stderr
    assert "srun:" not in done.stderr


def test_the_allocation_gives_the_number_of_ranks(slurm_cluster):
    before = ("salloc", "--quiet", "--nodes=2", "--ntasks-per-node=2")
    done = busbw(
        slurm_cluster, "run", "all_reduce", "--slurm", *SMALL, "--format", "json", before=before
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["world"]["devices"]) == 4


def test_queue_time_is_not_launch_time(slurm_cluster):
    slurm_cluster.run("sbatch", "--nodes=2", "--exclusive", "--wrap", "sleep 9")
    words = ("--slurm", "--nodes", "2", "--launch-limit", "6")
    done = busbw(slurm_cluster, "run", "all_reduce", *words, *SMALL)
    assert done.returncode == 0, done.stderr
    assert "queued and waiting for resources" in done.stderr
    assert "has been allocated resources" in done.stderr


def test_without_pmix_the_split_brain_is_refused(slurm_cluster):
    done = busbw(
        slurm_cluster,
        "run",
        "all_reduce",
        "--slurm",
        "--nodes",
        "2",
        "--slurm-args=--mpi=none",
        *SMALL,
    )
    assert done.returncode == 3
    assert "split brain" in done.stderr
    assert "srun --mpi=pmix" in done.stderr
    assert ended(slurm_cluster)


def test_a_refusal_of_slurm_is_quoted(slurm_cluster):
    done = busbw(
        slurm_cluster, "run", "all_reduce", "--slurm", "--nodes", "2", "--slurm-args", "-p nowhere"
    )
    assert done.returncode == 3
    assert done.stderr.startswith(
        "error: Slurm allocated no resources: Invalid partition name specified"
    )


def test_a_killed_rank_is_named_and_ends_the_job(slurm_cluster):
    process = start(
        slurm_cluster,
        "run",
        "all_reduce",
        "--slurm",
        "--nodes",
        "2",
        "--ntasks-per-node",
        "2",
        "-b",
        "1K",
        "-e",
        "1G",
    )
    second = slurm_cluster.lab.hosts[1]
    try:
        assert until(lambda: len(ranks(second)) == 2)
        time.sleep(3)
        os.kill(ranks(second)[0], signal.SIGKILL)
        _, errors = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert process.returncode == 3, errors
    death = re.search(r"ranks? (\S+) on host (\S+) died \(Killed\)(, or .*)?", errors)
    assert death, errors
    assert (
        death[2] == second.name and death[1] in ("2", "3", "2-3")
    ) or f"on host {second.name} died first" in death[3], errors
    assert ended(slurm_cluster)


def interrupted(cluster: Any) -> tuple[int, str]:
    """The outcome of a run over two nodes that is interrupted once its ranks have started."""
    process = start(
        cluster,
        "run",
        "all_reduce",
        "--slurm",
        "--nodes",
        "2",
        "--ntasks-per-node",
        "2",
        "-b",
        "1K",
        "-e",
        "1G",
    )
    try:
        assert until(lambda: all(len(ranks(host)) == 2 for host in cluster.lab.hosts))
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    return process.returncode, errors


def test_an_interrupt_leaves_no_slurm_job_and_no_process(slurm_cluster):
    code, errors = interrupted(slurm_cluster)
    if "open-mpi/ompi#12495" in errors:  # an occasional fault of Open MPI itself
        assert ended(slurm_cluster)
        code, errors = interrupted(slurm_cluster)
    assert code == 130, errors
    assert ended(slurm_cluster)


def script(here: Here, cluster: Any, *words: str) -> str:
    """The output of this manifest's sbatch job after it ended successfully."""
    done = here(
        cluster.lab,
        "manifest",
        "slurm",
        "--name",
        "probe",
        "--gpus-per-node",
        "0",
        "--ranks",
        "4",
        *words,
    )
    assert done.returncode == 0, done.stderr
    cluster.folder.joinpath("job.sh").write_text(done.stdout)
    job = cluster.run("sbatch", "--parsable", "job.sh", PATH=PATH, **VARIABLES).stdout.strip()
    assert ended(cluster)
    log = cluster.folder.joinpath(f"probe-{job}.log").read_text()
    assert "JobState=COMPLETED" in cluster.run("scontrol", "show", "job", job).stdout, log
    return log


@pytest.mark.skipif(
    not Path(sys.executable).with_name("busbw").exists(),
    reason="the busbw command is not installed with this Python",
)
def test_the_sbatch_script_of_a_manifest_measures(here, slurm_cluster):
    log = script(here, slurm_cluster, "--", "busbw", "run", "all_reduce", *SMALL)
    assert "on 2 hosts, mpi engine" in log
    assert "no wrong element" in log


def test_an_sbatch_script_runs_any_program_on_every_rank(here, slurm_cluster):
    log = script(here, slurm_cluster, "--", sys.executable, RANK, "meet", "4")
    facts = json.loads(next(line for line in log.splitlines() if line.startswith("{")))
    first, second = slurm_cluster.lab.hosts
    assert facts["size"] == 4
    assert facts["hosts"] == [first.name] * 2 + [second.name] * 2


@pytest.mark.parametrize("kind", ["prolog", "epilog"])
def test_the_node_that_fails_is_drained_with_the_reason(kind, here, slurm_cluster):
    """The command lines are those of how-to/slurm.md; the second host's file marks it as bad."""
    script, settings = (slurm_cluster.folder / name for name in (f"{kind}.sh", "slurm.conf"))
    before = settings.read_text()
    bad = slurm_cluster.lab.hosts[1].name
    program = slurm_cluster.folder / "busbw"
    program.write_text(
        f"#!/bin/sh\n[ $SLURMD_NODENAME = {bad} ] && set -- check --fail-on warn --only open-files\n"
        f'ulimit -n 64\nPYTHONPATH={SOURCE} exec {sys.executable} -m busbw "$@"\n'
    )
    program.chmod(0o755)
    words = ("--program", str(program), "--check-options", "--only cpu-online")
    script.write_text(here(slurm_cluster.lab, "manifest", kind, *words).stdout)
    script.chmod(0o755)
    try:
        settings.write_text(f"{before}{kind.title()}={script}\nPrologFlags=Alloc\n")
        slurm_cluster.run("scontrol", "reconfigure")
        slurm_cluster.run("timeout", "30", "srun", "--nodes=2", "true")
        assert until(lambda: drained(slurm_cluster))
        time.sleep(1)  # Slurm gives its own reason after that of the script, if it does
        reason = "busbw open-files: a process may open 64 files"
        assert drained(slurm_cluster).keys() == {bad}
        assert drained(slurm_cluster)[bad].startswith(reason)
    finally:
        settings.write_text(before)
        slurm_cluster.run("scontrol", "reconfigure")
        slurm_cluster.run("scontrol", "update", f"nodename={bad}", "state=resume")
        assert ended(slurm_cluster)


def drained(cluster: Any) -> dict[str, str]:
    """The reasons of the nodes that are drained."""
    lines = cluster.run("sinfo", "--noheader", "--list-reasons", "--format=%n %E").stdout
    return dict(line.split(" ", 1) for line in lines.splitlines())
