"""What the plugin checks share: whether the library named by a variable exists."""

from collections.abc import Iterator

from busbw.check.base import not_offered, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import Setting, each
from busbw.check.types import Evidence, Found
from busbw.host.nccl_libraries import located

INTERNAL = ("none", "static_plugin")  # no file: NCCL's own, or symbols of the program
FOLDERS = "LD_LIBRARY_PATH and the system's folders"


def found(machine: Machine, variable: str, kind: str, without: str) -> Iterator[Found]:
    """The libraries of the variable, a list since NCCL 2.27. `without` says what NCCL does if there is none."""

    def judge(machine: Machine, setting: Setting) -> Found:
        names = [name for name in setting.value.split(",") if name and name.lower() not in INTERNAL]
        if not names:
            return passed("", f"{setting.text} uses no library", setting.evidence())
        paths = {name: machine.call(f"nccl-plugin {kind} {name}", lambda name=name: located(name, kind)) for name in names}  # type: ignore[misc]
        evidence = [
            setting.evidence(),
            *(Evidence(name if "/" in name else FOLDERS, one.text or "no such library") for name, one in paths.items()),
        ]
        missing = [name for name, one in paths.items() if one.text == ""]
        unread = next((one.reason for one in paths.values() if one.text is None), "")
        if missing:
            tried = " or ".join([missing[0]] if "/" in missing[0] else [missing[0], f"libnccl-{kind}-{missing[0]}.so"])
            return warned("", f"{setting.text}: there is no {tried}; {without}", *evidence, fix=setting.unset)
        if unread:
            return not_offered("", f"whether the library of {setting.text} exists is unknown: {unread}", setting.evidence())
        return passed("", f"{setting.text} is {', '.join(one.text or '' for one in paths.values())}", *evidence)

    yield from each(machine, (variable,), judge)
