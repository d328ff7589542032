"""srun's command line: the numbers of a step, lines that busbw suppresses, and PMIx by the name
that srun lists.
"""

import os
import shlex
from pathlib import Path

import pytest

from busbw.core.errors import NoMeasurement, UsageError
from busbw.launch import slurm
from busbw.launch.slurm import JobStep, Srun

SRUN = Srun("/usr/bin/srun", "pmix")
# What `srun --mpi=list` prints: Slurm 22.05.8 on stdout, 20.11 on stderr, and one built without
# PMIx.
LISTED = (
    "MPI plugin types are...\n"
    "\tpmix\n"
    "\tnone\n"
    "\tcray_shasta\n"
    "\tpmi2\n"
    "specific pmix plugin versions available: pmix_v4\n"
)
LISTED_20_11 = "srun: MPI types are...\nsrun: none\nsrun: pmix_v3\nsrun: pmix_v2\nsrun: pmi2\n"
WITHOUT_PMIX = "MPI plugin types are...\n\tnone\n\tcray_shasta\n\tpmi2\n"


@pytest.mark.parametrize(
    ("requested", "environment", "expected"),
    [
        (JobStep(nodes=2, ranks_per_node=8), {}, (16, 2, 8)),
        (JobStep(nodes=2, gpus_per_node=8), {}, (16, 2, 8)),
        (JobStep(nodes=2, gpus_per_node=8, ranks_per_node=4), {}, (8, 2, 4)),
        (JobStep(nodes=2), {}, (2, 2, 1)),
        (JobStep(ranks=8), {}, (8, None, None)),
        (JobStep(ranks=8, nodes=2), {}, (8, 2, 4)),
        (JobStep(ranks=7, nodes=2), {}, (7, 2, None)),
        (JobStep(ranks=8, ranks_per_node=4), {}, (8, 2, 4)),
        (JobStep(ranks_per_node=4), {}, (4, 1, 4)),
        (JobStep(), {"SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS": "4"}, (4, 2, 2)),
        (JobStep(), {"SLURM_JOB_NUM_NODES": "2", "SLURM_GPUS_ON_NODE": "8"}, (16, 2, 8)),
        (JobStep(), {"SLURM_JOB_NUM_NODES": "2", "SLURM_GPUS_PER_NODE": "8"}, (16, 2, 8)),
        (JobStep(), {"SLURM_JOB_NUM_NODES": "2", "SLURM_GPUS_PER_NODE": "h100:4"}, (8, 2, 4)),
        (
            JobStep(),
            {"SLURM_JOB_NUM_NODES": "2", "SLURM_GPUS_PER_NODE": "4", "SLURM_GPUS_ON_NODE": "2"},
            (4, 2, 2),
        ),
        (JobStep(ranks=16, gpus_per_node=8), {}, (16, 2, 8)),
        (JobStep(ranks=12, gpus_per_node=8), {}, (12, None, None)),
        (JobStep(ranks=16, gpus_per_node=8), {"SLURM_JOB_NUM_NODES": "4"}, (16, 4, 4)),
        (JobStep(), {"SLURM_JOB_NUM_NODES": "3"}, (3, 3, 1)),
        (
            JobStep(nodes=1, ranks_per_node=2),
            {"SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS": "4"},
            (2, 1, 2),
        ),
        (JobStep(ranks=6), {"SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS": "4"}, (6, 2, 3)),
    ],
)
def test_missing_numbers_of_a_step_are_derived(requested, environment, expected):
    settled = slurm.with_defaults(requested, environment)
    assert (settled.ranks, settled.nodes, settled.ranks_per_node) == expected


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (JobStep(), "neither ranks nor nodes"),
        (JobStep(ranks=3, nodes=2, ranks_per_node=2), "--ranks 3: 2 nodes with 2 each are 4"),
        (JobStep(ranks=5, ranks_per_node=2), "--ranks 5: 3 nodes with 2 each are 6"),
        (JobStep(nodes=1), "a single rank"),
    ],
)
def test_missing_or_contradictory_numbers_are_refused(requested, message):
    with pytest.raises(UsageError, match=message):
        slurm.with_defaults(requested, {})


def test_the_srun_line_has_pmix_gpus_and_site_options():
    step = slurm.with_defaults(JobStep(nodes=2, gpus_per_node=8, arguments=("-p", "gpu")), {})
    words = slurm.command(SRUN, ["rank"], step, "", {})
    assert words[:5] == shlex.split(
        "/usr/bin/srun --mpi=pmix --ntasks=16 --nodes=2 --ntasks-per-node=8"
    )
    assert words[5:10] == shlex.split(
        "--gpus-per-node=8 --export=ALL --kill-on-bad-exit=1 --cpu-bind=none --gpu-bind=none"
    )
    assert words[10:] == [
        "-p",
        "gpu",
        "env",
        "OMPI_MCA_pml=ob1",
        "OMPI_MCA_btl=tcp,self",
        "OMPI_MCA_coll=^hcoll",
        "rank",
    ]


