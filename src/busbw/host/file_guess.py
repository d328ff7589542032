"""What a file is that is neither a snapshot nor a kernel log, as far as its beginning shows it."""

import re

_HEAD_BYTES = 1 << 16
_KINDS = (  # the first that its beginning shows
    (
        "an archive, which must be unpacked",
        re.compile(rb"PK\x03\x04|BZh|\xfd7zXZ|\x28\xb5\x2f\xfd|[\s\S]{257}ustar"),
    ),
    ("damaged gzip data", re.compile(rb"\x1f\x8b")),
    ("a binary file", re.compile(rb"\x7fELF|[^\n]*\0")),
    ("a web page", re.compile(rb"(?i)\s*<(?:!doctype html|html)")),
    ("XML", re.compile(rb"\s*<\?xml|\s*<system\b")),
    (
        "a report of nvidia-bug-report.sh, of which the part of dmesg or journalctl can be read",
        re.compile(rb"[_\s]*Start of NVIDIA bug report log file"),
    ),
    ("a JSON document", re.compile(rb"\s*[\[{]\s*[\"\[{\]}]")),
    ("an NCCL log", re.compile(rb"(?s).*\] NCCL (?:INFO|WARN|TRACE) ")),
    ("a report of nccl-tests", re.compile(rb"(?s).*# (?:nThread|Using devices)")),
    (
        "output of nvidia-smi",
        re.compile(rb"(?s).*(?:NVIDIA-SMI +\d|=NVSMI LOG=|\bGPU \d+: NVIDIA )"),
    ),
    ("a Markdown text", re.compile(rb"(?s)(?:.*\n)?(?:#{1,6} \w|```)")),
)


def seems(data: bytes) -> str:
    """`an NCCL log`; '' for a file of an unknown kind."""
    head = data[:_HEAD_BYTES]
    return next((name for name, signs in _KINDS if signs.match(head)), "")
