"""A bench that was stopped goes on where it was, and its parts are the whole."""

import pytest

from unstall.testing.journal import Journal, chosen, sharded


def test_what_was_measured_is_there_again(tmp_path):
    kept = Journal(tmp_path / "kept")
    kept.add("a", {"ms": 1.5})
    kept.add("b", {"ms": 2})
    assert Journal(tmp_path / "kept").rows == {"a": {"key": "a", "ms": 1.5}, "b": {"key": "b", "ms": 2}}


def test_a_line_that_was_cut_short_is_measured_again_and_spoils_no_other(tmp_path):
    path = tmp_path / "kept"
    Journal(path).add("a", {"ms": 1})
    with path.open("a") as file:
        file.write('{"key": "b", "m')
    again = Journal(path)
    assert list(again.rows) == ["a"]
    again.add("b", {"ms": 2})
    assert list(Journal(path).rows) == ["a", "b"]


def test_without_a_file_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Journal(None).add("a", {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 20])
def test_the_parts_are_the_whole_and_pairs_stay_together(parts):
    cells = [f"{number}{which}" for number in range(10) for which in ("with", "without")]
    shared = [sharded(cells, f"{part}/{parts}", lambda cell: cell[0]) for part in range(1, parts + 1)]
    assert sorted(cell for part in shared for cell in part) == sorted(cells)
    assert all({cell[0] + "with", cell[0] + "without"} <= set(part) for part in shared for cell in part)


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "-1/2"])
def test_a_part_that_there_is_not_is_refused(shard):
    with pytest.raises(ValueError, match="PART/PARTS"):
        sharded([1, 2], shard, str)


def test_cells_are_chosen_by_a_part_of_their_name():
    assert chosen(["a 1", "b 1", "b 2"], ["b"], str) == ["b 1", "b 2"]
    assert chosen(["a 1", "b 1"], [], str) == ["a 1", "b 1"]
