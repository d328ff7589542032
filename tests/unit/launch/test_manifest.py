"""Manifests: an MPIJob that the operator's schema accepts, and an sbatch script."""

import json
import shlex
from pathlib import Path

import jsonschema
import pytest

from busbw.core.errors import UsageError
from busbw.launch.manifest import mpijob
from busbw.launch.manifest import plan as manifest_plan
from busbw.launch.manifest.mpijob import Pods
from busbw.launch.manifest.plan import Site, plan

SCHEMA = json.loads(
    Path(__file__).parents[2].joinpath("recorded", "mpijob.v2beta1.schema.json").read_text()
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def job(pods=Pods("registry/busbw:1"), hosts=2, gpus=8, ranks=None, words=()):  # noqa: B008
    return json.loads(mpijob.text(plan("nccl-check", hosts, gpus, ranks, words), pods))


SHAPES = [
    job(),
    job(
        Pods(
            "i",
            namespace="bench",
            rdma="rdma/hca=8",
            ssh_directory="/home/mpiuser/.ssh",
            ssh_port=2222,
        )
    ),
    job(gpus=0, ranks=4, words=("busbw", "run", "all_gather", "--engine", "torch")),
    job(words=("all_reduce_perf", "-b", "8", "-e", "8G")),
]


@pytest.mark.parametrize("manifest", SHAPES)
def test_an_mpijob_fits_the_operators_schema(manifest):
    VALIDATOR.validate(manifest)


def test_the_schema_rejects_unknown_fields():
    manifest = job()
    manifest["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0][
        "resource"
    ] = {}
    with pytest.raises(jsonschema.ValidationError, match="'resource' was unexpected"):
        VALIDATOR.validate(manifest)


def test_worker_pods_have_the_resources_nccl_needs():
    spec = job(Pods("i", rdma="rdma/hca=8"))["spec"]
    worker = spec["mpiReplicaSpecs"]["Worker"]
    pod = worker["template"]["spec"]
    container = pod["containers"][0]
    assert spec["launcherCreationPolicy"] == "WaitForWorkersReady"
    assert (worker["replicas"], spec["slotsPerWorker"]) == (2, 8)
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8, "rdma/hca": 8}
    assert container["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    assert container["command"] == ["sh", "-c", mpijob.SSHD, "2222"]
    assert pod["volumes"] == [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    assert container["volumeMounts"] == [{"name": "shm", "mountPath": "/dev/shm"}]
    term = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    assert term["labelSelector"]["matchLabels"]["training.kubeflow.org/job-name"] == "nccl-check"


def test_busbw_run_gets_the_operators_hostfile():
    assert mpijob.command(plan("x", 2, 8, None, ())) == shlex.split(
        "busbw run all_reduce --hostfile /etc/mpi/hostfile --engine nccl"
    )
    assert mpijob.command(plan("x", 2, 0, None, ()))[-1] == "mpi"
    assert (
        mpijob.command(plan("x", 2, 8, None, ("busbw", "run", "all_reduce", "--engine=torch")))[-1]
        == "/etc/mpi/hostfile"
    )


def test_any_other_command_is_the_program_of_each_rank():
    words = mpijob.command(plan("x", 2, 8, 4, ("all_reduce_perf", "-b", "8")))
    assert words[:5] == ["mpirun", "--hostfile", "/etc/mpi/hostfile", "-n", "4"]
    assert words[-3:] == ["all_reduce_perf", "-b", "8"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: plan("x", 2, 8, 3, ()), "--ranks 3: not a multiple of 2 hosts"),
        (lambda: plan("x", 2, 8, 32, ()), "--ranks 32: 16 per host, which has 8 GPUs"),
        (
            lambda: plan("x", 2, 8, None, ("busbw", "run", "all_reduce", "--hosts=h1")),
            "--hosts=h1: the manifest places",
        ),
        (
            lambda: mpijob.text(plan("Big_Name", 2, 8, None, ()), Pods("i")),
            "--name Big_Name: not a DNS label",
        ),
        (lambda: mpijob.text(plan("a" * 60, 2, 8, None, ()), Pods("i")), "has 69 characters"),
        (lambda: mpijob.text(plan("x", 2, 8, None, ()), Pods("i", namespace="A")), "--namespace A"),
        (
            lambda: mpijob.text(plan("x", 2, 8, None, ()), Pods("i", rdma="hca")),
            "--rdma hca: not a resource",
        ),
        (
            lambda: manifest_plan.text(plan("x", 2, 8, None, ()), Site(partition="a b")),
            "--partition 'a b': sbatch could not read it",
        ),
        (lambda: manifest_plan.text(plan("x\n#SBATCH -p y", 2, 8, None, ()), Site()), "--name 'x"),
    ],
)
def test_values_the_target_rejects_are_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()


def test_an_sbatch_script_requests_whole_nodes():
    lines = manifest_plan.text(
        plan("busbw", 2, 8, None, ()), Site("gpu", "team", "00:10:00")
    ).splitlines()
    assert lines[0] == "#!/bin/bash"
    expected = {
        "--nodes=2",
        "--ntasks-per-node=8",
        "--gpus-per-node=8",
        "--partition=gpu",
        "--account=team",
        "--time=00:10:00",
        "--exclusive",
    }
    assert expected <= {line.removeprefix("#SBATCH ") for line in lines}
    assert lines[-1] == "exec busbw run all_reduce --slurm"


def test_an_sbatch_script_quotes_another_program():
    lines = manifest_plan.text(
        plan("busbw", 2, 0, None, ("sh", "-c", "echo $SLURM_PROCID; true")), Site()
    ).splitlines()
    assert lines[-1].startswith("exec srun --mpi=pmix --export=ALL --kill-on-bad-exit=1 ")
    assert lines[-1].endswith("sh -c 'echo $SLURM_PROCID; true'")
    assert not any("gpus" in line for line in lines)


HOSTILE = 'i", "command": ["x"], "y": "@{name}\n// $(id) `id` \'é'


def test_a_value_cannot_change_the_structure_of_an_mpijob():
    replicas = job(Pods(HOSTILE), words=("prog", HOSTILE))["spec"]["mpiReplicaSpecs"]
    launcher, worker = (
        replicas[role]["template"]["spec"]["containers"][0] for role in ("Launcher", "Worker")
    )
    assert launcher["image"] == worker["image"] == launcher["command"][-1] == HOSTILE
    expected = job()["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    assert list(launcher) == list(expected)


def test_a_word_of_the_command_stays_one_word_of_the_script():
    script = manifest_plan.text(plan("busbw", 2, 8, None, ("prog", HOSTILE)), Site())
    assert shlex.split(script.partition("\nexec ")[2])[-1] == HOSTILE
