"""Libraries that answer as a release of NCCL does, and the files that they come in."""

import base64
import hashlib
import lzma
import platform
import subprocess
import zipfile
from pathlib import Path

from busbw.ui.number_formats import nccl_version_number

MEMBER = "nvidia/nccl/lib/libnccl.so.2"
MACHINE = platform.machine()
NEEDED = ("ncclGetUniqueId", "ncclCommInitRankConfig")


def source(release, functions=NEEDED):
    """C of a library with that version and these functions."""
    number = nccl_version_number(release)
    other = "".join(f"int {name}(void) {{ return 1; }}\n" for name in functions)
    return f"int ncclGetVersion(int *version) {{ *version = {number}; return 0; }}\n{other}"


def called_by(torch):
    """The functions of NCCL that PyTorch in this folder must find, or it is not loaded."""
    command = ["nm", "-D", "--undefined-only", torch / "lib" / "libtorch_cuda.so"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    names = {line.split()[-1].partition("@")[0] for line in lines}
    return sorted(name for name in names if name.startswith("nccl") and name != "ncclGetVersion")


def wheel(folder, release, library, *, cuda="cu13", machine=MACHINE, recorded=None):
    """A wheel as NVIDIA packs it, with members that nobody should write."""
    name = f"nvidia_nccl_{cuda}-{release}"
    info = f"{name}.dist-info"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-py3-none-manylinux_2_18_{machine}.whl"
    data = Path(library).read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(recorded or data).digest()).decode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MEMBER, data)
        archive.writestr("../../outside", "")
        archive.writestr(f"{info}/METADATA", f"Name: nvidia-nccl-{cuda}\nVersion: {release}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\n")
        archive.writestr(f"{info}/RECORD", f"{MEMBER},sha256={digest.rstrip('=')},{len(data)}\n")
    return path


def packed(folder, release, library):
    """libnccl-RELEASE.so.xz."""
    path = folder / f"libnccl-{release}.so.xz"
    path.write_bytes(lzma.compress(Path(library).read_bytes()))
    return path
