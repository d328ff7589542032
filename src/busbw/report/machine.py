"""The sections on a run's machine and command: hosts, devices, versions, environment, and how the
run ended.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from shlex import join
from xml.etree.ElementTree import Element

from busbw.core.masking import masked_words
from busbw.core.result import Ideal, Result
from busbw.core.sizes import counted, format_size
from busbw.core.topology import Gpu, Host, Nic
from busbw.measure.formats.table import sweep_text
from busbw.report.rows import NO_VALUE
from busbw.ui.html.element import tag
from busbw.ui.html.table import facts, foldable, text_table
from busbw.ui.number_formats import nccl_version_text, nominal_text


def machine(result: Result) -> list[Element]:
    """Hosts, ranks, versions and environment, as far as the result has them."""
    parts = [
        _hosts(result.topology.hosts),
        _ranks(result),
        _versions(result),
        _environment(result.environment),
    ]
    known = [part for part in parts if part is not None]
    return known or [tag("p", "The file does not describe the machine.", class_="note")]


def _hosts(hosts: Sequence[Host]) -> Element | None:
    if not hosts:
        return None
    titles = ("host", "GPUs", "network", "CPUs, memory", "kernel", "GPU driver")
    return text_table(titles, map(_host, hosts), "Hosts")


def _host(host: Host) -> tuple[str, ...]:
    no_gpu = f"no GPU found: {host.gpu_reason}" if host.gpu_reason else "no GPU found"
    return (
        host.hostname or NO_VALUE,
        _grouped(map(_gpu, host.gpus)) or no_gpu,
        _grouped(map(_nic, host.nics)) or "no network card found",
        f"{host.cpus}, {format_size(host.memory_bytes)}" if host.cpus else NO_VALUE,
        host.kernel or NO_VALUE,
        host.driver or NO_VALUE,
    )


def _grouped(texts: Iterable[str]) -> str:
    """`8 x NVIDIA H200; NVIDIA T4`: equal texts with their count."""
    return "; ".join(
        f"{count} x {text}" if count > 1 else text for text, count in Counter(texts).items()
    )


def _gpu(gpu: Gpu) -> str:
    text = gpu.name
    if gpu.nvlink:
        text += f", {gpu.nvlink} NVLinks"
        if gpu.nvlink_rate:
            text += f" x {nominal_text(gpu.nvlink_rate)} GB/s"
    if gpu.pcie_gen:
        generation = gpu.pcie_gen_max or gpu.pcie_gen
        text += f", PCIe {generation} x{gpu.pcie_width or gpu.pcie_width_max}"
    return text


def _nic(nic: Nic) -> str:
    rate = f" {nic.rate * 8 / 1e9:g} Gbit/s" if nic.rate else ""
    virtual = ", virtual" if nic.virtual else ""
    state = "" if nic.up else ", down"
    return f"{nic.name} ({nic.kind}{rate}{virtual}{state})"


def _ranks(result: Result) -> Element | None:
    devices = result.world.devices
    if not devices:
        return None
    lines = [
        (
            str(device.rank),
            device.host,
            device.name or NO_VALUE,
            device.bus or NO_VALUE,
            str(device.process),
        )
        for device in devices
    ]
    title = f"{counted(len(devices), 'rank')} in {counted(result.world.processes, 'process', 'es')}"
    if result.world.groups > 1:
        title += f", {result.world.groups} groups"
    ranks = text_table(("rank", "host", "device", "bus", "process"), lines, "Ranks")
    return foldable(title, ranks, len(lines))


def _versions(result: Result) -> Element | None:
    library = result.library
    nccl = nccl_version_text(library.nccl) if library.nccl else ""
    return facts(
        (
            ("ideal", _bound(result.ideal)),
            ("endpoint ideal", _bound(result.endpoint_ideal)),
            ("engine", library.engine),
            ("NCCL", nccl),
            ("network", library.network),
            *library.versions.items(),
        )
    )


def _bound(bound: Ideal | None) -> str:
    if bound is None:
        return ""
    link = f" over {bound.link}" if bound.link else ""
    return f"{nominal_text(bound.busbw)} GB/s, {bound.algorithm}{link}. {bound.why}"


def _environment(environment: dict[str, str]) -> Element | None:
    if not environment:
        return None
    lines = list(environment.items())
    title = counted(len(lines), "environment variable")
    return foldable(title, text_table(("name", "value"), lines, "Environment"), len(lines))


def run(result: Result) -> Element | None:
    """The command, when it ran and whether it is complete."""
    command: str | Element = result.program
    if result.argv:
        command = tag("code", join(masked_words(result.argv)))
    largest = ""
    if result.reduced_max_bytes:
        largest = f"lowered to {format_size(result.reduced_max_bytes)}: memory is short"
    return facts(
        (
            ("command", command),
            ("sweep", sweep_text(result)),
            ("start", result.start),
            ("end", result.end),
            ("written by", result.tool),
            ("largest size", largest),
            ("complete", "yes" if result.complete else "no: these sizes are what was measured"),
        )
    )
