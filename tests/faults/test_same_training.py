"""With the recorder and without: the same losses, parameters and batches, bit for bit, and the same surroundings."""

from __future__ import annotations

import sys

import pytest

# Each training prints losses, and digests of its batches and final parameters; TRAININGS chooses which run.
HEAD = """
import contextlib, copy, hashlib, io, os, random, sys
import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

torch.set_num_threads(1)
losses, batches = [], hashlib.sha256()

def seed():
    torch.manual_seed(0)
    numpy.random.seed(0)
    random.seed(0)

def model(inside=8):
    return nn.Sequential(nn.Linear(inside, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 1))

def see(*tensors):
    for tensor in tensors:
        batches.update(tensor.detach().contiguous().numpy().tobytes())

def step(net, optimizer, x):
    see(x)
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item().hex())

class Augmented(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return torch.full((8,), float(i)) + torch.rand(8) + random.random() + float(numpy.random.rand())

class Stream(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        for i in range(info.id if info else 0, 48, info.num_workers if info else 1):
            yield torch.full((8,), float(i)) + torch.rand(8)

def over(loader, epochs=3):
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for epoch in range(epochs):
        for x in loader:
            step(net, optimizer, x)
    return net
"""
TRAININGS = {
    "plain": """
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(20):
            step(net, optimizer, torch.randn(16, 8))
        return net
    """,
    "loader": "return over(DataLoader(Augmented(), batch_size=16, shuffle=True))",
    "workers": "return over(DataLoader(Augmented(), batch_size=16, shuffle=True, num_workers=2))",
    "persistent": """
        return over(DataLoader(Augmented(), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True))
    """,
    "stream": "return over(DataLoader(Stream(), batch_size=8, num_workers=2))",
    "spawn": """
        loader = DataLoader(Augmented(), batch_size=16, num_workers=1, multiprocessing_context="spawn")
        return over(loader, 2)
    """,
    "forkserver": """
        loader = DataLoader(Augmented(), batch_size=16, num_workers=1, multiprocessing_context="forkserver")
        return over(loader, 1)
    """,
    "get_batch": """
        data = numpy.arange(4000, dtype=numpy.int64) % 97
        net = nn.Sequential(nn.Embedding(97, 16), nn.Flatten(), nn.Linear(128, 97))
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        def get_batch():
            at = torch.randint(len(data) - 9, (12,))
            x = torch.stack([torch.from_numpy(data[i : i + 8]) for i in at])
            return x, torch.stack([torch.tensor(data[i + 8]) for i in at])
        x, y = get_batch()
        for _ in range(15):
            see(x, y)
            loss = nn.functional.cross_entropy(net(x), y)
            x, y = get_batch()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item().hex())
        return net
    """,
    "gan": """
        maker, judge = model(), model(1)
        of_maker = torch.optim.Adam(maker.parameters(), lr=0.01)
        of_judge = torch.optim.Adam(judge.parameters(), lr=0.01)
        for _ in range(15):
            made = maker(torch.randn(16, 8))
            loss = judge(made.detach()).mean() - judge(torch.randn(16, 1)).mean()
            of_judge.zero_grad(); loss.backward(); of_judge.step()
            loss = -judge(made).mean()
            of_maker.zero_grad(); loss.backward(); of_maker.step()
            losses.append(loss.item().hex())
        return nn.ModuleList([maker, judge])
    """,
    "accumulate": """
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for micro in range(40):
            loss = net(torch.randn(16, 8)).square().mean() / 8
            loss.backward()
            losses.append(loss.item().hex())
            if micro % 8 == 7:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step(); optimizer.zero_grad()
        return net
    """,
    "amp": """
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        for _ in range(15):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = net(torch.randn(16, 8)).float().square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer); scaler.update()
            losses.append(loss.item().hex())
        return net
    """,
    "lbfgs": """
        net = nn.Linear(8, 1)
        optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=4)
        x = torch.randn(64, 8)
        def closure():
            optimizer.zero_grad()
            loss = (net(x) - 1).square().mean()
            loss.backward()
            return loss
        for _ in range(8):
            losses.append(optimizer.step(closure).item().hex())
        return net
    """,
    "teacher": """
        net = model()
        teacher, swa = copy.deepcopy(net), torch.optim.swa_utils.AveragedModel(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 15)
        for _ in range(15):
            x = torch.randn(16, 8)
            with torch.no_grad():
                wanted = teacher(x)
            loss = (net(x) - wanted).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step(); schedule.step()
            swa.update_parameters(net)
            with torch.no_grad():
                for ours, theirs in zip(teacher.parameters(), net.parameters()):
                    ours.lerp_(theirs, 0.1)
            losses.append(loss.item().hex())
        return nn.ModuleList([net, teacher, swa])
    """,
    "by hand": """
        w = torch.randn(8, 1, requires_grad=True)
        for _ in range(15):
            loss = (torch.randn(16, 8) @ w).square().mean()
            loss.backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
                w.grad = None
            losses.append(loss.item().hex())
        return nn.ParameterList([nn.Parameter(w)])
    """,
    "compiled": """
        net = model()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        compiled = torch.compile(net, backend="eager")
        for number in range(15):
            step(compiled, optimizer, torch.randn(16 if number % 5 else 8, 8))
        return net
    """,
    "evaluation and saves": """
        net = model()
        optimizer = torch.optim.RMSprop(net.parameters(), lr=0.01)
        for epoch in range(3):
            for x in DataLoader(Augmented(), batch_size=16, shuffle=True):
                step(net, optimizer, x)
            net.eval()
            with torch.no_grad():
                for x in DataLoader(Augmented(), batch_size=32):
                    losses.append(net(x).mean().item().hex())
            net.train()
            file = io.BytesIO()
            torch.save(net.state_dict(), file)
            losses.append(str(len(file.getvalue())))
        return net
    """,
    "an error caught": """
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        def closure():
            if number % 4 == 1:
                raise RuntimeError("out of memory")
            loss = net(torch.randn(16, 8)).square().mean()
            optimizer.zero_grad(); loss.backward()
            return loss
        for number in range(16):
            with contextlib.suppress(RuntimeError):
                losses.append(optimizer.step(closure).item().hex())
        return net
    """,
}
TAIL = """
if __name__ == "__main__":
    for name in sys.argv[1:]:
        seed()
        losses.clear()
        batches = hashlib.sha256()
        net = globals()["train_" + name.replace(" ", "_")]()
        parameters = b"".join(p.detach().numpy().tobytes() for p in net.parameters())
        print(name, *losses, batches.hexdigest(), hashlib.sha256(parameters).hexdigest(), torch.rand(1).item().hex(),
              random.random().hex(), float(numpy.random.rand()).hex())
"""


