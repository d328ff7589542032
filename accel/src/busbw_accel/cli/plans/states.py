"""`busbw plan gpt --memory-plan`: what fits, and where to keep a model's states."""

from pathlib import Path
from typing import Any

import click
import msgspec

from busbw.cli.options.parameters import POSITIVE, Rate, not_empty
from busbw.cli.options.shared import options
from busbw.cli.streams import print_out
from busbw.cli.terminal import width
from busbw.core import json_codec
from busbw.core.errors import Exit, NoMeasurement, UsageError
from busbw.core.sizes import parse_size
from busbw.measure.record import check_writable, save
from busbw.model.systems import PCIE_PAYLOAD, parse_system
from busbw_accel.memory_plan import types as states_text
from busbw_accel.memory_plan.strategies import compute_of, plan
from busbw_accel.memory_plan.types import Machine, PlannedTraining, StatesPlan
from busbw_accel.train.types import StatesSpec

OPTIONS = ("host_memory", "tflops", "pcie", "adam_rate", "system", "max_norm")
memory_options = options(
    click.option(
        "--memory-plan",
        "memory",
        is_flag=True,
        help="gpt only: plan where its states are kept, instead of the exchange of gradients",
    ),
    click.option(
        "--host-memory",
        default="",
        callback=not_empty,
        help="with --memory-plan: host memory for states, like 100G  [default: read]",
    ),
    click.option(
        "--tflops", type=POSITIVE, help="with --memory-plan: bf16 TFLOP/s that the GPU reaches"
    ),
    click.option(
        "--pcie",
        type=Rate("55GB/s"),
        help="with --memory-plan: rate of a copy between host and GPU: 55GB/s",
    ),
    click.option(
        "--adam-rate",
        type=POSITIVE,
        help="with --memory-plan: AdamW's updates on the CPU, in 1e9 a second",
    ),
    click.option(
        "--system",
        default="",
        callback=not_empty,
        help="with --memory-plan: GPUs in words, like h100x8, for the rate of PCIe",
    ),
    click.option(
        "--max-norm", type=POSITIVE, help="with --memory-plan: gradients are clipped to this norm"
    ),
)


def take_memory(fields: dict[str, Any], states: StatesSpec | None) -> dict[str, Any] | None:
    """Remove these options from a command's `fields`, and return their values; None for a plan
    that is not of memory.
    """
    asked = fields.pop("memory")
    values = {name: fields.pop(name) for name in OPTIONS}
    if states is None and asked:
        raise UsageError(
            "--memory-plan is for the model gpt", "busbw plan gpt --params 8B --memory-plan"
        )
    if states is not None and not asked:
        raise UsageError(
            "busbw plan gpt plans memory only",
            "add --memory-plan, or plan the exchange of gradients of gpt2",
        )
    if asked:
        return values
    for name, value in values.items():
        if value not in ("", None):
            raise UsageError(
                f"--{name.replace('_', '-')} is for plans of memory", "add --memory-plan"
            )
    return None


def run(
    states: StatesSpec,
    values: dict[str, Any],
    fields: dict[str, Any],
    file: Path | None,
    *,
    force: bool,
    table: bool,
) -> int:
    """Make the plan and print it. The exit code is 1 if nothing fits."""
    if file is not None:
        check_writable(file, overwrite=force)
    training = PlannedTraining(
        shape=states.shape,
        batch_size=fields["batch_size"],
        sequence=fields["sequence"],
        recompute=states.recompute,
        max_norm=values["max_norm"],
    )
    machine = _describe(training, values, states.gpu_memory)
    if machine is None:
        machine = _measure(training, values, states.gpu_memory)
    result = plan(training, machine)
    encoded = json_codec.encode(result) + b"\n"
    print_out(states_text.text(result, _command(result), width()) if table else encoded.decode())
    if file is not None:
        save(encoded, file)
    return int(Exit.OK if result.recommended() else Exit.BAD)


def _describe(training: PlannedTraining, values: dict[str, Any], gpu_memory: int) -> Machine | None:
    """The machine as the options describe it; None if none of its rates is given."""
    pcie = 0.0
    if values["system"]:
        pcie = parse_system(values["system"]).pcie * PCIE_PAYLOAD
    if values["pcie"]:
        pcie = values["pcie"]
    facts = {
        "--tflops": values["tflops"],
        "--adam-rate": values["adam_rate"],
        "--pcie or --system": pcie,
    }
    if not any(facts.values()):
        return None
    facts |= {"--gpu-memory": gpu_memory, "--host-memory": values["host_memory"]}
    missing = [name for name, fact in facts.items() if not fact]
    if missing:
        raise UsageError(
            f"the machine is described without {', '.join(missing)}",
            "give all of them, or none on the machine itself, which is then measured",
        )
    compute = compute_of(training, values["tflops"] * 1e12)
    return Machine(
        gpu_memory=gpu_memory,
        host_memory=parse_size(values["host_memory"], "--host-memory"),
        down=pcie,
        up=pcie,
        host_adam=values["adam_rate"] * 1e9,
        compute=compute,
    )


def _measure(training: PlannedTraining, values: dict[str, Any], gpu_memory: int) -> Machine:
    try:
        from busbw_accel.train.states import rates
    except ImportError as error:
        hint = (
            "give --gpu-memory, --host-memory, --tflops, --pcie and --adam-rate, or pip install"
            " 'busbw-accel[torch]'"
        )
        raise NoMeasurement(
            f"this machine cannot be measured without PyTorch ({error})", hint
        ) from error
    machine = rates.machine(training, gpu_memory)
    if values["host_memory"]:
        host_memory = parse_size(values["host_memory"], "--host-memory")
        machine = msgspec.structs.replace(machine, host_memory=host_memory)
    return machine


def _command(result: StatesPlan) -> str:
    """The command that measures what was planned, without its methods."""
    training, options = result.training, click.get_current_context().params
    words = [
        f"busbw train gpt --params {options['params']} --batch-size {training.batch_size}",
        f"--sequence {training.sequence}",
        "--recompute" if training.recompute else "--no-recompute",
    ]
    if options["gpu_memory"] and result.machine.measured:
        words.append(f"--gpu-memory {options['gpu_memory']}")
    return " ".join(words)