def test_on_one_node_mpi_keeps_its_shared_memory():
    words = slurm.command(
        SRUN, ["rank"], slurm.with_defaults(JobStep(nodes=1, ranks_per_node=2), {}), "", {}
    )
    assert words[-2:] == ["--gpu-bind=none", "rank"]


def test_mpi_settings_of_the_user_are_kept():
    words = slurm.command(
        SRUN,
        ["rank"],
        slurm.with_defaults(JobStep(nodes=2), {}),
        "",
        {"OMPI_MCA_btl": "self,vader"},
    )
    assert not any(word.startswith("OMPI_MCA_btl=") for word in words)
    assert "OMPI_MCA_pml=ob1" in words


def test_a_cidr_is_passed_on_from_a_host_outside_it():
    words = slurm.command(
        SRUN, ["rank"], slurm.with_defaults(JobStep(nodes=2), {}), "198.51.100.0/24", {}
    )
    assert "OMPI_MCA_btl_tcp_if_include=198.51.100.0/24" in words
    assert "BUSBW_IFNAME=198.51.100.0/24" in words


def test_another_pmix_can_be_named():
    step = slurm.with_defaults(JobStep(nodes=2, arguments=slurm.split("--mpi=pmix_v3")), {})
    assert [
        word for word in slurm.command(SRUN, ["rank"], step, "", {}) if word.startswith("--mpi")
    ] == ["--mpi=pmix_v3"]


def test_quoted_slurm_args_stay_whole():
    assert slurm.split("-p gpu --comment='two words' --container-image=a/b:1") == (
        "-p",
        "gpu",
        "--comment=two words",
        "--container-image=a/b:1",
    )


@pytest.mark.parametrize(
    "text", ["-l", "--label", "-o out", "-oout", "--output=x", "-e err", "--pty", "-u"]
)
def test_options_that_change_the_output_are_refused(text):
    with pytest.raises(UsageError, match="would change the ranks' output"):
        slurm.split(text)


@pytest.mark.parametrize("text", ["-N 2", "-N2", "--nodes=2", "-n 4", "--ntasks-per-node 8"])
def test_options_set_by_busbw_are_refused(text):
    with pytest.raises(UsageError, match="busbw sets") as caught:
        slurm.split(text)
    assert "--nodes 2" in caught.value.hint


def test_an_unclosed_quote_is_refused():
    with pytest.raises(UsageError, match="no closing quotation"):
        slurm.split("--comment='x")


@pytest.mark.parametrize(
    ("listed", "name"),
    [(LISTED, "pmix"), (LISTED_20_11, "pmix_v3"), ("pmix_v5\npmix_v10\n", "pmix_v10")],
)
def test_pmix_is_found_by_its_listed_name(listed, name):
    assert slurm.pmix(listed) == name


def test_without_pmix_the_message_lists_what_exists():
    with pytest.raises(NoMeasurement, match=r"has no PMIx.*none, cray_shasta, pmi2") as caught:
        slurm.pmix(WITHOUT_PMIX)
    assert "--hosts h1:8,h2:8" in caught.value.hint


def test_queue_state_follows_srun_messages():
    queue = slurm.Queue()
    queue.take("a rank said: queued and waiting for resources")
    assert not queue.waiting
    queue.take("srun: job 7 queued and waiting for resources")
    assert queue.waiting
    queue.take("srun: job 7 has been allocated resources")
    assert not queue.waiting


def test_only_sruns_exit_reports_are_suppressed():
    assert slurm.own_line("srun: error: h2: task 3: Killed")
    assert slurm.own_line(
        "slurmstepd-h1: error: *** STEP 4.0 ON h1 CANCELLED AT 2026-11-21T23:36:09 ***"
    )
    assert not slurm.own_line("srun: job 7 queued and waiting for resources")
    assert not slurm.own_line(
        "srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)"
    )
    assert not slurm.own_line("h1: NCCL INFO srun: error")


def srun_that(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "srun"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_srun_is_asked_for_its_plugins(tmp_path, monkeypatch):
    srun_that(tmp_path, 'test "$*" = --mpi=list && echo "srun: pmix_v4" >&2', monkeypatch)
    assert slurm.find() == Srun(str(tmp_path / "srun"), "pmix_v4")


def test_a_failing_srun_is_quoted(tmp_path, monkeypatch):
    srun_that(
        tmp_path,
        'echo "srun: fatal: Could not establish a configuration source" >&2; exit 1',
        monkeypatch,
    )
    with pytest.raises(NoMeasurement, match="exited with 1: fatal: Could not establish") as caught:
        slurm.find()
    assert "scontrol ping" in caught.value.hint


def test_a_missing_srun_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoMeasurement, match="no srun on PATH"):
        slurm.find()
