"""Which line opens the same file for each sample: told from the text of its function."""

import pytest

from unstall.accounts.opening import opened_again

HEAD = """\
import csv, gzip, itertools, json, os, pickle, random, sqlite3, zipfile
import numpy as np
import torch
from pathlib import Path
from zipfile import ZipFile
from PIL import Image
import h5py
TABLE = "rows.csv"
class Rows:
    def __init__(self, path):
        self.path = path
        self.first = np.load(path)  # silent
"""
AGAIN = {
    "with h5py.File(self.path, 'r') as f:  #!\n    return f['x'][i]  # silent": "h5py.File(self.path, 'r')",
    "return np.load(self.path)['x'][i]  #!": "np.load(self.path)",
    "x = np.load(os.path.join(self.root, 'x.npy'), mmap_mode='r')  #!\nreturn x[i]  # silent": "np.load(",
    "path = Path(self.root) / 'all.json'\nwith open(path) as f:  #!\n    rows = json.load(f)  #!\nreturn rows[i]": "",
    "db = sqlite3.connect(self.path)  #!\nx = db.execute('q', (i,)).fetchone()  # silent\ndb.close()  #!": "sqlite3.c",
    "with open(TABLE) as f:  #!\n    for n, row in enumerate(csv.reader(f)):  #!\n        if n == i:  #!\n            return 1": "",
    "with open(self.path) as f:  #!\n    return next(itertools.islice(f, i, None))  #!": "open(self.path)",
    "with ZipFile(self.path) as z, z.open(self.names[i]) as f:  #!\n    return Image.open(f).convert('L')  # silent": "Zip",
    "f = gzip.open(f'{self.root}/all.gz')  #!\nf.seek(self.at[i])  # silent\nreturn f.read(40)  # silent": "gzip.open(",
    "x = np.memmap(self.shards[i // 1000], mode='r')  #!\nreturn x[i % 1000]": "np.memmap(",
    "return json.loads(self.path.read_text())[i]  #!": "self.path.read_text()",
    "x = np.load(\n    self.path,  #!\n    mmap_mode='r',\n)\nreturn x[i]": "np.load(",
}
ANOTHER = (
    "return Image.open(self.files[i]).convert('RGB')",
    "path = self.files[i]\nwith open(path, 'rb') as f:\n    return pickle.load(f)",
    "return torch.load(os.path.join(self.root, f'{i}.pt'))",
    "path, row = self.index[i]\nwith h5py.File(path) as f:\n    return f['x'][row]",
    "for path in self.views:\n    x = np.load(path)\nreturn x",
    "return np.load(random.choice(self.files))",
    "return np.load(self.path_of(i))",
    "name = 'a'\nname += str(i)\nreturn np.load(name)",
    "self.file = self.files[i]\nreturn np.load(self.file)",
    "return self.files[i].read_bytes()",
    "return self.stream.open(self.names[i]).read()",
)


def write(tmp_path, body, head="    def __getitem__(self, i):\n"):
    source = HEAD + head + "".join(f"        {line}\n" for line in body.splitlines())
    file = tmp_path / "rows.py"
    file.write_text(source)
    return str(file), source.splitlines()


@pytest.mark.parametrize("body", AGAIN)
def test_a_name_that_does_not_depend_on_the_sample_is_the_same_file(tmp_path, body):
    file, lines = write(tmp_path, body)
    for n, line in enumerate(lines, 1):
        if line.endswith("#!"):
            assert opened_again(file, n).startswith(AGAIN[body] or ("open(", "json.load(f)")), line
        elif line.endswith("# silent"):
            assert not opened_again(file, n), line


@pytest.mark.parametrize("body", ANOTHER)
def test_a_file_for_each_sample_is_not_the_same(tmp_path, body):
    file, lines = write(tmp_path, body)
    assert not [line for n, line in enumerate(lines, 1) if opened_again(file, n)]


@pytest.mark.parametrize(
    "head",
    [
        "    def __iter__(self):\n",
        "    @functools.lru_cache\n    def table(self):\n",
        "    def rows(self):\n        yield 1\n",
    ],
)
def test_what_is_opened_for_many_samples_is_left_alone(tmp_path, head):
    file, lines = write(tmp_path, "return np.load(self.path)", head)
    assert not opened_again(file, len(lines))


def test_a_file_that_cannot_be_read_or_parsed_tells_nothing(tmp_path):
    assert opened_again(str(tmp_path / "gone.py"), 3) == ""
    (tmp_path / "bad.py").write_text("def f(:\n")
    assert opened_again(str(tmp_path / "bad.py"), 1) == ""
