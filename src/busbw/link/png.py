"""The heat maps of a link test as a PNG image: senders down, receivers across, below each the shares that its colors stand for.

A crossed cell failed, a dot was not measured. The last number below a map is the rate that counts as 100 %.
"""

import struct
import zlib

from busbw.link.matrix import SCALE, Color, Matrix, maps, shade, share
from busbw.link.types import Flow, LinkReport, bits_text

WHITE: Color = (255, 255, 255)
INK: Color = (60, 60, 60)
SIDE = 720  # pixels of a matrix, as far as whole cells fit
LEAST, MOST = 3, 40  # pixels of a cell
MARGIN = 28  # around each matrix, with the numbers of hosts
NARROWEST = 240  # pixels of the image, for the key
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_DEPTH, _RGB = 8, 2
# Characters of 3 by 5 pixels, a row in every three bits.
_GLYPHS = {
    "0": 0o75557, "1": 0o26227, "2": 0o71747, "3": 0o71717, "4": 0o55711, "5": 0o74717, "6": 0o74757, "7": 0o71111, "8": 0o75757,
    "9": 0o75717, ".": 0o00002, "%": 0o51245, "=": 0o07070, "/": 0o11244, "G": 0o74557, "M": 0o57755, "b": 0o44757, "i": 0o20222,
    "t": 0o27223, "s": 0o07616, " ": 0,
}  # fmt: skip
_WIDTH, _HEIGHT, _ZOOM = 3, 5, 2
_ADVANCE = (_WIDTH + 1) * _ZOOM
_LINE = 20  # pixels from one line of the key to the next


def render(report: LinkReport) -> bytes:
    """The image. Hosts have the numbers of the table. Rails are stacked; maps with both directions at once come after one at a time."""
    drawn = [one for rail in range(len(report.rails)) for one in maps(report, rail)]
    count = len(report.hosts)
    cell = max(LEAST, min(MOST, SIDE // max(count, 1)))
    size = count * cell + 2 * MARGIN
    height = size + 2 * _LINE
    image = _Image(max(size, NARROWEST), height * max(1, len(drawn)))
    for at, (_, rows, full) in enumerate(drawn):
        _draw(image, rows, full, cell, at * height)
        _key(image, full, at * height + size - MARGIN // 2)
    return image.png()


class _Image:
    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.rows = [bytearray(bytes(WHITE) * width) for _ in range(height)]

    def fill(self, x: int, y: int, width: int, height: int, value: Color) -> None:
        for row in self.rows[y : y + height]:
            row[3 * x : 3 * (x + width)] = bytes(value) * width

    def text(self, x: int, y: int, text: str) -> int:
        """A text with its left end at `x` and its top at `y`; where it ends."""
        for place, glyph in enumerate(text):
            for at in range(_WIDTH * _HEIGHT):
                if _GLYPHS[glyph] >> (_WIDTH * _HEIGHT - 1 - at) & 1:
                    down, right = divmod(at, _WIDTH)
                    self.fill(x + place * _ADVANCE + right * _ZOOM, y + down * _ZOOM, _ZOOM, _ZOOM, INK)
        return x + len(text) * _ADVANCE

    def png(self) -> bytes:
        """As RGB with 8 bits, rows without a filter."""
        header = struct.pack(">IIBBBBB", self.width, len(self.rows), _DEPTH, _RGB, 0, 0, 0)
        data = zlib.compress(b"".join(b"\0" + row for row in self.rows), 9)
        return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _draw(image: _Image, rows: Matrix, full: float, cell: int, top: int) -> None:
    square = cell - (1 if cell > LEAST else 0)
    for down, row in enumerate(rows):
        for across, flow in enumerate(row):
            if down != across:
                _cell(image, flow, full, square, MARGIN + across * cell, top + MARGIN + down * cell)
    step = max(1, -(-_ADVANCE * len(str(len(rows))) // cell))
    for at in range(0, len(rows), step):
        number, middle = str(at + 1), at * cell + cell // 2
        image.text(MARGIN - 2 - _ADVANCE * len(number), top + MARGIN + middle - _HEIGHT, number)
        image.text(MARGIN + middle - _ADVANCE * len(number) // 2, top + MARGIN - 2 * _HEIGHT - 4, number)


def _cell(image: _Image, flow: Flow | None, full: float, side: int, x: int, y: int) -> None:
    if flow is None:
        dot = max(1, side // 5)
        image.fill(x + (side - dot) // 2, y + (side - dot) // 2, dot, dot, INK)
        return
    part = share(flow, full)
    image.fill(x, y, side, side, INK if part is None else shade(part))
    for at in range(side) if part is None else ():
        image.fill(x + at, y + at, 1, 1, WHITE)
        image.fill(x + at, y + side - 1 - at, 1, 1, WHITE)


def _key(image: _Image, full: float, top: int) -> None:
    x = MARGIN
    for part, value in SCALE:
        if part == SCALE[-1][0]:  # with the rate, on a line of its own
            x, top = MARGIN, top + _LINE
        image.fill(x, top, 2 * _HEIGHT, 2 * _HEIGHT, value)
        text = f"{100 * part:.0f}%" + (f" = {bits_text(full)}" if part == SCALE[-1][0] else "")
        x = image.text(x + 2 * _HEIGHT + 4, top, text) + 2 * _ADVANCE
