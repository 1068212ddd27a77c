"""A framework's setting becomes an edit of the one call that makes it, and else says exactly what to pass."""

from dataclasses import replace

import pytest

from unstall.causes._configured import setting
from unstall.model.finding import Line
from unstall.model.remedy import SetKeyword
from unstall.model.run import Facts, Place
from unstall.pipeline import account
from unstall.testing.timeline import draw

PARSER = "/lib/python3.11/site-packages/transformers/hf_argparser.py:345:parse_args_into_dataclasses"
YAML = "/lib/python3.11/site-packages/transformers/hf_argparser.py:430:parse_yaml_file"
TRAINER = "/lib/python3.11/site-packages/transformers/trainer.py:400:__init__"
PICTURE = """
    step   |ssssssssss|ssssssssss
    main   |DDDDDDDFBO|DDDDDDDFBO
"""
KEY = "TrainingArguments.dataloader_num_workers"


def made(line, library="", key="TrainingArguments"):
    site = f"train.py:{line}:main" if line else ""
    return {"key": key, "class": f"transformers.training_args.{key}", "site": site, "library": library}


def set_in(*made, command=("train.py",)):
    run = draw(PICTURE)
    facts = {f"configured:{n}": one for n, one in enumerate(made)}
    rank = replace(run.ranks[0], facts=Facts(facts))
    run = replace(run, ranks=(rank,), facts=Facts({"command": list(command)}))
    return setting(KEY, 4, run, account(run)[1])


def test_the_one_call_of_the_users_is_edited():
    said = set_in(made(12), made(9, key="Trainer"), made(30, TRAINER))
    call = "transformers.training_args.TrainingArguments"
    assert said.edits == (SetKeyword("train.py", 12, call, "dataloader_num_workers", 4),)
    assert said.by_hand == ""
    assert said.knobs(4, 1, 8)[0].keyword == "dataloader_num_workers"


@pytest.mark.parametrize(
    "made, command, words",
    [
        ([made(12), made(20)], ["train.py"], "in the call that makes it (2 lines make one)"),
        ([made(12, PARSER)], ["train.py"], "start the command with --dataloader_num_workers 4"),
        (
            [made(12, PARSER)],
            ["train.py", "--dataloader_num_workers", "0"],
            "start the command with --dataloader_num_workers 4 instead of --dataloader_num_workers 0",
        ),
        (
            [made(12, PARSER)],
            ["train.py", "--dataloader_num_workers=0"],
            "start the command with --dataloader_num_workers 4 instead of --dataloader_num_workers=0",
        ),
        ([made(12, YAML)], ["train.py"], 'set "dataloader_num_workers" to 4 in the file or dictionary that is read'),
        ([made(12, TRAINER)], ["train.py"], "hand over TrainingArguments(dataloader_num_workers=4)"),
        ([], ["train.py"], f"set {KEY} to 4 where it is made"),
    ],
)
def test_nothing_is_edited_where_no_single_call_makes_it_and_the_words_say_what_to_pass(made, command, words):
    said = set_in(*made, command=command)
    assert said.edits == () and said.knobs(4, 1, 8) == ()
    assert words in said.by_hand


def test_the_line_that_is_edited_is_where_a_recorded_place_says():
    assert Place.parse("train.py:12:main").line == 12
    assert Line("train.py", 12).file == set_in(made(12)).edits[0].file
