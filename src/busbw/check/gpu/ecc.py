"""Memory of GPUs: ECC, uncorrected errors, remapped rows, and the InfoROM."""

from busbw.check.base import failed, judged, not_offered, passed, skipped, warned
from busbw.check.gpu.per_gpu import nvml_evidence, per_gpu, unreported
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.gpu_health import GpuHealth

ECC_MODE = CheckRow(
    id="BW007",
    name="gpu-ecc-mode",
    layer=Layer.GPU,
    title="ECC of GPU memory",
    right="on, and not about to change",
    why=(
        "Without ECC a flipped bit in GPU memory changes results silently. A pending mode makes "
        "this host differ from others after its next reboot."
    ),
    fix="drain the host; nvidia-smi -i {gpu} -e 1; nvidia-smi -i {gpu} --gpu-reset (or reboot)",
    stays="yes: the GPU keeps it",
    reads=("nvmlDeviceGetEccMode",),
    sources=("nvidia-smi manual, ECC mode",),
)
MAX_REMAPPED_ROWS = 512  # rows, of Azure's node health checks


@per_gpu(ECC_MODE)
def check_ecc_mode(gpu: GpuHealth) -> Finding:
    if gpu.ecc is None:
        return unreported(gpu, "ecc", "ECC mode")
    evidence = nvml_evidence(
        gpu, "EccMode", f"{_word(gpu.ecc)}, pending {_word(gpu.ecc_pending)}", "on, pending on"
    )
    fix = filled(ECC_MODE.fix, gpu=gpu.index)
    if not gpu.ecc:
        later = "; it will be on after the next reset" if gpu.ecc_pending else ""
        return warned(
            gpu.label, f"ECC is off: memory errors go undetected{later}", evidence, fix=fix
        )
    if gpu.ecc_pending is False:
        return warned(
            gpu.label, "ECC is on, but will be off after the next reset", evidence, fix=fix
        )
    return passed(gpu.label, "ECC is on", evidence)


def _word(on: bool | None) -> str:
    return "on" if on else "off"


ECC_UNCORRECTED = CheckRow(
    id="BW008",
    name="gpu-ecc-uncorrected",
    layer=Layer.GPU,
    title="uncorrected ECC errors",
    right="none since the driver was loaded, and none in SRAM over the life of the GPU",
    why=(
        "An uncorrected error kills the programs whose data it hit (Xid 48, 94 or 95). The GPU "
        "remaps rows of DRAM with errors; SRAM has no spare rows."
    ),
    fix=(
        "drain the host; nvidia-smi -i {gpu} --gpu-reset; dcgmi diag -r 3; replace the GPU if"
        " errors come back"
    ),
    stays="a reset clears the counts since the driver was loaded, but not the lifetime counts",
    reads=("nvmlDeviceGetMemoryErrorCounter", "nvmlDeviceGetSramEccErrorStatus"),
    sources=("NVIDIA GPU memory error management",),
)
REPLACE_GPU = "drain the host and replace the GPU (RMA)"
WATCH_SRAM = "once the GPU is idle: dcgmi diag -r 3 -i {gpu}; replace the GPU if errors come back"


@per_gpu(ECC_UNCORRECTED)
def check_ecc_uncorrected(gpu: GpuHealth) -> Finding:
    if gpu.ecc is False:
        return skipped("ECC is off: errors are not counted", gpu.label)
    if not gpu.uncorrected:
        return unreported(gpu, "uncorrected", "count of uncorrected errors")
    now, ever = sum(gpu.uncorrected.values()), gpu.uncorrected_ever
    evidence = (
        nvml_evidence(
            gpu, "MemoryErrorCounter", f"since the driver was loaded {_shown(gpu.uncorrected)}", 0
        ),
        nvml_evidence(gpu, "MemoryErrorCounter", f"ever {_shown(ever)}", "sram 0"),
    )
    fix = filled(ECC_UNCORRECTED.fix, gpu=gpu.index)
    if gpu.sram_exceeded:
        return failed(
            gpu.label,
            "the driver's threshold of SRAM errors is exceeded",
            *evidence,
            fix=REPLACE_GPU,
        )
    if now:
        return failed(
            gpu.label,
            f"uncorrected memory errors since the driver was loaded: {now}",
            *evidence,
            fix=fix,
            weight=now,
        )
    if ever.get("sram"):
        return warned(
            gpu.label,
            f"uncorrected SRAM errors over the life of the GPU: {ever['sram']}",
            *evidence,
            fix=filled(WATCH_SRAM, gpu=gpu.index),
            weight=ever["sram"],
        )
    return passed(gpu.label, "no uncorrected memory error since the driver was loaded", *evidence)


def _shown(counts: dict[str, int]) -> str:
    return ", ".join(f"{place} {count}" for place, count in counts.items()) or "not reported"


