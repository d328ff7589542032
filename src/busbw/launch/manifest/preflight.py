"""An init container that judges a node before a pod's containers start, with the steps and verdicts of the Slurm prolog."""

from typing import Any

from busbw.launch.manifest import kubernetes
from busbw.launch.manifest.steps import BAD, HUNG, KILL_S, Steps

NAME, VOLUME = "busbw-preflight", "busbw-shm"


def text(image: str, limits: dict[str, Any], steps: Steps) -> str:
    """A patch for objects with a pod template (Job, StatefulSet, Deployment), as JSON for `kubectl patch --patch-file`.

    `limits` are the container's devices, for example `{"nvidia.com/gpu": 8}`, which the pod's containers get afterwards.
    """
    pod = {"initContainers": [_container(image, limits, steps)], "volumes": [kubernetes.memory(VOLUME)]}
    return kubernetes.dump({"spec": {"template": {"spec": pod}}})


def _container(image: str, limits: dict[str, Any], steps: Steps) -> dict[str, Any]:
    return {
        "name": NAME,
        "image": image,
        "command": ["sh", "-c", script(steps)],
        "resources": {"limits": limits},
        "securityContext": kubernetes.unprivileged(),
        "volumeMounts": [{"name": VOLUME, "mountPath": kubernetes.SHM}],
    }


def script(steps: Steps) -> str:
    """The steps for a shell. What they print is the container's log."""
    lines = [
        "run() {",
        f'    timeout -k {KILL_S} {steps.limit_s} "$@"',
        "    code=$?",
        "    case $code in",
        "    0) ;;",
        f"    {steps.bad}) exit {BAD} ;;",
        f'    {HUNG}) echo "error: $1 $2 did not end within {steps.limit_s} s" >&2; exit {BAD} ;;',
        '    *) echo "note: exit code $code: this node could not be judged; the pod starts" >&2 ;;',
        "    esac",
        "}",
        *steps.calls(),
    ]
    return "\n".join([*lines, ""])
