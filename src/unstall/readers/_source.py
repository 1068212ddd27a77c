"""The text of a file, block by block: plain or gzip, as far as it can be read."""

from __future__ import annotations

import zlib
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from unstall.model.errors import UnstallError

try:  # 1.5 times as fast as zlib on these files; the rest works without it
    from isal import isal_zlib  # type: ignore[import-not-found,unused-ignore]

    _inflater = isal_zlib.decompressobj
    _TROUBLE: tuple[type[Exception], ...] = (zlib.error, isal_zlib.error)
except ImportError:
    _inflater = zlib.decompressobj
    _TROUBLE = (zlib.error,)

GZIP = b"\x1f\x8b"
BLOCK = 1 << 18  # bytes read from disk at a time
_WITH_HEADER = 31  # zlib: a gzip header, the largest window


class Source:
    """Reads a file's text in order; one that is cut short or damaged ends where it goes wrong.

    Attributes:
        read_bytes: bytes of text given out so far.
        trouble: why the text ends early, or "".

    Raises:
        UnstallError: When the file cannot be opened.
    """

    __slots__ = ("_file", "_given", "_inflate", "_new", "_packed", "_rest", "path", "read_bytes", "trouble")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read_bytes = 0
        self.trouble = ""
        self._packed = b""
        self._rest = b""
        self._given = 0  # bytes inflated so far
        self._new = _inflater
        try:
            self._file: BinaryIO = open(path, "rb")  # noqa: SIM115 - closed by __exit__
            first = self._file.read(BLOCK)
        except OSError as error:
            raise UnstallError(f"{path} cannot be read: {error.strerror}.") from None
        self._inflate = None
        if first.startswith(GZIP):
            self._inflate, self._packed = self._new(_WITH_HEADER), first
        else:
            self._rest = first

    def __enter__(self) -> Source:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def read(self, count: int) -> bytes:
        """Return the next *count* bytes of text, fewer only where it ends."""
        parts: list[bytes] = []
        missing = count
        while missing > 0 and (part := self._some(missing)):
            parts.append(part)
            missing -= len(part)
        self.read_bytes += count - missing
        return b"".join(parts)

    def _some(self, most: int) -> bytes:
        if self._inflate is not None:
            return self._inflated(most)
        if self._rest:
            part, self._rest = self._rest[:most], self._rest[most:]
            return part
        try:
            return self._file.read(most)
        except OSError as error:
            self.trouble = error.strerror or "it cannot be read"
            return b""

    def _inflated(self, most: int) -> bytes:
        """Return up to *most* bytes of text; never more is held, however well it was packed."""
        while not self.trouble:
            inflate = self._inflate
            assert inflate is not None
            if inflate.eof:  # several gzip members may follow one another; zeros after the last one are padding
                self._packed = inflate.unused_data or self._file.read(BLOCK)
                if not self._packed.startswith(GZIP[: len(self._packed)]) or not self._packed:
                    return b""
                self._inflate = inflate = self._new(_WITH_HEADER)
            elif not self._packed:
                self._packed = self._file.read(BLOCK)
                if not self._packed:
                    self.trouble = "the gzip stream ends in the middle"
                    return b""
            before = inflate.copy() if hasattr(inflate, "copy") else None
            try:
                part = bytes(inflate.decompress(self._packed, most))
            except _TROUBLE as error:
                if before is None:
                    self._again()
                    continue
                self.trouble = f"the gzip stream is damaged: {error}"
                return _salvaged(before, self._packed, most)
            self._packed = inflate.unconsumed_tail
            if part:
                self._given += len(part)
                return part
        return b""

    def _again(self) -> None:
        """Inflate anew with zlib up to where we are: it keeps what comes before the damage, where isal does not."""
        self._file.seek(0)
        self._new = zlib.decompressobj
        self._inflate, self._packed = self._new(_WITH_HEADER), self._file.read(BLOCK)
        missing, self._given = self._given, 0
        while missing > 0 and (part := self._inflated(min(missing, BLOCK))):
            missing -= len(part)


def _salvaged(inflate: zlib._Decompress, packed: bytes, most: int) -> bytes:
    """Return the text before the damage: an error takes with it all that its call had inflated, so little is given it."""
    text = bytearray()
    for at in range(0, len(packed), 64):
        try:
            text += inflate.decompress(inflate.unconsumed_tail + packed[at : at + 64], most - len(text))
        except _TROUBLE:
            break
        if len(text) >= most:
            break
    return bytes(text)
