"""Reference pages of busbw_accel, `busbw train` and the Horovod frontend, from their tables.

Imports no torch.
"""

import dataclasses

from markdown_table import code, table

from busbw_accel.horovod.variables import LAUNCHER_VARIABLES, RANK_VARIABLES, SETTINGS
from busbw_accel.lightcc_env import SWITCHES
from busbw_accel.methods import CODECS, NAMES
from busbw_accel.settings import Settings
from busbw_accel.train.methods import HOOKS, NONE, TORCHFT_DILOCO, TORCHFT_EVERY, WORDS
from busbw_accel.train.names import NAMES as MODELS
from busbw_accel.train.plan_types import LOSSES
from busbw_accel.train.states.methods import ROWS

ACCEL = "accel.md"


def settings() -> str:
    """The settings of an exchange, the codecs, and LightCC's variables."""
    intro = (
        "Fields of `Settings` in `busbw_accel.attach(model, Settings(...))`. `busbw train` takes"
        " them as `name=value`, joined by `+`.\n\n"
    )
    fields = [
        [
            code(one.name),
            code(one.type.__name__ if isinstance(one.type, type) else one.type),
            code(one.default),
            one.metadata["meaning"],
        ]
        for one in dataclasses.fields(Settings)
    ]
    switches = [
        [code(switch.name), code(switch.default), switch.meaning, switch.wanted]
        for switch in SWITCHES
    ]
    return (
        intro
        + table(["Setting", "Type", "Default", "Meaning"], fields)
        + "## Codecs\n\n"
        + table(
            ["`method`", "Sends", "What a gradient loses"],
            [[code(one.name), one.meaning, LOSSES[one.loss]] for one in CODECS],
        )
        + "## LightCC's variables\n\nThe Horovod frontend, and `attach` without settings, read"
        " LightCC's variables, with its units. If `LIGHT_INTRA_SIZE` is not set, a 2D group is"
        " the ranks of one host. Error feedback is on; LightCC's guide does not mention it.\n\n"
        + table(["Variable", "Default", "Meaning", "Takes"], switches)
    )


def methods() -> str:
    """Models of `busbw train`, and the names that --compare takes."""
    hooks = [[code(NONE), "DistributedDataParallel without a hook"]]
    hooks += [[code(name), f"torch's own {name.removeprefix('torch-')} hook"] for name in HOOKS]
    hooks.append(
        [
            code(TORCHFT_DILOCO),
            f"DiLoCo of [torchft](https://github.com/meta-pytorch/torchft), every {TORCHFT_EVERY}"
            " steps, with the outer optimizer of `every`: `pip install torchft` on all hosts. While"
            " it runs, torchft's servers accept connections from anyone, on all interfaces",
        ]
    )
    names = [[f"name of a [codec]({ACCEL})", "`method=` this codec"]]
    names += [
        [code(name), ", ".join(code(f"{field}={value}") for field, value in values.items())]
        for name, values in WORDS.items()
        if name not in NAMES
    ]
    return (
        table(["Model", "Description"], [[code(name), meaning] for name, meaning in MODELS.items()])
        + "## Methods\n\n`--compare` takes a comma-separated list and runs each entry in turn."
        " These entries stand alone:\n\n"
        + table(["Method", "Exchange"], hooks)
        + f"Any other entry consists of these names and [settings]({ACCEL}), joined by `+`:"
        " `2d+topk+ratio=0.001`.\n\n"
        + table(["Name", "Settings"], names)
        + "## Ways to keep a model's states\n\nThe model `gpt` compares these instead; settings are"
        " joined by `+`: `offload+gpu_share=0.1+max_norm=1`.\n\n"
        + table(
            ["Way", "Description", "Settings", "As AdamW over fp32 weights"],
            [
                [
                    code(row.name),
                    row.help,
                    ", ".join(map(code, row.settings)) or "-",
                    "yes" if row.exact else "no",
                ]
                for row in ROWS
            ],
        )
    )


def horovod_variables() -> str:
    """HOROVOD_* variables that have an effect."""
    every = SETTINGS + LAUNCHER_VARIABLES + RANK_VARIABLES
    rows = [[code(one.name), code(one.default), one.meaning, one.wanted] for one in every]
    intro = (
        "Rank 0 names other HOROVOD_* variables that are set, once: they have no effect. "
        f"[LIGHT_* variables]({ACCEL}) apply to an optimizer's gradients.\n\n"
    )
    return intro + table(["Variable", "Default", "Meaning", "Takes"], rows)
