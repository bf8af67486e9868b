"""Prefetch a cell before it is needed (LLVM's prefetch); a no-op when uncompiled."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

insert: Any = cgutils.get_or_insert_function
LINE_BYTES = 64


def prefetch(cells: Any, at: int, width: int) -> None:
    """Bring the cache lines of cells[at : at + width] into the cache, for writing."""


@intrinsic  # what it takes when compiled is what generate() takes: see the signature it returns
def _prefetch(typingctx: Any, cells: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        address = builder.bitcast(builder.gep(array.data, [args[1]]), cgutils.voidptr_t)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        module: Any = builder.module
        function = insert(module, kind, "llvm.prefetch.p0")
        write, keep, data = ir.Constant(number, 1), ir.Constant(number, 3), ir.Constant(number, 1)
        builder.call(function, [address, write, keep, data])
        return context.get_dummy_value()

    return types.void(cells, types.intp), generate


@overload(prefetch)
def _compiled(cells: Any, at: Any, width: Any) -> Any:
    compiled: Any = _prefetch
    # Known when it is compiled: divided for each non-zero it would cost 5 ns.
    line = LINE_BYTES * 8 // cells.dtype.bitwidth

    def call(cells: Any, at: Any, width: Any) -> Any:
        for cell in range(0, width, line):
            compiled(cells, at + cell)

    return call
