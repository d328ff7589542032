"""Files of expectations: what is wrong in them is named with line, key and value."""

import tomllib
from datetime import date

import pytest

from busbw.check.expect import file
from busbw.check.expect.file import line, lines
from busbw.check.expect.spec import Expectations, ExpectedGpus
from busbw.core.errors import UsageError

TODAY = date(2026, 11, 26)


WRONG = {
    "[gpus]\ncount = 'eight'": (
        'node.toml line 2: gpus.count is "eight": expected a whole number',
        "--learn",
    ),
    "[gpus]\ncount = true": (
        "node.toml line 2: gpus.count is true: expected a whole number",
        "--learn",
    ),
    "[[ports]]\nrate_gbit_s = 0.0": (
        "node.toml line 2: ports 1.rate_gbit_s is 0.0: expected",
        "--learn",
    ),
    "[memory]\nram_tolerance = 1.0": (
        "node.toml line 2: memory.ram_tolerance is 1.0: expected",
        "--learn",
    ),
    "[gpus]\nmodel = ''": ('node.toml line 2: gpus.model is "": expected', "--learn"),
    "[gpus]\n\ncuont = 8": (
        "node.toml line 3: unknown key 'cuont' in [gpus]",
        "did you mean count?",
    ),
    "[gpu]\ncount = 8": ("node.toml line 1: unknown key 'gpu' in the file", "did you mean gpus?"),
    "[[ports]]\ncount = 1\n[[ports]]\nrate = 400": (
        "node.toml line 4: unknown key 'rate' in [ports 2]",
        "rate_gbit_s",
    ),
    "[[ports]]\ncount = -1": ("node.toml line 2: ports 1.count is -1: expected", "--learn"),
    "[gpus]\nmig = 1": ("node.toml line 2: gpus.mig is 1: expected true or false", "--learn"),
    "[ports]\ncount = 1": ("node.toml line 1: ports is {'count': 1}: expected a list", "--learn"),
    "[memory]\nram_tolerance = 2.0": (
        "node.toml line 2: memory.ram_tolerance is 2.0: expected",
        "--learn",
    ),
    "[[mounts]]\npath = 'raid'": ('node.toml line 2: mounts 1.path is "raid": expected', "--learn"),
    "[[mounts]]\ntype = 'xfs'": ("node.toml line 1: mounts 1 has no path", "--learn"),
    "[[mute]]\ncheck = 'nic-mtu'\nuntil = 2027-01-01": (
        "node.toml line 1: mute 1 has no reason",
        "reason =",
    ),
    "[[mute]]\ncheck = 'nic-mtu'\nreason = 'x'": (
        "node.toml line 1: mute 1 has no until",
        "until =",
    ),
    "[[mute]]\ncheck = 'nic-mtu'\nreason = ''\nuntil = 2027-01-01": (
        'node.toml line 3: mute 1.reason is "": expected',
        "reason =",
    ),
    "[[mute]]\ncheck = 'nic-mtu'\nreason = 'x'\nuntil = 'soon'": (
        'node.toml line 4: mute 1.until is "soon": expected a date, like 2026-12-31',
        "reason =",
    ),
    "[[mute]]\ncheck = 'nic-mut'\nreason = 'x'\nuntil = 2027-01-01": (
        "node.toml line 2: no such check 'nic-mut'",
        "did you mean nic-mtu?",
    ),
    "[[mute]]\ncheck = 'line-spread'\nreason = 'x'\nuntil = 2027-01-01": (
        "node.toml line 2:",
        "busbw check",
    ),
    "[severity]\nnic-mtu = 'warn'": (
        'node.toml line 2: nic-mtu is "warn": a severity can only be raised',
        "[[mute]]",
    ),
    "[severity]\nnic-mtv = 'fail'": (
        "node.toml line 2: no such check 'nic-mtv'",
        "did you mean nic-mtu?",
    ),
    "[gpus\n": ("node.toml: not valid TOML: ", "--learn"),
    "": ("node.toml: it is empty", "--learn"),
}


@pytest.mark.parametrize("toml", WRONG)
def test_errors_in_a_file_are_named_with_line_key_and_value(toml):
    message, hint = WRONG[toml]
    with pytest.raises(UsageError) as error:
        file.parse(file.Text("node.toml", toml, TODAY))
    assert error.value.message.startswith(message), error.value.message
    assert hint in error.value.hint, error.value.hint
    assert error.value.hint.count("did you mean") <= 1


def test_the_least_and_largest_values_of_a_file():
    toml = (
        "[gpus]\n"
        "count = 0\n"
        "memory_tolerance = 0.0\n"
        "model = 'a'\n"
        "[memory]\n"
        "ram_tolerance = 0.999\n"
        "[[ports]]\n"
        "rate_gbit_s = 0.5\n"
    )
    node = file.parse(file.Text("node.toml", toml, TODAY)).node
    assert (
        node.gpus.count,
        node.gpus.memory_tolerance,
        node.memory.ram_tolerance,
        node.ports[0].rate_gbit_s,
    ) == (0, 0.0, 0.999, 0.5)
    assert ExpectedGpus().memory_tolerance == Expectations().memory.ram_tolerance == 0.02


def test_lines_of_keys_in_any_layout():
    toml = '''a = """
[no]
key = 1
"""  # text
[gpus]  # comment
"count" = 8
addresses = [
  "[x]",  # ]
  "y = 1",
]
inline = { model = "b" }
[[ports]]
names = ["a", "b"]
[[ ports ]]
x.y = 1
text = \'\'\'
[[ports]]\'\'\'
[severity]
'nic-mtu' = "fail"
'''
    tomllib.loads(toml)
    key_lines = lines(toml)
    keys = [
        (("a",), 1),
        (("gpus",), 5),
        (("gpus", "count"), 6),
        (("gpus", "addresses"), 7),
        (("gpus", "inline"), 11),
        (("ports", 0), 12),
        (("ports", 0, "names"), 13),
        (("ports", 1), 14),
        (("ports", 1, "x", "y"), 15),
        (("ports", 1, "text"), 16),
        (("severity",), 18),
        (("severity", "nic-mtu"), 19),
    ]
    assert sorted(key_lines.items(), key=str) == sorted(keys, key=str)
    assert line(key_lines, ("gpus", "inline", "model")) == 11
    assert lines('a = [\n  ["b"],\n  ["c"]\n]\nd = {e = [\n["f"]\n]}\ng = 1') == {
        ("a",): 1,
        ("d",): 5,
        ("g",): 8,
    }
    assert line(key_lines, ("nothing",)) is None
