"""Names in commands: a shell takes each as one word, and runs nothing."""

import random
import shlex
import subprocess

import pytest

from busbw.check.shell_words import assignment, filled, word

HOSTILE = [
    "",
    "a b",
    "$(touch x)",
    "`id`",
    "it's",
    '"',
    "a;b|c&d>e<f",
    "\\",
    "*?[x]{1,2}~#!",
    "\n",
    "a\x1b[2Jb",
    "\u202egnp",
    "\x00"[1:],
    "'\t\\'",
    "€ ü",
]


def test_plain_names_stay_as_they_are():
    for name in (
        "mlx5_0",
        "eth0.100",
        "0000:1b:00.0",
        "/dev/infiniband/uverbs0",
        "NCCL_IB_HCA=mlx5_0,mlx5_1",
    ):
        assert word(name) == name


def test_bash_gives_back_every_name():
    letters = "".join(HOSTILE) + "abc"
    seeded = random.Random(35)
    names = HOSTILE + [
        "".join(seeded.choices(letters, k=seeded.randrange(1, 20))) for _ in range(300)
    ]
    command = f"printf '%s\\0' {' '.join(map(word, names))}"
    assert command.isprintable()
    result = subprocess.run(
        ["/bin/bash", "-c", command],
        capture_output=True,
        env={"PATH": "/nonexistent", "LC_ALL": "C.UTF-8"},
        check=True,
    )
    assert result.stdout.decode().split("\0")[:-1] == names and not result.stderr


@pytest.mark.parametrize("name", [name for name in HOSTILE if name.isprintable()])
def test_filled_makes_one_word_of_each_value(name):
    assert shlex.split(filled("ip link set dev {netdev} mtu {mtu}", netdev=name, mtu=9000)) == [
        "ip",
        "link",
        "set",
        "dev",
        name,
        "mtu",
        "9000",
    ]
    assert shlex.split(filled("chmod +x /etc/{name}", name=name)) == ["chmod", "+x", f"/etc/{name}"]
    assert shlex.split(filled("rm {files}", files=[name, "b"])) == ["rm", name, "b"]
    assert shlex.split(f"export {assignment('A', name)}") == ["export", f"A={name}"]
