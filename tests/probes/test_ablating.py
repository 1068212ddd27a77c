"""What a bound takes away is really gone, and the loop goes on as it was: as many epochs and steps, nothing else changed."""

from __future__ import annotations

import json

import pytest
from trainings import trial

HEAD = """\
import collections, json, os
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
torch.manual_seed(0)

def fetched(i):
    with open("fetched", "a") as file:
        file.write(f"{os.getpid()} {i} ")
    return torch.full((8,), float(i)), torch.tensor(i % 3)

class Points(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, i):
        return fetched(i)

class Stream(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        return (fetched(i) for i in range(*((0, 40) if info is None else (info.id, 40, info.num_workers))))

class Sized(Stream):
    def __len__(self):
        return 40

model = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
steps, seen = [], []

def step(x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LOOP = """
loader = {loader}
for epoch in range(3):
    steps.append(0)
    for x, y in loader:
        step(x, y)
        steps[-1] += 1
        seen.append(x[:, 0].tolist())
"""
TAIL = """
json.dump([steps, seen], open("told", "w"))
"""
LOADERS = {
    "here": "DataLoader(Points(), 4, shuffle=True)",
    "workers": "DataLoader(Points(), 4, shuffle=True, num_workers=2)",
    "persistent": "DataLoader(Points(), 4, shuffle=True, num_workers=2, persistent_workers=True)",
    "sized-stream": "DataLoader(Sized(), 4)",
    "own-batches": "DataLoader(Points(), batch_sampler=[list(range(i, i + 4)) for i in range(0, 40, 4)])",
}
STREAMS = {"stream": "DataLoader(Stream(), 4)", "stream-workers": "DataLoader(Sized(), 4, num_workers=2)"}


@pytest.fixture
def ablated(tmp_path):
    """Return a function that runs a loop under what is taken away, and returns what it captured and wrote."""

    def run(body, *ablate, steps=None):
        there = tmp_path / str(len(list(tmp_path.iterdir())))
        captured = trial(HEAD + body + TAIL, there, {"seed": 0, "ablate": list(ablate)}, steps)
        told = json.loads((there / "told").read_text()) if (there / "told").exists() else None
        fetched = (there / "fetched").read_text().split() if (there / "fetched").exists() else []
        return captured, told, fetched, there

    return run


@pytest.mark.parametrize("name", LOADERS)
def test_a_loader_gives_one_batch_again_for_as_many_steps_as_the_epochs_have(ablated, name):
    captured, (steps, seen), fetched, _ = ablated(LOOP.format(loader=LOADERS[name]), "input")
    assert steps == [10, 10, 10]
    assert all(batch == seen[0] for batch in seen)
    assert captured.ablated == {"input": 29}
    assert len(fetched) // 2 < 40  # not one epoch's samples


@pytest.mark.parametrize("name", ["here", "persistent"])
def test_without_being_asked_every_sample_is_fetched_in_every_epoch(ablated, name):
    captured, (steps, seen), fetched, _ = ablated(LOOP.format(loader=LOADERS[name]))
    assert steps == [10, 10, 10] and captured.ablated == {}
    assert len(fetched) // 2 == 120 and len({str(batch) for batch in seen}) > 5


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_does_not_tell_its_length_is_counted_in_its_first_epoch(ablated, name):
    captured, (steps, seen), _, _ = ablated(LOOP.format(loader=STREAMS[name]), "input")
    assert steps == [10, 10, 10]
    assert len({str(batch) for batch in seen[:10]}) == 10
    assert all(batch == seen[0] for batch in seen[10:])
    assert captured.ablated == {"input": 20}


@pytest.mark.parametrize("name", STREAMS)
def test_an_endless_stream_goes_on_to_the_step_that_is_asked_for(ablated, name):
    captured, told, fetched, _ = ablated(LOOP.format(loader=STREAMS[name]), "input-endless", steps=25)
    assert told is None and captured.losses_L.size == 25  # stopped by us, in the first epoch
    assert captured.ablated == {"input": 24}
    assert len(fetched) // 2 < 40


def test_workers_that_nobody_waits_for_are_ended(ablated):
    loop = LOOP + "    import multiprocessing; assert not multiprocessing.active_children()\n"
    ablated(loop.format(loader=LOADERS["persistent"]), "input")
    with pytest.raises(AssertionError, match="active_children"):
        ablated(loop.format(loader=LOADERS["persistent"]))


EVALUATING = """
train, held_out = DataLoader(Points(), 4), DataLoader(Points(), 4)
for epoch in range(2):
    for x, y in train:
        step(x, y)
    with torch.no_grad():
        for x, y in held_out:
            seen.append(x[:, 0].tolist())
    steps.append(len(seen))
