"""References to options in errors: an error names an option by its id, and each frontend renders it as its users type it.

A reference is text with control characters around it, so it passes through messages, JSON and pipes unchanged until it is rendered.
"""

import re
from typing import NamedTuple

_REFERENCE = re.compile("\x02(\\w+)\x1f([^\x03]*)\x03")
RUN, COMPAT = 0, 1  # frontends: `busbw run` and the commands of nccl-tests


class FrontendText(NamedTuple):
    """How both frontends write one option or advice; {} is its value."""

    run: str
    compat: str


BY_HAND = "start it by hand: mpirun -n 2 PROGRAM -b 8 -e 8"
FRONTEND_TEXTS: dict[str, FrontendText] = {
    "ranks": FrontendText("-n {}", "-t times -g is {}"),
    "fewer_ranks": FrontendText("-n is the number of ranks; iterations are --iters", "give fewer with -g and -t"),
    "start": FrontendText("start it as `busbw run ... -n {}`", "give -g {}"),
    "start_alone": FrontendText("busbw run ... -n {}", "-g {}, without a launcher"),
    "start_sim": FrontendText("start it without mpirun: busbw run ... --engine sim -n {}", "start it without mpirun, with -g {}"),
    "dry_run": FrontendText("run the command that `busbw run ... --dry-run` prints by hand", BY_HAND),
    "hosts": FrontendText("name more --hosts", "start it on more hosts with mpirun or srun"),
    "engine": FrontendText("--engine {}", "BUSBW_ENGINE={}"),
    "engine_option": FrontendText("--engine", "BUSBW_ENGINE"),
    "limit": FrontendText("--limit {}", "-T {}"),
    "json": FrontendText("--json {}", "-J {}"),
    "json_option": FrontendText("--json", "-J"),
}


def frontend_text(name: str, value: object = "") -> str:
    """A reference to a row of FRONTEND_TEXTS, for use in a message or hint."""
    assert name in FRONTEND_TEXTS
    return f"\x02{name}\x1f{value}\x03"


def render(text: str, frontend: int = RUN) -> str:
    """The text with every reference written as `frontend` writes it."""
    return _REFERENCE.sub(lambda found: FRONTEND_TEXTS[found.group(1)][frontend].format(found.group(2)), text)
