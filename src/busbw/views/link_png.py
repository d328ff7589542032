"""The heat map of a test of links as a PNG image: one square for each rail, senders down, receivers across."""

import struct
import zlib

from busbw.core.linking import LinkReport
from busbw.views.link_matrix import ABSENT, Color, color, matrix, reference

WHITE: Color = (255, 255, 255)
SIDE = 720  # pixels of a matrix, as far as whole cells fit
LEAST, MOST = 3, 40  # pixels of a cell
MARGIN = 28  # around each matrix, with the numbers of hosts
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_DEPTH, _RGB = 8, 2
# Digits of 3 by 5 pixels, a row in every three bits.
_DIGITS = (0o75557, 0o26227, 0o71747, 0o71717, 0o55711, 0o74717, 0o74757, 0o71111, 0o75757, 0o75717)
_DIGIT_WIDTH, _DIGIT_HEIGHT, _ZOOM = 3, 5, 2


def render(report: LinkReport) -> bytes:
    """The image. Hosts have the numbers of the table; gray was not measured, black failed."""
    count = len(report.hosts)
    cell = max(LEAST, min(MOST, SIDE // max(count, 1)))
    size = count * cell + 2 * MARGIN
    image = _Image(size, size * max(1, len(report.rails)))
    for rail in range(len(report.rails)):
        _draw(image, report, rail, cell, rail * size)
    return image.png()


class _Image:
    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.rows = [bytearray(bytes(WHITE) * width) for _ in range(height)]

    def fill(self, x: int, y: int, width: int, height: int, value: Color) -> None:
        for row in self.rows[y : y + height]:
            row[3 * x : 3 * (x + width)] = bytes(value) * width

    def number(self, x: int, y: int, value: int) -> None:
        """A number in black, its right end at `x`, its top at `y`."""
        for place, digit in enumerate(reversed(str(value))):
            left = x - (place + 1) * (_DIGIT_WIDTH + 1) * _ZOOM
            for at in range(_DIGIT_WIDTH * _DIGIT_HEIGHT):
                if _DIGITS[int(digit)] >> (_DIGIT_WIDTH * _DIGIT_HEIGHT - 1 - at) & 1:
                    down, right = divmod(at, _DIGIT_WIDTH)
                    self.fill(left + right * _ZOOM, y + down * _ZOOM, _ZOOM, _ZOOM, (60, 60, 60))

    def png(self) -> bytes:
        """As RGB with 8 bits, rows without a filter."""
        header = struct.pack(">IIBBBBB", self.width, len(self.rows), _DEPTH, _RGB, 0, 0, 0)
        data = zlib.compress(b"".join(b"\0" + row for row in self.rows), 9)
        return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _draw(image: _Image, report: LinkReport, rail: int, cell: int, top: int) -> None:
    rows = matrix(report, rail)
    full = reference(rows)
    gap = 1 if cell > LEAST else 0
    for down, row in enumerate(rows):
        for across, flow in enumerate(row):
            value = WHITE if down == across else color(flow, full) if flow else ABSENT
            image.fill(MARGIN + across * cell, top + MARGIN + down * cell, cell - gap, cell - gap, value)
    step = max(1, -(-(_DIGIT_WIDTH + 1) * _ZOOM * len(str(len(rows))) // cell))
    for at in range(0, len(rows), step):
        middle = at * cell + cell // 2
        image.number(MARGIN - 2, top + MARGIN + middle - _DIGIT_HEIGHT, at + 1)
        image.number(MARGIN + middle + (_DIGIT_WIDTH + 1) * _ZOOM * len(str(at + 1)) // 2, top + MARGIN - 2 * _DIGIT_HEIGHT - 4, at + 1)
