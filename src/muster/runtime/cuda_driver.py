"""Tests of NVIDIA devices by the driver's own library (libcuda, by ctypes): memory and arithmetic with known answers.

It needs no toolkit and no PyTorch: the driver compiles the kernels below. Used only in a process of its own, because a
process that has touched a device can't fork ranks any more.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

_LIBRARY: Final = "libcuda.so.1"
_BLOCKS: Final = 2048  # more than any device runs at once, so that every multiprocessor takes part
_THREADS: Final = 256
_LANES: Final = 32  # threads with the same number modulo this compute the same
_ROUNDS: Final = 1024
_NO_DEVICE: Final = 100
_SEEDS: Final = (0x5A5A5A5A, 0xA5A5A5A5)  # each bit is written as 0 and as 1
_TENSOR_SUM: Final = _ROUNDS * 8 * 2.0 * 3.0  # each round adds 8 products of 2 and 3

_INDEX: Final = """
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mov.u32 %r4, %nctaid.x;
    cvt.u64.u32 %d1, %r3; mad.wide.u32 %d2, %r1, %r2, %d1;
"""
# The value of word i is a hash of i: a wrong address is found as well as a wrong bit.
_WORD: Final = """
    cvt.u32.u64 %r5, %d2; shr.u64 %d5, %d2, 32; cvt.u32.u64 %r6, %d5;
    mul.lo.u32 %r5, %r5, 2654435761; xor.b32 %r5, %r5, %r6; xor.b32 %r5, %r5, %r7;
    shl.b64 %d6, %d2, 2; add.u64 %d6, %d4, %d6;
"""
_MEMORY: Final = f"""
.version 6.4
.target sm_50
.address_size 64
.visible .entry fill(.param .u64 at, .param .u64 words, .param .u32 seed, .param .u64 errors) {{
    .reg .pred %p<2>; .reg .u32 %r<9>; .reg .u64 %d<9>;
    ld.param.u64 %d4, [at]; ld.param.u64 %d7, [words]; ld.param.u32 %r7, [seed];
    {_INDEX}
    mul.wide.u32 %d3, %r4, %r2;
next:
    setp.ge.u64 %p1, %d2, %d7; @%p1 bra done;
    {_WORD}
    st.global.u32 [%d6], %r5;
    add.u64 %d2, %d2, %d3; bra next;
done:
    ret;
}}
.visible .entry verify(.param .u64 at, .param .u64 words, .param .u32 seed, .param .u64 errors) {{
    .reg .pred %p<3>; .reg .u32 %r<9>; .reg .u64 %d<9>;
    ld.param.u64 %d4, [at]; ld.param.u64 %d7, [words]; ld.param.u32 %r7, [seed]; ld.param.u64 %d8, [errors];
    {_INDEX}
    mul.wide.u32 %d3, %r4, %r2;
next:
    setp.ge.u64 %p1, %d2, %d7; @%p1 bra done;
    {_WORD}
    ld.global.u32 %r8, [%d6];
    setp.ne.u32 %p2, %r8, %r5;
    @%p2 red.global.add.u64 [%d8], 1;
    add.u64 %d2, %d2, %d3; bra next;
done:
    ret;
}}
.visible .entry compute(.param .u64 at) {{
    .reg .pred %p<2>; .reg .u32 %r<12>; .reg .u64 %d<9>; .reg .f32 %f<3>;
    ld.param.u64 %d4, [at];
    {_INDEX}
    and.b32 %r5, %r3, {_LANES - 1}; mad.lo.u32 %r5, %r5, 747796405, 2891336453;
    mov.u32 %r9, 0;
next:
    mad.lo.u32 %r5, %r5, 1664525, 1013904223;
    shr.u32 %r6, %r5, 13; xor.b32 %r5, %r5, %r6;
    and.b32 %r8, %r5, 1023; cvt.rn.f32.u32 %f1, %r8; fma.rn.f32 %f2, %f1, 0f40800000, 0f3F800000;
    cvt.rzi.u32.f32 %r10, %f2; add.u32 %r5, %r5, %r10;
    add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, {_ROUNDS}; @%p1 bra next;
    shl.b64 %d6, %d2, 2; add.u64 %d6, %d4, %d6; st.global.u32 [%d6], %r5;
    ret;
}}
"""
_TENSOR: Final = f"""
.version 6.5
.target sm_75
.address_size 64
.visible .entry tensor(.param .u64 at) {{
    .reg .pred %p<2>; .reg .b32 %r<12>; .reg .u64 %d<9>; .reg .f32 %f<5>;
    ld.param.u64 %d4, [at];
    {_INDEX}
    mov.u32 %r5, 0x40004000; mov.u32 %r6, 0x42004200;
    mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
    mov.u32 %r9, 0;
next:
    mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {{%f1,%f2,%f3,%f4}}, {{%r5,%r5}}, {{%r6}}, {{%f1,%f2,%f3,%f4}};
    add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, {_ROUNDS}; @%p1 bra next;
    shl.b64 %d6, %d2, 4; add.u64 %d6, %d4, %d6; st.global.v4.f32 [%d6], {{%f1,%f2,%f3,%f4}};
    ret;
}}
"""


class CudaError(RuntimeError):
    """A call of the driver failed; the text names the call and the driver's own word for it."""


