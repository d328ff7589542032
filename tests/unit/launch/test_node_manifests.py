"""Manifests that judge nodes: a DaemonSet, and an init container with the verdicts of the prolog."""

import copy
import json
import os
import shlex
import subprocess
from pathlib import Path

import jsonschema
import pytest

from busbw.cli.check import command as check_command
from busbw.cli.main import guarded
from busbw.cli.watch import command as watch_command
from busbw.core.errors import UsageError
from busbw.launch.manifest import kubernetes
from busbw.launch.manifest.kubernetes import (
    CheckSteps,
    PodSettings,
    preflight,
    preflight_script,
    prolog,
)

SCHEMA = json.loads(
    Path(__file__).parents[2].joinpath("recorded", "daemonset.v1.schema.json").read_text()
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
QUICK = ["--only", "kernel-port-range"]
SIM = shlex.split("all_reduce --engine sim -np 4 -b 1M -e 1M --iters 12 --sim gbps=300")


def make_manifests(node=PodSettings("busbw-watch", "registry/busbw:1")):  # noqa: B008
    return json.loads(kubernetes.text(node))


def watch(daemon):
    return daemon["spec"]["template"]["spec"]["containers"][0]


def patched(daemon, limits):
    """The DaemonSet with the init container, as a strategic merge patch adds it."""
    pod = json.loads(preflight("registry/busbw:1", limits, CheckSteps((), SIM, 60)))["spec"][
        "template"
    ]["spec"]
    merged = copy.deepcopy(daemon)
    target = merged["spec"]["template"]["spec"]
    target["initContainers"] = pod["initContainers"]
    target["volumes"] += pod["volumes"]
    return merged


@pytest.mark.parametrize(
    "daemon",
    [
        make_manifests(),
        make_manifests(
            PodSettings(
                "w",
                "i",
                namespace="bench",
                secret="s",
                port=9500,
                runtime_class="",
                selector="",
                check=("--layer", "NIC"),
            )
        ),
        patched(make_manifests(), {}),
        patched(make_manifests(), {"nvidia.com/gpu": 8, "rdma/hca": 1}),
    ],
)
def test_objects_fit_the_schema_of_kubernetes(daemon):
    VALIDATOR.validate(daemon)


@pytest.mark.parametrize("place", ["spec", "readinessProbe"])
def test_the_schema_of_a_daemonset_is_strict(place):
    daemon = make_manifests()
    (daemon["spec"] if place == "spec" else watch(daemon)[place])["every"] = 1
    with pytest.raises(jsonschema.ValidationError, match="'every' was unexpected"):
        VALIDATOR.validate(daemon)


def test_pods_have_no_privileges():
    daemon = patched(make_manifests(), {"nvidia.com/gpu": 8})
    pod = daemon["spec"]["template"]["spec"]
    for container in [*pod["containers"], *pod["initContainers"]]:
        context = container["securityContext"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert (context["runAsNonRoot"], context["allowPrivilegeEscalation"]) == (True, False)
        assert "privileged" not in context
    assert not any("hostPath" in volume for volume in pod["volumes"])
    assert not pod["automountServiceAccountToken"]


def test_a_daemonset_takes_no_gpu_from_jobs():
    assert not any(
        "gpu" in name for limits in watch(make_manifests())["resources"].values() for name in limits
    )


def test_commands_of_the_daemonset_parse(tmp_path):
    container = watch(make_manifests())
    probe = container["readinessProbe"]["exec"]["command"]
    assert probe[:2] == ["busbw", "check"]
    assert [layer.value for layer in kubernetes.LAYERS] == list(
        check_command.make_context("check", probe[2:]).params["layer"]
    )
    (tmp_path / "token").write_text("t")
    places = {"$(NODE_IP):28729": "10.0.0.1:28729", "/etc/busbw/token": str(tmp_path / "token")}
    words = [places.get(word, word) for word in container["command"]]
    assert words[:2] == ["busbw", "watch"]
    assert watch_command.make_context("watch", words[2:]).params["listen"] == "10.0.0.1:28729"


def run(
    kind: str, steps: CheckSteps, folder: Path, warm_busbw: str = ""
) -> subprocess.CompletedProcess[str]:
    script = prolog(steps) if kind == "prolog" else preflight_script(steps)
    (folder / "script").write_text(script)
    if warm_busbw:
        (folder / "busbw").write_text(f'#!/bin/sh\nexec {warm_busbw} -m busbw "$@"\n')
        (folder / "busbw").chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    words = ["sh", str(folder / "script")]
    return subprocess.run(
        words,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# What each makes of every exit code is below.
@pytest.mark.parametrize(
    ("kind", "least", "code"),
    [
        pytest.param("prolog", [*SIM, "--min-busbw", "1GB/s"], 0, id="fast"),
        pytest.param("prolog", [*SIM, "--min-busbw", "900GB/s"], 1, id="slow"),
        pytest.param("preflight", [*SIM, "--min-percent", "50%"], 0, id="unknown"),
    ],
)
def test_prolog_and_init_container_give_the_same_verdict(kind, least, code, tmp_path, warm_busbw):
    result = run(kind, CheckSteps(QUICK, least, 30), tmp_path, warm_busbw)
    assert result.returncode == code, result.stdout + result.stderr
    if kind == "prolog":
        assert result.stdout.startswith("print busbw: error: busbw ") == bool(code)
    elif "--min-busbw" not in least:
        assert "this node could not be judged; the pod starts" in result.stderr


@pytest.mark.parametrize("kind", ["prolog", "preflight"])
@pytest.mark.parametrize(
    ("output", "status", "strict", "code"),
    [
        ("PASS", 0, True, 0),
        ("FAIL    GPU 3: it does not answer", 1, False, 1),
        ("UNKNOWN GPU 3: its temperature", 3, False, 0),
        ("UNKNOWN GPU 3: its temperature", 3, True, 1),
        ("error: no such option", 2, False, 0),
        ("error: no such option", 2, True, 1),
        ("error: a bug in busbw", 4, True, 1),
        ("error: busbw: not found", 127, True, 1),
    ],
)
def test_a_node_that_could_not_be_judged_is_refused_only_if_asked(
    kind, output, status, strict, code, tmp_path
):
    (tmp_path / "busbw").write_text(f"#!/bin/sh\necho '{output}'\nexit {status}\n")
    (tmp_path / "busbw").chmod(0o755)
    result = run(kind, CheckSteps([], [], 5, strict), tmp_path)
    assert result.returncode == code, result.stdout + result.stderr
    if kind == "prolog" and code:
        assert f"print busbw: {output}" in result.stdout
    elif kind == "prolog":
        kept = f"note: exit code {status}: this node could not be judged, and is kept: {output}\n"
        assert result.stderr == (kept if status else "")


@pytest.mark.parametrize("kind", ["prolog", "preflight"])
@pytest.mark.parametrize("options", ["--expect a.toml", "--expect=a.toml"])
@pytest.mark.parametrize(
    ("strict", "failing", "code", "checked"),
    [
        (False, "--layer GPU", 1, "--layer GPU"),
        (False, "--layer NIC", 0, "--layer GPU"),
        (True, "--layer GPU", 1, "--expect"),
    ],
)
def test_a_file_that_cannot_be_read_turns_off_no_other_check(
    kind, options, strict, failing, code, checked, tmp_path
):
    lines = [
        "#!/bin/sh",
        f'echo "$*" >> {tmp_path}/calls',
        'case "$*" in *--expect*) echo "error: --expect a.toml: no such file"; exit 2;; esac',
        f'case "$*" in *"{failing}"*) echo "FAIL    GPU 3"; exit 1;; esac',
    ]
    (tmp_path / "busbw").write_text("\n".join(lines))
    (tmp_path / "busbw").chmod(0o755)
    steps = CheckSteps([*options.split(), "--layer", "GPU"], [], 5, strict)
    result = run(kind, steps, tmp_path)
    assert result.returncode == code, result.stdout + result.stderr
    assert checked in (tmp_path / "calls").read_text().splitlines()[-1]
    assert ("note: the checks now run without --expect\n" in result.stderr) != strict


FELL = "FAIL    GPU 1: Xid 79 (GPU has fallen off the bus), 1 min ago  [BW005 gpu-xid]"
XID = "busbw gpu-xid: GPU 1: Xid 79 (GPU has fallen off the bus), 1 min ago"
SCONTROL = """#!/bin/sh
case "$*" in
*show*) echo "NodeName=n1 Comment=DRAIN State=$STATE ThreadsPerCore=2" ;;
*) printf '%s\\n' "$@" > "$0.words" ;;
esac
"""


@pytest.mark.parametrize("script", [kubernetes.prolog, kubernetes.epilog])
@pytest.mark.parametrize(
    ("output", "state", "reason"),
    [
        (FELL, "IDLE", XID),
        (f"head\n\n{FELL}\nWARN    x  [BW070 nic-mtu]", "MIXED+COMPLETING", XID),
        (
            "FAIL    /x[1] is not mounted  [BW298 expect-storage]",
            "IDLE",
            "busbw expect-storage: /x",
        ),
        ("error: busbw 12 GB/s is below 80 %", "IDLE", "busbw error: busbw 12 GB/s is below 80 %"),
        (FELL, "IDLE+DRAIN", None),
    ],
)
def test_slurm_is_given_the_reason_unless_the_node_has_one(script, output, state, reason, tmp_path):
    for name, text in {
        "busbw": f"#!/bin/sh\necho '{output}'\nexit 1\n",
        "scontrol": SCONTROL,
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "script").write_text(script(CheckSteps([], [], 5)))
    done = subprocess.run(
        ["/bin/sh", str(tmp_path / "script")],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURMD_NODENAME": "n1", "STATE": state},
        stdout=subprocess.DEVNULL,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    words = tmp_path / "scontrol.words"
    if reason is None:
        assert not words.exists()
    else:
        told = words.read_text().splitlines()
        assert told[:3] == ["update", "nodename=n1", "state=drain"]
        assert told[3].startswith(f"reason={reason}")


def test_a_prolog_names_its_program_because_slurm_sets_no_path(tmp_path, capsys):
    program = tmp_path / "busbw of ours"
    program.write_text("#!/bin/sh\nenv > \"$0.env\"\necho 'FAIL    GPU 3'\nexit 1\n")
    program.chmod(0o755)
    assert guarded(["manifest", "prolog", "--program", str(program)]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    words = ["/bin/sh", str(tmp_path / "script")]
    result = subprocess.run(words, env={}, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "print busbw: FAIL    GPU 3\n")
    seen = Path(f"{program}.env").read_text().splitlines()
    assert any(line.startswith("PATH=/") for line in seen) and "BUSBW_CONFIG=/dev/null" in seen
    assert guarded(["manifest", "prolog"]) == 0
    assert "\nrun /" in capsys.readouterr().out


ENDED = '[[mute]]\ncheck = "nic-mtu"\nreason = "ticket"\nuntil = 2020-01-01\n'


@pytest.mark.parametrize(
    ("expected", "output"),
    [
        ("[memory]\nram_bytes = 999999999999999\n", "print busbw: FAIL    RAM is "),
        (
            f"[memory]\nram_bytes = 1\n{ENDED}",
            "print busbw: WARN    the mute of nic-mtu ended on 2020-01-01",
        ),
        ("[memory]\nram_bytes = 1\n", ""),
    ],
)
def test_prolog_compares_with_the_expectations_of_the_node(expected, output, tmp_path, warm_busbw):
    (tmp_path / "node.toml").write_text(expected)
    result = run(
        "prolog",
        CheckSteps(
            ["--expect", str(tmp_path / "node.toml"), "--layer", "expected", "--fail-on", "warn"],
            [],
            30,
        ),
        tmp_path,
        warm_busbw,
    )
    assert (result.returncode, result.stdout[: len(output)]) == (int(bool(output)), output), (
        result.stdout + result.stderr
    )


@pytest.mark.parametrize("kind", ["prolog", "preflight"])
def test_a_step_that_hangs_keeps_the_job_away(kind, tmp_path):
    """As a call of NVML does on a broken GPU."""
    (tmp_path / "busbw").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "busbw").chmod(0o755)
    result = run(kind, CheckSteps([], [], 1), tmp_path)
    assert result.returncode == 1
    assert "busbw check did not end within 1 s" in result.stdout + result.stderr


def test_an_init_container_gets_the_devices_of_the_pod(capsys):
    assert (
        guarded(
            ["manifest", "preflight", "--image", "i", "--gpus-per-node", "4", "--rdma", "rdma/hca"]
        )
        == 0
    )
    container = json.loads(capsys.readouterr().out)["spec"]["template"]["spec"]["initContainers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 4, "rdma/hca": 1}


@pytest.mark.parametrize("words", [["prolog"], ["preflight", "--image", "i"]])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--check-options", "--layr GPU"),
        ("--least", "all_reduce --min-busbwidth 3"),
        ("--least", "all_reduce --iters x"),
        ("--check-options", "'"),
        ("--check-options", "launch"),
        ("--check-options", "--help"),
    ],
)
def test_steps_that_could_not_start_are_refused(words, option, value, capsys):
    assert guarded(["manifest", *words, option, value]) == 2
    assert option in capsys.readouterr().err


@pytest.mark.parametrize("words", [["prolog"], ["epilog"], ["systemd"], ["daemonset", "--image=i"]])
@pytest.mark.parametrize(
    "options",
    [
        *(
            "--from x",
            "--from=x",
            "--hosts h1",
            "--hostfile hosts",
            "--save x",
            "--learn",
            "--list",
        ),
        *("--nagios", "--differences", "--layer GPU --format json", "--output x"),
    ],
)
def test_options_that_do_not_judge_the_node_are_refused(words, options, capsys):
    assert guarded(["manifest", *words, "--check-options", options]) == 2
    told = capsys.readouterr()
    name = options.removeprefix("--layer GPU ").partition("=")[0].split()[0]
    assert f"hint: leave out {name}\n" in told.err and not told.out


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (PodSettings("Big", "i"), "--name Big: not a DNS label"),
        (PodSettings("w", "i", selector="gpu"), "--node-selector gpu: not a label"),
        (PodSettings("w", "i", selector="a=b c"), "--node-selector a=b c: not a label"),
    ],
)
def test_values_that_kubernetes_rejects_are_refused(node, message):
    with pytest.raises(UsageError, match=message):
        kubernetes.text(node)


def test_a_label_may_have_a_domain_and_no_value():
    assert kubernetes.node_selector("nvidia.com/gpu.present=true") == {
        "nvidia.com/gpu.present": "true"
    }
    assert kubernetes.node_selector("gpu=") == {"gpu": ""}