"""


def test_a_loader_that_evaluates_gives_what_it_has(ablated):
    captured, (_, seen), _, _ = ablated(EVALUATING, "input")
    assert seen[:10] == seen[10:] and len({str(batch) for batch in seen[:10]}) == 10
    assert captured.ablated == {"input": 19}


HOLDING_OUT = """
train, held_out = DataLoader(Points(), 4, shuffle=True), {loader}
for epoch in range(3):
    for x, y in train:
        step(x, y)
    model.eval()
    taken = 0
    for x, y in {around}(held_out):
        with torch.set_grad_enabled({gradients}):
            model(x)
        taken += 1
    model.train()
    steps.append(taken)
"""
AHEAD = """
def ahead(loader):
    batches = iter(loader)
    batch = next(batches)
    for following in batches:
        yield batch
        batch = following
    yield batch
"""


@pytest.fixture
def with_modules(monkeypatch):
    monkeypatch.setattr("trainings.NEEDED", ["backward", "optimizers", "modules"])


@pytest.mark.parametrize("name", [*LOADERS, *STREAMS])
def test_a_loader_that_evaluates_ends_after_two_batches(ablated, with_modules, name):
    loop = HOLDING_OUT.format(loader=(LOADERS | STREAMS)[name], around="iter", gradients=False)
    captured, (taken, _), fetched, _ = ablated(loop, "evaluation")
    assert taken == [2, 2, 2] and captured.ablated == {"evaluation": 3}
    assert captured.losses_L.size == 30 and len(fetched) // 2 < 3 * 40 + 40
    captured, (taken, _), _, _ = ablated(loop)
    assert taken == [10, 10, 10] and captured.ablated == {}


def test_input_and_evaluation_are_taken_away_together(ablated, with_modules):
    loop = HOLDING_OUT.format(loader=LOADERS["workers"], around="iter", gradients=False)
    captured, (taken, _), _, _ = ablated(loop, "evaluation", "input")
    assert taken == [2, 2, 2] and captured.ablated == {"evaluation": 3, "input": 29}


def test_a_wrapper_that_asks_one_batch_ahead_trains_on_all_of_a_new_loader(ablated, with_modules):
    loop = HOLDING_OUT.format(loader=LOADERS["here"], around="ahead", gradients=False)
    loop = loop.replace("    for x, y in train:", "    for x, y in ahead(DataLoader(Points(), 4)):")
    captured, (taken, _), _, _ = ablated(AHEAD + loop, "evaluation")
    assert taken == [2, 2, 2] and captured.losses_L.size == 30


def test_an_evaluation_with_gradients_on_is_left_alone(ablated, with_modules):
    loop = HOLDING_OUT.format(loader=LOADERS["here"], around="iter", gradients=True)
    captured, (taken, _), _, _ = ablated(loop, "evaluation")
    assert taken == [10, 10, 10] and captured.ablated == {"evaluation": 0}


def test_a_step_that_calls_a_module_without_gradients_trains_on_every_batch(ablated, with_modules):
    body = LOOP.format(loader=LOADERS["here"]).replace(
        "        step(x, y)", "        with torch.no_grad():\n            model(x)\n        step(x, y)"
    )
    captured, (steps, _), _, _ = ablated(body, "evaluation")
    assert steps == [10, 10, 10] and captured.ablated == {"evaluation": 0}


CHANGING = """
def as_dict(samples):
    x, y = torch.utils.data.default_collate(samples)
    return {"x": x, "y": y}
for batch in DataLoader(Points(), 4, collate_fn=as_dict):
    x, y = batch.pop("x"), batch.pop("y")
    seen.append(x[:, 0].tolist())
    step(x, y)
    x += 1.0
