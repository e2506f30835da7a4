"""Spark's `xxhash64` of a string, for names that the driver knows and rows carry as numbers."""

from __future__ import annotations

_1, _2, _3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_4, _5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MASK = (1 << 64) - 1
_SEED = 42
"""Spark's."""


def xxhash64(text: str) -> int:
    """Return the 64 bits that Spark's function of this name gives for a string, as a signed number."""
    data = text.encode()
    size, at = len(data), 0
    if size >= 32:
        lanes = [_SEED + _1 + _2, _SEED + _2, _SEED, _SEED - _1]
        while at + 32 <= size:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane] & _MASK, int.from_bytes(data[at : at + 8], "little"))
                at += 8
        mixed = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            mixed = ((mixed ^ _round(0, lane)) * _1 + _4) & _MASK
    else:
        mixed = (_SEED + _5) & _MASK
    mixed = (mixed + size) & _MASK
    while at + 8 <= size:
        mixed ^= _round(0, int.from_bytes(data[at : at + 8], "little"))
        mixed = (_rotated(mixed, 27) * _1 + _4) & _MASK
        at += 8
    if at + 4 <= size:
        mixed ^= (int.from_bytes(data[at : at + 4], "little") * _1) & _MASK
        mixed = (_rotated(mixed, 23) * _2 + _3) & _MASK
        at += 4
    for byte in data[at:]:
        mixed = (_rotated(mixed ^ (byte * _5 & _MASK), 11) * _1) & _MASK
    mixed = ((mixed ^ (mixed >> 33)) * _2) & _MASK
    mixed = ((mixed ^ (mixed >> 29)) * _3) & _MASK
    mixed ^= mixed >> 32
    return mixed - (1 << 64) if mixed >> 63 else mixed


def _round(lane: int, word: int) -> int:
    return (_rotated((lane + word * _2) & _MASK, 31) * _1) & _MASK


def _rotated(bits: int, by: int) -> int:
    return ((bits << by) | (bits >> (64 - by))) & _MASK
