"""What is read out of the code that Inductor writes for a graph."""

from __future__ import annotations

import pytest

from unstall.probes._manifest import Manifest, manifest_of

HEAD = """\
# AOT ID: ['3_forward']
from torch import device
cpp_fused_mul_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
extern "C"  void  kernel(const float* in_ptr0, float* out_ptr0)
{ tmp1 = tmp0; }
''')
async_compile.wait(globals())

class Runner:
    def call(self, args):
        primals_1, primals_2 = args
        assert_size_stride(primals_1, (8, 16), (16, 1), 'input')
        assert_size_stride(primals_2, (16, ), (1, ), 'input')
"""
TAIL = """\
        return (buf3, )

def benchmark_compiled_module(times=10, repeat=10):
    return print_performance(lambda: torch.ops.script.bend.default(primals_1))
"""
FIRST = """\
        buf0 = empty_strided_cpu((8, 16), (16, 1), torch.float32)
        cpp_fused_mul_0(primals_1, primals_2, buf0)
"""
BEND = """\
        # Topologically Sorted Source Nodes: [bend], Original ATen: [script.bend]
        buf1 = torch.ops.script.bend.default(buf0)
        buf2 = buf1
        assert_size_stride(buf2, (8, 16), (16, 1), 'torch.ops.script.bend.default')
        del buf1
"""
LAST = """\
        buf3 = buf0; del buf0  # reuse
        cpp_fused_mul_0(buf2, buf3)
"""
NBYTES = 8 * 16 * 4


def read(*parts: str) -> Manifest:
    return manifest_of(HEAD + "".join(parts) + TAIL)


def test_kernels_are_told_by_their_lines_and_neither_definitions_nor_benchmarks_are() -> None:
    made = read(FIRST, BEND, LAST)
    text = (HEAD + FIRST + BEND + LAST + TAIL).splitlines()
    assert made.graph == "3_forward"
    assert [text[line - 1].strip() for line in made.kernels] == [
        "cpp_fused_mul_0(primals_1, primals_2, buf0)",
        "cpp_fused_mul_0(buf2, buf3)",
    ]
    assert [text[line - 1].strip() for line in made.left["script.bend.default"].lines] == [
        "buf1 = torch.ops.script.bend.default(buf0)"
    ]


def test_an_operator_between_two_kernels_is_told_with_its_bytes() -> None:
    left = read(FIRST, BEND, LAST).left["script.bend.default"]
    assert (left.before, left.after, left.taken, left.given, left.alike) == (1, 1, NBYTES, NBYTES, True)


def test_memory_used_anew_does_not_make_a_kernel_a_neighbour() -> None:
    reused = LAST.replace("cpp_fused_mul_0(buf2, buf3)", "extern_kernels.mm(buf2, primals_1, out=buf3)") + (
        "        buf4 = buf2; del buf2  # reuse\n        cpp_fused_mul_0(buf3, buf4)\n"
    )
    assert read(FIRST, BEND, reused).left["script.bend.default"].after == 0


def test_a_graphs_own_input_has_no_kernel_before_it() -> None:
    assert read(FIRST, BEND.replace("(buf0)", "(primals_1)"), LAST).left["script.bend.default"].before == 0


@pytest.mark.parametrize(
    ("dims", "alike"), [("(16, )", True), ("(8, 1)", True), ("(128, )", True), ("(16, 16)", False)]
)
def test_an_operator_with_a_tensor_that_does_not_fit_is_not_alike(dims: str, alike: bool) -> None:
    weight = f"        assert_size_stride(primals_3, {dims}, (1, ), 'input')\n"
    left = read(FIRST, weight, BEND.replace("(buf0)", "(buf0, primals_3)"), LAST).left["script.bend.default"]
    assert left.alike is alike


def test_matrix_products_collectives_and_memory_are_no_operators_left_out() -> None:
    needed = (
        "        extern_kernels.mm(buf2, primals_1, out=buf0)\n"
        "        buf9 = torch.ops.mkldnn._linear_pointwise.default(buf2, primals_1)\n"
        "        torch.ops._c10d_functional.wait_tensor.default(buf9)\n"
    )
    made = read(FIRST, needed)
    assert not made.left and len(made.externs) == 1


def test_a_triton_kernel_is_a_kernel() -> None:
    made = read(
        FIRST.replace("cpp_fused_mul_0(", "triton_poi_fused_mul_0.run(").replace("buf0)", "buf0, 128, stream=stream0)")
    )
    assert len(made.kernels) == 1 and made.moved == 2 * NBYTES + 64


def test_kernels_that_share_a_tensor_move_more_than_one_would() -> None:
    both = read(
        FIRST,
        "        buf2 = empty_strided_cpu((8, 16), (16, 1), torch.float32)\n        cpp_fused_mul_0(buf0, buf2)\n",
    )
    assert both.moved == 4 * NBYTES + 64
    assert both.least == NBYTES + 64  # the graph's two inputs: what it returns is not among these kernels'


def test_sizes_that_are_no_numbers_count_as_none() -> None:
    made = read(FIRST.replace("(8, 16)", "(s0, 16)"))
    assert made.moved == NBYTES + 64


@pytest.mark.parametrize("source", ["", "cpp_wrapper_src = 1", "def call(args):\n    (("])
def test_code_of_another_kind_is_no_error(source: str) -> None:
    assert manifest_of(source) == Manifest("")


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("cpp_fused_mul_native_layer_norm_where_12(buf0, buf3)", "mul_native_layer_norm_where"),
        ("cpp_fused_0(buf0, buf3)", ""),
        ("cpp_fused__softmax_1(buf0, buf3)", "_softmax"),
        ("triton_poi_fused_add_tanh_3.run(buf0, buf3, 128, grid=grid(128), stream=stream0)", "add_tanh"),
    ],
)
def test_kernels_are_counted_by_what_is_fused_in_them_whatever_their_number(call: str, name: str) -> None:
    made = read(FIRST, f"        {call}\n", f"        {call}\n")
    assert made.patterns == {"mul": 1, name: 2}


def test_matrix_products_are_counted_by_name() -> None:
    product = "        extern_kernels.mm(buf0, primals_1, out=buf3)\n"
    made = read(FIRST, product, "        buf4 = extern_kernels.convolution(buf0, primals_1)\n", product)
    assert made.libraries == {"mm": 2, "convolution": 1} and made.patterns == {"mul": 1}
