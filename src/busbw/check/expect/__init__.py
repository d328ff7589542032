"""What a node should have, by an expectations file: each module compares one part of it."""

from busbw.check.expect import cpus, gpus, interfaces, memory, mutes, nvlinks, pcie, ports, storage, versions
from busbw.check.expect.base import Expectation

CHECKS: tuple[Expectation, ...] = (
    gpus.CHECK,
    versions.CHECK,
    nvlinks.CHECK,
    ports.CHECK,
    interfaces.CHECK,
    cpus.CHECK,
    memory.CHECK,
    pcie.CHECK,
    storage.CHECK,
    mutes.CHECK,
)