def script() -> str:
    import textwrap

    functions = [
        f"def train_{name.replace(' ', '_')}():\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
        for name, body in TRAININGS.items()
    ]
    return "\n".join([HEAD, *functions, TAIL])


def lines_of(bench, *names: str) -> tuple[list[str], list[str], object]:
    bench.write(script())
    plain = bench.plain(sys.executable, "train.py", *names)
    assert plain.returncode == 0, plain.stderr
    left = bench.watched("train.py", *names)
    assert left.code == 0, left.err
    return plain.stdout.splitlines(), left.out.splitlines(), left


SLOW = ("spawn", "forkserver", "persistent", "stream", "compiled")  # processes to start, a compiler to import


def test_trainings_of_many_kinds_are_the_same_bit_for_bit(bench):
    names = [name for name in TRAININGS if name not in SLOW]
    plain, recorded, left = lines_of(bench, *names)
    assert recorded == plain
    assert [line.split()[0] for line in plain] == [name.split()[0] for name in names]
    assert "switched itself off" not in left.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("plain", 20), ("loader", 12), ("workers", 12), ("persistent", 12), ("stream", 18), ("spawn", 8),
        ("forkserver", 4), ("get_batch", 15), ("gan", 15), ("accumulate", 5), ("amp", 15), ("lbfgs", 8),
        ("teacher", 15), ("by hand", 12), ("compiled", 15), ("evaluation and saves", 12), ("an error caught", 12),
    ],
)  # fmt: skip
def test_a_training_is_the_same_bit_for_bit_and_its_steps_are_counted(bench, name, steps):
    plain, recorded, left = lines_of(bench, name)
    assert recorded == plain
    assert left.steps == steps
    assert "switched itself off" not in left.err
    assert sum(left.ledger().values()) == left.report["run"]["rank_wall_ns"][0]