class Device:
    """One device of this process, by its number in `CUDA_VISIBLE_DEVICES`. Its context lives as long as the process."""

    def __init__(self, number: int) -> None:
        self._cuda: Any = _opened()
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), number)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def wrong_words(self, size: int) -> int:
        """Writes two patterns into `size` bytes and reads them back on the device; how many words were wrong."""
        module, words = self._module(_MEMORY), size // 4
        at, errors = self._allocate(words * 4), self._allocate(8)
        try:
            self._call("cuMemsetD8_v2", errors, 0, 8)
            for seed in _SEEDS:
                arguments = (at, ctypes.c_uint64(words), ctypes.c_uint32(seed), errors)
                self._run(module, b"fill", arguments)
                self._run(module, b"verify", arguments)
            return int.from_bytes(self._read(errors, 8), "little")
        finally:
            self._free(at, errors)

    def computes(self) -> bool:
        """Whether integers and single floats come out right on every multiprocessor."""
        expected = b"".join(_expected(lane).to_bytes(4, "little") for lane in range(_LANES))
        return self._result(_MEMORY, b"compute", 4) == expected * (_BLOCKS * _THREADS // _LANES)

    def multiplies(self) -> bool | None:
        """Whether its tensor cores come out right; None if it has none."""
        try:
            found = self._result(_TENSOR, b"tensor", 16)
        except CudaError as error:
            if "cuModuleLoadData" in str(error):
                return None
            raise
        one = bytes(ctypes.c_float(_TENSOR_SUM))
        return found == one * (len(found) // 4)

    def _result(self, source: str, kernel: bytes, width: int) -> bytes:
        size = _BLOCKS * _THREADS * width
        at = self._allocate(size)
        try:
            self._run(self._module(source), kernel, (at,))
            return self._read(at, size)
        finally:
            self._free(at)

    def _module(self, source: str) -> ctypes.c_void_p:
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), source.encode())
        return module

    def _allocate(self, size: int) -> ctypes.c_uint64:
        at = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
        return at

    def _free(self, *places: ctypes.c_uint64) -> None:
        for at in places:
            self._cuda.cuMemFree_v2(at)

    def _run(self, module: ctypes.c_void_p, name: bytes, arguments: Sequence[Any]) -> None:
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, name)
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(one) for one in arguments))
        self._call("cuLaunchKernel", function, _BLOCKS, 1, 1, _THREADS, 1, 1, 0, None, pointers, None)
        self._call("cuCtxSynchronize")

    def _read(self, at: ctypes.c_uint64, size: int) -> bytes:
        found = ctypes.create_string_buffer(size)
        self._call("cuMemcpyDtoH_v2", found, at, ctypes.c_size_t(size))
        return found.raw

    def _call(self, name: str, *arguments: Any) -> None:
        _check(self._cuda, name, getattr(self._cuda, name)(*arguments))


def device_count() -> int | None:
    """How many devices this process sees; None if there is no NVIDIA driver. Raises CudaError if the driver fails."""
    try:
        cuda = _opened()
    except OSError:
        return None
    if cuda is None:
        return 0
    count = ctypes.c_int()
    _check(cuda, "cuDeviceGetCount", cuda.cuDeviceGetCount(ctypes.byref(count)))
    return count.value


@cache
def _opened() -> Any | None:
    """The library; None if the driver finds no device. Raises OSError if it is not installed."""
    cuda = ctypes.CDLL(_LIBRARY)
    status = cuda.cuInit(0)
    if status == _NO_DEVICE:
        return None
    _check(cuda, "cuInit", status)
    return cuda


def _check(cuda: Any, call: str, status: int) -> None:
    if status:
        said = ctypes.c_char_p()
        cuda.cuGetErrorName(status, ctypes.byref(said))
        raise CudaError(f"{call}: {(said.value or b'').decode() or f'error {status}'}")


def _expected(lane: int) -> int:
    """What a thread of the kernel `compute` stores."""
    mask = 2**32 - 1
    value = (lane * 747796405 + 2891336453) & mask
    for _ in range(_ROUNDS):
        value = (value * 1664525 + 1013904223) & mask
        value ^= value >> 13
        value = (value + (value & 1023) * 4 + 1) & mask
    return value
