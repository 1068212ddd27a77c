"""Which loops stand around a line."""

from unstall.accounts.loops import loops_around
from unstall.model.run import Place

SOURCE = """\
def loss(a, b):
    total = 0
    for i in range(a):
        for j in range(b):
            total += i * j
    return total

for step in range(3):
    def double(n):
        return 2 * n
    x = loss(step, 2)
    y = [double(n) for n in range(3)]
    z = sum(n * m for n in y for m in y)
"""


def loops_of(tmp_path, *lines):
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    found = loops_around([Place(str(file), line) for line in lines], str(tmp_path))
    assert all(loop.file == "train.py" for loop in found)
    return [(loop.first, loop.last) for loop in found]


def test_the_loops_of_every_place_of_the_chain_are_named_outermost_first(tmp_path):
    assert loops_of(tmp_path, 11, 5) == [(8, 13), (3, 5), (4, 5)]


def test_the_head_of_a_loop_belongs_to_the_loops_around_it(tmp_path):
    assert loops_of(tmp_path, 3) == []
    assert loops_of(tmp_path, 4) == [(3, 5)]


def test_a_loop_around_the_definition_of_a_function_does_not_run_its_body(tmp_path):
    assert loops_of(tmp_path, 10) == []


def test_each_clause_of_a_comprehension_is_a_loop(tmp_path):
    assert loops_of(tmp_path, 12, 12) == [(8, 13), (12, 12)]
    assert loops_of(tmp_path, 13) == [(8, 13), (13, 13), (13, 13)]


def test_a_loop_that_calls_what_ends_a_step_is_marked(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("for x in data:\n    for p in ps:\n        p.mul_(2)\n    opt.step()\n")
    assert [loop.turns for loop in loops_around([Place(str(file), 3)])] == [True, False]


def test_a_file_that_is_gone_has_no_loops():
    assert loops_around([Place("/nowhere/train.py", 3)]) == ()