"""


def test_what_the_training_changes_in_a_batch_is_as_before_in_the_next_one(ablated):
    _, (_, seen), _, _ = ablated(CHANGING, "input")
    assert seen == [[0.0, 1.0, 2.0, 3.0]] * 10


MAKER = """
made = []
def get_batch(split):
    made.append(split)
    x = torch.full((4, 8), float(len(made)))
    return x, torch.zeros(4, dtype=torch.long)
for number in range(40):
    x, y = get_batch("train")
    step(x, y)
    seen.append(x[0, 0].item())
with torch.no_grad():
    for number in range(5):
        seen.append(get_batch("train")[0][0, 0].item())
steps.append(len(made))
"""


def test_the_function_that_makes_the_batches_is_found_and_gives_one_of_them_again(ablated, with_modules):
    captured, ([made], seen), _, _ = ablated(MAKER, "input-maker")
    assert len(set(seen[10:40])) == 1 and len(set(seen[40:])) == 5  # without gradients it is left alone
    assert made + captured.ablated["input"] == 45 and captured.ablated["input"] >= 30


SAVING = """
for number in range(3):
    x, y = fetched(number)
    step(x[None], y[None])
    torch.save(model.state_dict(), "last.pt.tmp")
    os.replace("last.pt.tmp", "last.pt")
    with open("other.pt", "wb") as file:
        torch.save(model.state_dict(), file)
steps.append([os.path.getsize(name) for name in ("last.pt", "other.pt")])
"""


def test_checkpoints_are_not_written_but_their_names_are_there(ablated):
    captured, ([sizes], _), _, _ = ablated(SAVING, "checkpoint")
    assert sizes == [0, 0] and captured.ablated == {"checkpoint": 6}
    captured, ([sizes], _), _, _ = ablated(SAVING)
    assert min(sizes) > 500 and captured.ablated == {}


def test_a_checkpoint_outside_the_folder_of_the_trial_is_neither_made_nor_touched(ablated, tmp_path):
    there = tmp_path / "elsewhere"
    there.mkdir()
    (there / "old.pt").write_text("precious")
    body = "for name in ('old.pt', 'new.pt'):\n"
    body += f"    step(*(one[None] for one in fetched(1)))\n    torch.save(model.state_dict(), {str(there)!r} + '/' + name)\n"
    captured, _, _, _ = ablated(body, "checkpoint")
    assert captured.ablated == {"checkpoint": 2}
    assert [path.name for path in there.iterdir()] == ["old.pt"] and (there / "old.pt").read_text() == "precious"


WRITERS = """
from safetensors.torch import save_file
import torch.distributed.checkpoint as dcp
for number in range(2):
    step(*(one[None] for one in fetched(1)))
    save_file(model.state_dict(), "a.safetensors")
    dcp.save(model.state_dict(), checkpoint_id="sharded")
    steps.append([os.path.getsize("a.safetensors"), os.path.exists("sharded/.metadata")])
"""


def test_safetensors_and_sharded_checkpoints_are_not_written_either(ablated):
    pytest.importorskip("safetensors")
    captured, (told, _), _, _ = ablated(WRITERS, "checkpoint")
    assert told == [[0, False]] * 2 and captured.ablated == {"checkpoint": 4}
    captured, (told, _), _, _ = ablated(WRITERS)
    assert all(size > 100 and sharded for size, sharded in told)


TALK = """
import logging, sys
from tqdm import tqdm
sys.stdout = open("said", "w")
logging.basicConfig(stream=sys.stdout, level="INFO", format="%(message)s")
print("before")
for n in tqdm(range(4), file=sys.stdout, mininterval=0):
    step(torch.full((4, 8), float(n)), torch.tensor([0, 1, 2, 0]))
    print("printed", n)
    logging.info("logged %s", n)
sys.stdout.flush()
steps = open("said").read()
"""


def test_what_is_said_in_the_loop_is_said_by_nobody(ablated):
    captured, (said, _), _, _ = ablated(TALK, "logging")
    assert "before" in said and "printed" not in said and "logged" not in said
    assert captured.ablated["logging"] >= 2 * 4
    captured, (said, _), _, _ = ablated(TALK)
    assert said.count("printed ") == said.count("logged ") == 4 and captured.ablated == {}
