"""Tables: what fits on a terminal, and all of it in a file."""

from __future__ import annotations

import csv
import sys
from dataclasses import replace

import pytest

from unstall.model.errors import UnstallError
from unstall.model.report import Column, Table
from unstall.views import tables

ROWS = 25
NAMES = tuple(f"void at::native::vectorized_elementwise_kernel<{n}, float>(int, float*)" for n in range(ROWS))
KERNELS = Table(
    "kernels",
    "Work on the device",
    (
        Column("kernel", "", NAMES),
        Column("count", "count", tuple(range(ROWS))),
        Column("device_ns", "ns", tuple(1_500_000 - n for n in range(ROWS))),
        Column("rate", "bytes/s", (3.1e9, None) + (None,) * (ROWS - 2)),
        Column("inputs", "", ('[["float", [64, 128]]]',) * ROWS, True),
        Column(
            "line", "", ("/home/someone/a/rather/long/folder/of/a/project/with/a/training/in/it/train.py:41",) * ROWS
        ),
    ),
)
EMPTY = Table("copies", "Copies", (Column("copy", "", ()), Column("count", "count", ())))


@pytest.fixture
def report(samples):
    return replace(samples["traces"], tables=(KERNELS,))


@pytest.mark.parametrize("width", [60, 100, 160])
def test_a_table_fits_the_terminal(report, width):
    page = tables.render(report, width=width)
    assert max(map(len, page.splitlines())) <= width
    assert "train.py:41" in page  # of a place that is cut the end stays


def test_the_largest_rows_are_shown_and_the_rest_is_counted(report):
    page = tables.render(report, width=100)
    assert "+5 more" in page
    assert sum("train.py:41" in line for line in page.splitlines()) == tables.ROWS_SHOWN
    assert sum("train.py:41" in line for line in tables.render(report, width=100, verbose=True).splitlines()) == ROWS


def test_numbers_have_units_and_what_is_not_known_is_blank(report):
    page = tables.render(report, width=160)
    assert "1.5 ms" in page
    assert "3.1 GB/s" in page
    assert "None" not in page
    assert "[64, 128]" not in page  # too long for a terminal


def test_what_makes_the_report_doubtful_stands_below_its_tables(report):
    page = tables.render(replace(report, warnings=("it ends in the middle",)), width=100)
    assert page.endswith("! it ends in the middle\n")


def test_a_table_without_rows_says_so(samples):
    assert "no rows: there were none in the steady steps" in tables.render(replace(samples["traces"], tables=(EMPTY,)))
    unseen = tables.render(replace(samples["one-trace"], tables=(EMPTY,)))
    assert "the device was not observed (no device activity in the trace)" in unseen


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::(anonymous namespace)::fill<4, at::native::F<float> >(int, float)", "fill<4, F<float> >"),
        (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)",
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)",
        ),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("train.py(41): main", "train.py(41): main"),
    ],
)
def test_what_cpp_wraps_around_a_name_is_left_out(name, short):
    assert tables.short(name) == short


def test_csv_holds_every_row_and_column_as_they_are(tmp_path):
    tables.save(KERNELS, tmp_path / "kernels.csv")
    with (tmp_path / "kernels.csv").open(newline="") as file:
        heading, *rows = csv.reader(file)
    assert heading == [column.name for column in KERNELS.columns]
    for column, values in zip(KERNELS.columns, zip(*rows)):
        assert values == tuple("" if value is None else str(value) for value in column.values)


def test_parquet_holds_the_same_with_types(tmp_path):
    pyarrow = pytest.importorskip("pyarrow.parquet")
    tables.save(KERNELS, tmp_path / "kernels.parquet")
    read = pyarrow.read_table(tmp_path / "kernels.parquet")
    assert read.to_pydict() == {column.name: list(column.values) for column in KERNELS.columns}
    assert [str(kind) for kind in read.schema.types] == ["string", "int64", "int64", "double", "string", "string"]


def test_without_pyarrow_it_is_said_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(tables.NoParquet, match=r"pip install 'unstall\[parquet\]'"):
        tables.check(tmp_path / "kernels.parquet")
    with pytest.raises(UnstallError, match="CSV or Parquet"):
        tables.check(tmp_path / "kernels.xlsx")


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UnstallError, match="could not be written"):
        tables.save(KERNELS, tmp_path / "nowhere" / "kernels.csv")
