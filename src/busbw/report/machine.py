"""Hosts, devices, versions, environment, the command and how it ended."""

from collections import Counter
from collections.abc import Iterable, Sequence
from shlex import join
from xml.etree.ElementTree import Element

from busbw.core.masking import masked_words
from busbw.core.result import Ideal, Result
from busbw.core.sizes import counted, format_size
from busbw.core.topology import Gpu, Host, Nic
from busbw.measure.formats.table import sweep_text
from busbw.report.rows import NONE, nominal, scroll
from busbw.ui.html.element import tag
from busbw.ui.number_formats import nccl_version_text

FEW = 16  # devices or variables that are not folded
LONG = 24  # characters


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


def facts(pairs: Iterable[tuple[str, str | Element]]) -> Element | None:
    """Names and values as a definition list; empty values are left out, None when nothing is
    left.
    """
    known = [
        tag("div", tag("dt", name), tag("dd", value))
        for name, value in pairs
        if isinstance(value, Element) or value
    ]
    return tag("dl", *known, class_="facts") if known else None


def table(titles: Sequence[str], lines: Iterable[Sequence[str | Element]], name: str) -> Element:
    """A table of texts whose first column names its lines."""
    head = tag("tr", *(tag("th", title, scope="col") for title in titles))
    body = (
        tag("tr", tag("th", first, scope="row"), *map(_cell, rest, titles[1:]))
        for first, *rest in lines
    )
    return scroll(tag("table", tag("thead", head), tag("tbody", *body), class_="text"), name)


def _cell(text: str | Element, title: str) -> Element:
    """A cell; narrow screens show its title before it.

    A long text gets a least width, and the box scrolls.
    """
    return tag(
        "td",
        text,
        class_="long" if isinstance(text, str) and len(text) > LONG else None,
        data_title=title,
    )


def _hosts(hosts: Sequence[Host]) -> Element | None:
    if not hosts:
        return None
    lines = [
        (
            host.hostname or NONE,
            _grouped(map(_gpu, host.gpus))
            or f"no GPU found{': ' if host.gpu_reason else ''}{host.gpu_reason}",
            _grouped(map(_nic, host.nics)) or "no network card found",
            f"{host.cpus}, {format_size(host.memory_bytes)}" if host.cpus else NONE,
            host.kernel or NONE,
            host.driver or NONE,
        )
        for host in hosts
    ]
    return table(
        ("host", "GPUs", "network", "CPUs, memory", "kernel", "GPU driver"), lines, "Hosts"
    )


def _grouped(texts: Iterable[str]) -> str:
    return "; ".join(
        f"{count} x {text}" if count > 1 else text for text, count in Counter(texts).items()
    )


def _gpu(gpu: Gpu) -> str:
    rate = f" x {nominal(gpu.nvlink_rate)} GB/s" if gpu.nvlink and gpu.nvlink_rate else ""
    nvlink = f", {gpu.nvlink} NVLinks{rate}" if gpu.nvlink else ""
    pcie = (
        f", PCIe {gpu.pcie_gen_max or gpu.pcie_gen} x{gpu.pcie_width or gpu.pcie_width_max}"
        if gpu.pcie_gen
        else ""
    )
    return f"{gpu.name}{nvlink}{pcie}"


def _nic(nic: Nic) -> str:
    rate = f" {nic.rate * 8 / 1e9:g} Gbit/s" if nic.rate else ""
    state = "" if nic.up else ", down"
    return f"{nic.name} ({nic.kind}{rate}{', virtual' if nic.virtual else ''}{state})"


def _folded(title: str, content: Element, *, few: bool) -> Element:
    return tag("details", tag("summary", title), content, open="" if few else None)


def _ranks(result: Result) -> Element | None:
    devices = result.world.devices
    if not devices:
        return None
    lines = [
        (
            str(device.rank),
            device.host,
            device.name or NONE,
            device.bus or NONE,
            str(device.process),
        )
        for device in devices
    ]
    title = f"{counted(len(devices), 'rank')} in {counted(result.world.processes, 'process', 'es')}"
    title += f", {result.world.groups} groups" if result.world.groups > 1 else ""
    return _folded(
        title,
        table(("rank", "host", "device", "bus", "process"), lines, "Ranks"),
        few=len(devices) <= FEW,
    )


def _versions(result: Result) -> Element | None:
    library = result.library
    nccl = nccl_version_text(library.nccl) if library.nccl else ""
    bounds = (
        (name, _bound(bound))
        for name, bound in (("ideal", result.ideal), ("endpoint ideal", result.endpoint_ideal))
        if bound
    )
    return facts(
        (
            *bounds,
            ("engine", library.engine),
            ("NCCL", nccl),
            ("network", library.network),
            *library.versions.items(),
        )
    )


def _bound(bound: Ideal) -> str:
    link = f" over {bound.link}" if bound.link else ""
    return f"{nominal(bound.busbw)} GB/s, {bound.algorithm}{link}. {bound.why}"


def _environment(environment: dict[str, str]) -> Element | None:
    if not environment:
        return None
    lines = list(environment.items())
    return _folded(
        counted(len(lines), "environment variable"),
        table(("name", "value"), lines, "Environment"),
        few=len(lines) <= FEW,
    )


def run(result: Result) -> Element | None:
    """The command, when it ran and whether it is complete."""
    lowered = (
        f"lowered to {format_size(result.reduced_max_bytes)}: memory is short"
        if result.reduced_max_bytes
        else ""
    )
    pairs: list[tuple[str, str | Element]] = [
        ("command", tag("code", join(masked_words(result.argv))) if result.argv else result.program)
    ]
    pairs += [
        ("sweep", sweep_text(result)),
        ("start", result.start),
        ("end", result.end),
        ("written by", result.tool),
    ]
    pairs += [
        ("largest size", lowered),
        ("complete", "yes" if result.complete else "no: these sizes are what was measured"),
    ]
    return facts(pairs)