FRAMEWORKS = {
    "transformers": """
        import torch, transformers
        from transformers import Trainer, TrainerCallback, TrainingArguments

        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 64
            def __getitem__(self, i):
                return {"x": torch.randn(8), "labels": torch.tensor(float(i % 2))}

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(8, 1)
            def forward(self, x, labels=None):
                out = self.layer(x).squeeze(-1)
                return {"loss": (out - labels).square().mean(), "logits": out}

        class Tell(TrainerCallback):
            def on_log(self, args, state, control, logs=None, **rest):
                print("told", [logs.get(name) for name in ("loss", "grad_norm", "eval_loss")], flush=True)

        if __name__ == "__main__":
            torch.set_num_threads(1)
            transformers.set_seed(0)
            net = Net()
            arguments = TrainingArguments(
                "saved", num_train_epochs=3, per_device_train_batch_size=8, logging_steps=1, report_to=[],
                eval_strategy="epoch", save_strategy="epoch", dataloader_num_workers=2, disable_tqdm=True,
            )
            Trainer(net, arguments, train_dataset=Data(), eval_dataset=Data(), callbacks=[Tell()]).train()
            print("told", [p.tolist() for p in net.parameters()])
    """,
    "lightning": """
        import lightning, torch
        from torch.utils.data import DataLoader

        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 64
            def __getitem__(self, i):
                return torch.randn(8)

        class Net(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(8, 1)
            def training_step(self, batch, number):
                loss = self.layer(batch + torch.rand_like(batch)).square().mean()
                print("told", loss.item().hex())
                return loss
            def validation_step(self, batch, number):
                print("told", self.layer(batch).mean().item().hex())
            def configure_optimizers(self):
                return torch.optim.AdamW(self.parameters(), lr=0.01)

        if __name__ == "__main__":
            torch.set_num_threads(1)
            lightning.seed_everything(0)
            net = Net()
            trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_progress_bar=False)
            train = DataLoader(Data(), batch_size=8, num_workers=2, shuffle=True)
            trainer.fit(net, train, DataLoader(Data(), batch_size=16))
            print("told", [p.tolist() for p in net.parameters()])
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_frameworks_training_is_the_same_bit_for_bit(bench, name):
    pytest.importorskip(name)
    bench.write(FRAMEWORKS[name])
    plain = bench.plain(sys.executable, "train.py")
    assert plain.returncode == 0, plain.stderr
    left = bench.watched("train.py")
    assert (left.code, left.steps) == (0, 24)

    def told(out: str) -> list[str]:
        return [line for line in out.splitlines() if line.startswith("told")]

    assert told(left.out) == told(plain.stdout)
    assert len(told(plain.stdout)) > 24
    assert "switched itself off" not in left.err


SURROUNDINGS = """
import json, os, sys
told = {
    "name": __name__, "file": __file__, "argv": sys.argv, "cwd": os.getcwd(), "path": sys.path,
    "main": sys.modules["__main__"].__dict__["__name__"], "flags": str(sys.flags),
    "stdin": sys.stdin.read(), "stdout": os.readlink("/proc/self/fd/1").split(":")[0],
    "customised": os.environ.get("CUSTOMISED"), "user": os.environ.get("USER_CUSTOMISED"),
    "ours": [name for name in sys.modules if name.startswith("unstall") and "torch" not in sys.modules],
    "pythonpath": [part for part in os.environ.get("PYTHONPATH", "").split(":") if "unstall" not in part],
    "environment": sorted(set(os.environ) - {"PYTHONPATH", "UNSTALL_RECORDING", "LC_CTYPE"}),
    "fds": sorted(os.listdir("/proc/self/fd")),
    "umask": os.umask(0o22), "argv0": open("/proc/self/cmdline").read().split("\\0"),
}
print(json.dumps(told, indent=1))
"""


def test_argv_main_path_stdin_and_files_are_the_trainings_own(bench):
    (bench.folder / "hidden").mkdir()
    bench.write("import os; os.environ['CUSTOMISED'] = '1'\n", "hidden/sitecustomize.py")
    bench.write("import os; os.environ['USER_CUSTOMISED'] = '1'\n", "hidden/usercustomize.py")
    bench.write(SURROUNDINGS)
    given = {"PYTHONPATH": str(bench.folder / "hidden")}
    plain = bench.plain(sys.executable, "train.py", "--flag", "a b", env=given, input="typed\n")
    assert plain.returncode == 0, plain.stderr
    left = bench.watched(sys.executable, "train.py", "--flag", "a b", env=given, input="typed\n")
    assert left.out == plain.stdout
    assert '"customised": "1"' in plain.stdout


@pytest.mark.slow
def test_children_of_every_kind_work_as_without_us(bench):
    bench.write("""
        import multiprocessing, subprocess, sys
        import torch
        from torch.utils.data import DataLoader, Dataset

        def double(x):
            return 2 * x

        def train(seed, queue):
            torch.manual_seed(seed)
            net = torch.nn.Linear(8, 1)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(12):
                loss = net(torch.randn(16, 8)).square().mean()
                optimizer.zero_grad(); loss.backward(); optimizer.step()
            queue.put(loss.item().hex())

        class Pooled(Dataset):
            def __init__(self):
                with multiprocessing.Pool(2) as pool:
                    self.values = pool.map(double, range(32))
            def __len__(self):
                return 32
            def __getitem__(self, i):
                return torch.tensor([float(self.values[i])] * 8)

        if __name__ == "__main__":
            for method in ("fork", "spawn", "forkserver"):
                context = multiprocessing.get_context(method)
                queue = context.Queue()
                child = context.Process(target=train, args=(1, queue))
                child.start()
                print(method, queue.get())
                child.join()
                print(child.exitcode)
            print([x.sum().item() for x in DataLoader(Pooled(), batch_size=8, num_workers=2)])
            other = [sys.executable, "-c", "import torch, sys; print(sys.argv, sys.path[0] == '')", "x"]
            print(subprocess.run(other, capture_output=True, text=True).stdout)
            print(subprocess.run([sys.executable, "-I", "-c", "print(1)"], capture_output=True, text=True))
    """)
    plain = bench.plain(sys.executable, "train.py")
    assert plain.returncode == 0, plain.stderr
    left = bench.watched("train.py")
    assert left.out == plain.stdout
    assert (left.code, left.steps) == (0, 12)
    assert "2 more processes trained" in left.warnings


@pytest.mark.slow
def test_modules_seen_by_the_recorder_are_traced_by_fx_as_before(bench):
    bench.write("""
        import torch
        net = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(10):
            net(torch.randn(4, 8)).mean().backward()
            optimizer.step()
        print(torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())).code)
    """)
    assert bench.watched("train.py").out == bench.plain(sys.executable, "train.py").stdout


@pytest.mark.slow
def test_torch_looked_up_before_its_import_is_recorded_all_the_same(bench):
    bench.write("import importlib.util\nassert importlib.util.find_spec('torch')\n" + script())
    assert bench.watched("train.py", "plain").steps == 20
