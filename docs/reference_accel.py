"""Reference pages of busbw.accel, `busbw train` and the Horovod frontend, from their tables. Imports no torch."""

import dataclasses

from markdown_table import code, table

from busbw.accel.light import SWITCHES
from busbw.accel.methods import CODECS
from busbw.accel.settings import Settings
from busbw.core.planning import LOSSES
from busbw.horovod.variables import RANK_VARIABLES, SETTINGS
from busbw.train.methods import HOOKS, NONE, WORDS
from busbw.train.names import NAMES


def settings() -> str:
    """The settings of an exchange, and LightCC's switches."""
    intro = "`busbw.accel.attach(ddp_model, Settings(...))` takes these; `busbw train` takes them as `name=value`, joined by `+`.\n\n"
    fields = [
        [code(one.name), code(one.type.__name__ if isinstance(one.type, type) else one.type), code(one.default), one.metadata["meaning"]]
        for one in dataclasses.fields(Settings)
    ]
    switches = [[code(switch.name), code(switch.default), switch.meaning, switch.wanted] for switch in SWITCHES]
    return (
        intro
        + table(["Setting", "Type", "Default", "Meaning"], fields)
        + "## Codecs\n\n"
        + table(["`method`", "Sends", "What a gradient loses"], [[code(one.name), one.meaning, LOSSES[one.loss]] for one in CODECS])
        + "## LightCC's switches\n\nWithout settings, `attach` and the Horovod frontend do as these variables say: LightCC's own, in its "
        "units. `LIGHT_INTRA_SIZE` unset means the ranks of a host. Error feedback, of which LightCC's guide says nothing, is on.\n\n"
        + table(["Variable", "Default", "Meaning", "Takes"], switches)
    )


def methods() -> str:
    """What `busbw train` trains, and the words of --compare."""
    hooks = [[code(NONE), "DistributedDataParallel as it is"]]
    hooks += [[code(name), f"torch's own {name.removeprefix('torch-')} hook"] for name in HOOKS]
    words = [
        [code(word), ", ".join(code(f"{name}={value}") for name, value in values.items()) or "as the gradients are"]
        for word, values in WORDS.items()
    ]
    return (
        table(["Model", "What it is"], [[code(name), meaning] for name, meaning in NAMES.items()])
        + "## Methods\n\nNames with commas between them are run in turn. These stand alone:\n\n"
        + table(["Method", "What it does"], hooks)
        + "These are words of `busbw.accel`, joined by `+` with each other and with [settings](accel.md): `2d+topk+ratio=0.001`.\n\n"
        + table(["Word", "Settings"], words)
    )


def horovod_variables() -> str:
    """HOROVOD_* variables that have an effect."""
    rows = [[code(one.name), code(one.default), one.meaning, one.wanted] for one in SETTINGS + RANK_VARIABLES]
    intro = (
        "Others that are set are named once, by rank 0, as having no effect. "
        "[LIGHT_* variables](accel.md) apply to an optimizer's gradients.\n\n"
    )
    return intro + table(["Variable", "Default", "Meaning", "Takes"], rows)