REMAP_PENDING = CheckRow(
    id="BW009",
    name="gpu-remap-pending",
    layer=Layer.GPU,
    title="pending row remapping or page retirement",
    right="none pending",
    why=(
        "The GPU found bad memory and remaps it at its next reset. Until then that memory is "
        "unused, and another error there kills the job."
    ),
    fix="drain the host, then nvidia-smi -i {gpu} --gpu-reset",
    stays="yes: the GPU keeps the new rows",
    reads=("nvmlDeviceGetRemappedRows", "nvmlDeviceGetRetiredPagesPendingStatus"),
    sources=("NVIDIA GPU memory error management",),
)


@per_gpu(REMAP_PENDING)
def check_remap_pending(gpu: GpuHealth) -> Finding:
    if gpu.remapped is not None:
        pending, function, kind = bool(gpu.remapped[2]), "RemappedRows", "row remapping"
    elif gpu.retired_pending is not None:  # before Ampere, pages are retired
        pending = gpu.retired_pending
        function = "RetiredPagesPendingStatus"
        kind = "page retirement"
    else:
        return unreported(gpu, "remapped", "state of row remapping")
    return judged(
        right=not pending,
        subject=gpu.label,
        good=f"no {kind} is pending",
        bad=f"a {kind} waits for a reset of the GPU",
        evidence=(
            nvml_evidence(gpu, function, "pending" if pending else "none pending", "none pending"),
        ),
        fix=filled(REMAP_PENDING.fix, gpu=gpu.index),
    )


REMAP_FAILED = CheckRow(
    id="BW010",
    name="gpu-remap-failed",
    layer=Layer.GPU,
    title="failed row remapping",
    right=f"none failed, and at most {MAX_REMAPPED_ROWS} rows remapped after uncorrected errors",
    why=(
        "A bank without spare rows keeps its bad memory, so uncorrected errors come back (Xid "
        "64). Azure's node health checks fail a GPU with more than 512 such rows."
    ),
    fix=REPLACE_GPU,
    stays="permanent: a hardware replacement",
    reads=("nvmlDeviceGetRemappedRows",),
    sources=("NVIDIA GPU memory error management", "Azure node health checks, azure_gpu_ecc"),
)


@per_gpu(REMAP_FAILED)
def check_remap_failed(gpu: GpuHealth) -> Finding:
    if gpu.remapped is None:
        return unreported(gpu, "remapped", "state of row remapping")
    corrected, uncorrected, _, broken = gpu.remapped
    state = (
        f"{'failed' if broken else 'none failed'}, {uncorrected} rows after uncorrected errors,"
        f" {corrected} after corrected ones"
    )
    evidence = nvml_evidence(
        gpu,
        "RemappedRows",
        state,
        f"none failed, at most {MAX_REMAPPED_ROWS} rows after uncorrected errors",
    )
    if broken:
        return failed(
            gpu.label,
            "row remapping has failed: a bank has no spare rows left",
            evidence,
            fix=REMAP_FAILED.fix,
            weight=2**16,  # more than any number of remapped rows
        )
    if uncorrected > MAX_REMAPPED_ROWS:
        return failed(
            gpu.label,
            f"{uncorrected} rows were remapped after uncorrected errors",
            evidence,
            fix=REMAP_FAILED.fix,
            weight=uncorrected,
        )
    return passed(gpu.label, "no row remapping has failed", evidence)


INFOROM = CheckRow(
    id="BW261",
    name="gpu-inforom",
    layer=Layer.GPU,
    title="InfoROM",
    right="its checksum is valid",
    why=(
        "The InfoROM holds the settings of the board, its ECC counts and its list of remapped "
        "rows. If it is corrupted, ECC and row remapping may be off without another sign."
    ),
    fix=(
        "drain the host; nvidia-smi -i {gpu} --gpu-reset; if the InfoROM is still corrupted after a"
        " reboot, replace the GPU (RMA)"
    ),
    stays="permanent: a hardware replacement",
    reads=("nvmlDeviceValidateInforom",),
    sources=("nvml.h, nvmlDeviceValidateInforom",),
)


@per_gpu(INFOROM)
def check_inforom(gpu: GpuHealth) -> Finding:
    if gpu.inforom is None:
        return not_offered(gpu.label, "its driver does not validate the InfoROM")
    evidence = Evidence(
        f"nvmlDeviceValidateInforom, {gpu.label}",
        "valid" if gpu.inforom else "Corrupted infoROM",
        "valid",
    )
    if gpu.inforom:
        return passed(gpu.label, "the InfoROM is valid", evidence)
    return failed(
        gpu.label, "the InfoROM is corrupted", evidence, fix=filled(INFOROM.fix, gpu=gpu.index)
    )
