"""`dpfl-bench data`: what is there, fetching it, verifying it, and who gets what of it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.command import call
from helpers.federations import CONF, settings_of
from helpers.forks import Forks
from helpers.image_files import believe, write_images
from helpers.imported import loaded_by
from helpers.served import serving
from omegaconf import OmegaConf

from dpfl_bench.assembly.data import load_data
from dpfl_bench.data import download, show, verify

pytestmark = pytest.mark.one_in(3)


CONTENT = "".join(f"{1 + i % 2} {1 + i % 5}:1 {6 + i % 3}:0.5\n" for i in range(60)).encode()
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SHIPPED = {file.stem for file in (CONF / "dataset").glob("[!_]*.yaml")}


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of CONTENT; the connection drops in the middle of the first reply."""
    with serving({"/data": CONTENT}, monkeypatch) as made:
        made.drops = 1
        yield f"{made.url}/data"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder."""
    monkeypatch.setenv("DPFL_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def served(url: str, sha256: str = SHA256, expected: int = 60) -> list[str]:
    """Mushrooms as that server has them."""
    return [
        f"dataset.url={url}",
        f"dataset.sha256={sha256}",
        f"dataset.expected={expected}",
        "dataset.shape=[8]",
    ]


def real(*files: str) -> None:
    folder = Path(os.environ.get("DPFL_DATA_DIR", ""))
    if "DPFL_DATA_DIR" not in os.environ or not all((folder / file).exists() for file in files):
        pytest.skip(f"real data: set DPFL_DATA_DIR to a folder with {', '.join(files)}")


def one_line(err: str) -> str:
    assert err.startswith("dpfl-bench: ")
    assert err.count("\n") == 1, err
    return err


# list


def test_every_data_set_has_a_licence_and_a_source() -> None:
    listed = call("data", "list", "--json").json
    assert {entry["name"] for entry in listed} == SHIPPED
    assert not [entry["name"] for entry in listed if "not known" in (entry["licence"], entry["source"])]
    assert all(entry["licence"] and entry["source"] for entry in listed)


def test_list_of_an_empty_folder(root: Path) -> None:
    listed = {entry["name"]: entry for entry in call("data", "list", "--json").json}
    assert set(listed) == SHIPPED
    for name, entry in listed.items():
        needs_none = entry["get"] in ("generated", "bundled with scikit-learn")
        assert entry["state"] == ("ready" if needs_none else "missing"), name
        assert (entry["folder"] is None) == needs_none, name
        assert entry["bytes"] == 0
    assert listed["mnist"]["folder"] == str(root / "MNIST" / "raw")
    assert listed["mnist"]["records"] == 60000
    assert listed["synthetic_linear"]["records"] == 1000  # an interpolation
    assert {listed[name]["get"] for name in ("mnist", "a9a")} == {"data fetch"}
    assert listed["ixi"]["get"] == listed["messidor"]["get"] == "by hand, after an agreement"
    said = call("data", "list")
    assert said.code == 0
    assert said.err == ""
    assert f"data folder: {root} (DPFL_DATA_DIR)" in said.out
    assert all(f"\n{name} " in said.out for name in listed)


@pytest.mark.slow
def test_list_tells_partly_from_ready(root: Path) -> None:
    def state(name: str) -> tuple[str, list[str]]:
        found = next(entry for entry in call("data", "list", "--json").json if entry["name"] == name)
        return found["state"], found["missing"]

    (root / "libsvm").mkdir(parents=True)
    (root / "libsvm" / "a9a").write_bytes(CONTENT)
    (root / "libsvm" / "mushrooms").write_bytes(CONTENT)
    assert state("a9a") == ("partly", [str(root / "libsvm" / "a9a.t")])
    assert state("mushrooms") == ("ready", [])
    write_images("CIFAR10", root)
    kind, missing = state("cifar10")  # every file by name, but a few images
    assert (kind, missing[0].split(":")[0]) == ("partly", "records")
    (root / "cifar-10-batches-py" / "data_batch_5").unlink()
    assert state("cifar10") == ("partly", ["data_batch_5"])
    (root / "femnist" / "data" / "train").mkdir(parents=True)
    (root / "femnist" / "data" / "train" / "a.json").write_text("{}")
    assert state("femnist") == ("partly", ["test/*.json"])
    for part in ("T1", "label"):
        (root / "IXI" / "IXI_sample" / "IXI001-HH-1" / part).mkdir(parents=True)
    (root / "IXI" / "IXI_sample" / "IXI001-HH-1" / "T1" / "a.nii.gz").write_bytes(b"")
    assert state("ixi") == ("partly", ["IXI001-HH-1/label/*.nii.gz", "565 of 566 subjects"])
    said = call("data", "list").out
    assert "ixi: lacks IXI001-HH-1/label/*.nii.gz, 565 of 566 subjects" in said


def test_list_with_a_folder_of_ones_own(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "own" / "dataset"
    folder.mkdir(parents=True)
    shipped = (CONF / "dataset" / "mushrooms.yaml").read_text()
    mine = re.sub(r"licence: .*\n", "", shipped.replace("name: mushrooms", "name: toadstools"))
    (folder / "toadstools.yaml").write_text(mine)
    (folder / "foreign.yaml").write_text("_target_: my.load\nname: foreign\nrecords: ${elsewhere}\n")
    found = {entry["name"]: entry for entry in call("data", "list", "--json", "-cd", str(folder.parent)).json}
    assert set(found) == {*SHIPPED, "toadstools", "foreign"}
    assert found["toadstools"] | {"state": 0} == found["toadstools"] | {
        "state": 0, "folder": str(root / "libsvm"), "get": "data fetch", "licence": "not known",
        "records": 6499,
    }  # fmt: skip
    assert (found["foreign"]["state"], found["foreign"]["records"]) == ("unknown", None)
    (folder / "bad.yaml").write_text("a: [")
    assert call("data", "list", "-cd", str(folder.parent)).code == 2
    assert f"{folder / 'bad.yaml'}: expected YAML" in one_line(
        call("data", "list", "-cd", str(folder.parent)).err
    )
    assert "-cd /nowhere: expected a folder" in one_line(call("data", "list", "-cd", "/nowhere").err)


@pytest.mark.parametrize(
    "arguments",
    [["data", "list"], ["data", "list", "--json"], ["data", "--help"], ["data", "fetch", "--help"]],
)
def test_nothing_heavy_is_loaded(arguments: list[str]) -> None:
    loaded = loaded_by(f"from dpfl_bench.cli import main; main({arguments!r})")
    heavy = {
        "torch",
        "torchvision",
        "pandas",
        "matplotlib",
        "sklearn",
        "scipy",
        "hydra",
        "dp_accounting",
        "PIL",
        "nibabel",
    }
    assert not loaded & heavy


@pytest.mark.parametrize("name", ["femnist", "shakespeare", "reddit"])
def test_a_set_with_fewer_bytes_than_its_samples_take_is_partly_there(root: Path, name: str) -> None:
    """The smallest size of the whole set follows from what LEAF publishes: samples times
    numbers.
    """
    folder = root / name / "data"
    for part in ("train", "test"):
        (folder / part).mkdir(parents=True)
        (folder / part / "a.json").write_text("{}")
    (folder / "reddit_vocab.json").write_text("{}")
    module = import_module(f"dpfl_bench.data.{name}")
    node = OmegaConf.load(CONF / "dataset" / f"{name}.yaml")
    samples = module._POSTS if name == "reddit" else module._SAMPLES
    least = samples * int(np.prod(node["shape"]))

    def entry() -> dict[str, Any]:
        return next(entry for entry in call("data", "list", "--json").json if entry["name"] == name)

    (lacks,) = entry()["missing"]
    assert (entry()["state"], lacks.partition(":")[0]) == ("partly", "records")
    there = entry()["bytes"]
    with (folder / "train" / "a.json").open("r+b") as file:  # holes take no room on disk
        file.truncate(2 + least - there - 1)
    assert entry()["state"] == "partly"
    with (folder / "train" / "a.json").open("r+b") as file:
        file.truncate(2 + least - there)
    assert entry()["state"] == "ready"


def test_the_sizes_that_leaf_publishes_are_the_loaders() -> None:
    for name, files in {"femnist": (), "shakespeare": (), "reddit": ("reddit_vocab.json",)}.items():
        real(*(f"{name}/data/{file}" for file in ("train", "test", *files)))
        said = call("data", "verify", name, "--json")
        assert said.code == 1
        module = import_module(f"dpfl_bench.data.{name}")
        assert json.loads(said.out)["expected"] == getattr(
            module, "_POSTS" if name == "reddit" else "_SAMPLES"
        )


# fetch


def test_fetch_downloads_resumes_and_then_finds_it_there(root: Path, url: str) -> None:
    said = call("data", "fetch", "mushrooms", *served(url))
    file = root / "libsvm" / "mushrooms"
    assert said.code == 0, said.err
    assert said.out.startswith("mushrooms: fetched, whole, checksums ok\n")
    assert str(file) in said.out
    assert file.read_bytes() == CONTENT
    assert list(file.parent.iterdir()) == [file]
    again = call("data", "fetch", "mushrooms", *served("http://127.0.0.1:1/closed"))
    assert again.code == 0
    assert again.out.startswith("mushrooms: already there, whole, checksums ok\n")
    subset = call("data", "fetch", "mushrooms", *served(url, expected=8124), "--json").json
    assert (subset["subset"], subset["whole"], subset["done"]) == (
        "subset 60 of 8124",
        False,
        "already there",
    )


def test_fetch_of_the_wrong_bytes_keeps_nothing(root: Path, url: str) -> None:
    said = call("data", "fetch", "mushrooms", *served(url, sha256="0000"))
    assert said.code == 2
    assert said.out == ""
    assert f"sha256 {SHA256}, expected 0000: not kept" in one_line(said.err)
    assert not root.exists()


def test_fetch_offline_says_what_to_do(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "_PAUSES", (0.0,))
    for verb, *arguments in (["data", "fetch", "mushrooms"], ["run", "dataset=mushrooms"]):
        said = call(verb, *arguments, *served("http://127.0.0.1:1/closed"))
        assert said.code == 2
        steps = (
            f"go online and run `dpfl-bench data fetch mushrooms dataset.root={root}`, or put mushrooms into"
            f" {root / 'libsvm'} yourself"
        )
        assert steps in one_line(said.err)
    assert not root.exists()


@pytest.mark.slow
def test_two_processes_fetch_at_once(server: Forks, root: Path, url: str) -> None:
    words = ("data", "fetch", "mushrooms", *served(url), "--json")
    outs = [Path("one.json"), Path("other.json")]
    children = [server.lead(*words, out=out, err=out.with_suffix(".err")) for out in outs]
    assert [child.end() for child in children] == [0, 0]
    both = [json.loads(out.read_text()) for out in outs]
    assert [(said["whole"], said["verified"]) for said in both] == [(True, True)] * 2
    assert (root / "libsvm" / "mushrooms").read_bytes() == CONTENT
    assert len(list((root / "libsvm").iterdir())) == 1


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("ixi", "mendeley"),
        ("messidor", "agree to the terms"),
        ("femnist", "./preprocess.sh"),
        ("shakespeare", "./preprocess.sh"),
        ("reddit", "build_vocab.py"),
        ("libsvm", "dataset.path"),
    ],
)
def test_fetch_of_what_cannot_be_downloaded_prints_the_steps(root: Path, name: str, steps: str) -> None:
    said = call("data", "fetch", name)
    assert (said.code, said.out) == (2, "")
    assert steps in one_line(said.err)
    assert str(root) in said.err


@pytest.mark.parametrize("name", ["digits", "synthetic_linear"])
def test_fetch_of_what_needs_no_files(name: str) -> None:
    said = call("data", "fetch", name)
    assert said.code == 0
    assert (
        f"{name}: {'generated' if name[0] == 's' else 'bundled with scikit-learn'}, whole, no files to verify"
        in said.out
    )


def test_fetch_allows_what_the_settings_forbid(root: Path) -> None:
    """dataset.download=false is for runs."""
    asked = []

    def load(dataset: object) -> None:
        asked.append(dataset)
        raise verify.DataError("offline")

    with pytest.raises(verify.DataError):
        verify.fetched("mnist", {**settings_of("dataset=mnist").dataset, "download": False}, load)  # type: ignore[arg-type]
    assert asked[0]["download"] is True  # type: ignore[index]


def test_fetch_prints_the_rest_of_a_subset() -> None:
    real("shakespeare/data/train", "shakespeare/data/test")
    said = call("data", "fetch", "shakespeare")
    assert said.code == 0
    assert "already there, subset 48035 of 4226158, not verified" in said.out
    assert "the rest: by LEAF's scripts, https://github.com/TalwalkarLab/leaf" in said.out


# verify


def test_verify_whole_and_verified(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = write_images("CIFAR10", root)
    believe("CIFAR10", folder, monkeypatch)
    said = call("data", "verify", "cifar10", "--json")
    report = json.loads(said.out)
    assert said.code == 1  # the made-up files verify, but are a few images
    assert (report["verified"], report["whole"], report["subset"]) == (True, False, "subset 33 of 60000")
    assert report["parts"][0] == {"file": "data_batch_1", "verdict": "checksum ok"}
    assert (report["shape"], report["dtype"], report["classes"]) == ([3, 32, 32], "uint8", 10)


def test_verify_of_a_mismatch_names_the_part_and_opens_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = write_images("CIFAR10", root)
    believe("CIFAR10", folder, monkeypatch)
    (folder / "data_batch_2").write_bytes(b"something else")
    (folder / "data_batch_3").unlink()
    said = call("data", "verify", "cifar10")
    assert said.code == 2
    for part in (
        "data_batch_1: checksum ok",
        "data_batch_2: checksum mismatch",
        "data_batch_3: missing",
        "test_batch: checksum ok",
    ):
        assert f"\n  {part}\n" in said.out
    assert "data_batch_2; missing: data_batch_3" in one_line(said.err)
    report = json.loads(call("data", "verify", "cifar10", "--json").out)
    assert (report["whole"], report["verified"], report["code"]) == (False, False, 2)
    assert "data_batch_2" in report["error"]


def test_verify_taking_what_is_there(root: Path) -> None:
    folder, _ = write_images("MNIST", root)
    (folder / "t10k-images-idx3-ubyte").unlink()
    said = call("data", "verify", "mnist", "dataset.verify=false")
    assert said.code == 1
    assert said.out.startswith("mnist: subset 3 of 70000, not verified\n")
    assert "  train-images-idx3-ubyte: not verified\n" in said.out
    assert "  t10k-images-idx3-ubyte: missing\n" in said.out


def test_verify_of_emnist_without_the_archive_that_has_its_checksums(root: Path) -> None:
    folder, _ = write_images("EMNIST_balanced", root)
    (folder / "gzip.zip").unlink()
    said = call("data", "verify", "emnist_balanced")
    assert said.code == 2
    assert "  emnist-balanced-train-images-idx3-ubyte: not verified\n" in said.out
    assert "  gzip.zip: missing\n" in said.out
    (folder / "gzip.zip").write_bytes(b"no zip")
    assert "  gzip.zip: checksum mismatch\n" in call("data", "verify", "emnist_balanced").out


def test_verify_never_downloads(root: Path, url: str) -> None:
    said = call("data", "verify", "mushrooms", *served(url))
    assert said.code == 2
    assert f"{root / 'libsvm' / 'mushrooms'}: missing" in said.out
    assert f"run `dpfl-bench data fetch mushrooms dataset.root={root}`" in one_line(said.err)
    said = call("data", "verify", "a9a")
    assert f"a9a: no file {root}/libsvm/a9a, {root}/libsvm/a9a.t: go online" in one_line(said.err)
    assert f"or put a9a and a9a.t into {root}/libsvm" in said.err
    said = call("data", "verify", "mnist")
    assert said.code == 2
    assert f"run `dpfl-bench data fetch mnist dataset.root={root}`" in one_line(said.err)
    assert not root.exists()


@pytest.mark.slow
def test_verify_of_libsvm_files(root: Path) -> None:
    file = root / "libsvm" / "mushrooms"
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENT)
    whole = call("data", "verify", "mushrooms", *served("unasked"))
    assert whole.code == 0, whole.err
    assert whole.out.startswith("mushrooms: whole, checksums ok\n")
    assert "60 records (60 training, 0 test) of 60" in whole.out
    assert call("data", "verify", "mushrooms", *served("unasked", expected=61)).code == 1
    unverified = call("data", "verify", "mushrooms", *served("unasked"), "dataset.verify=false")
    assert (unverified.code, unverified.out.splitlines()[0]) == (1, "mushrooms: whole, not verified")
    bad = call("data", "verify", "mushrooms", *served("unasked", sha256="0000"))
    assert bad.code == 2
    assert f"{file}: checksum mismatch" in bad.out
    assert f"sha256 {SHA256}, expected 0000" in one_line(bad.err)
    own = call("data", "verify", "libsvm", f"dataset.path={file}")
    assert own.code == 1
    assert "how many the whole set has is not known, not verified" in own.out


@pytest.mark.parametrize("name", ["breast_cancer", "quadratics"])
def test_verify_of_what_needs_no_files(name: str) -> None:
    said = call("data", "verify", name)
    assert said.code == 0, said.err
    assert said.out.startswith(f"{name}: whole, no files to verify\n")


def test_many_files_with_one_verdict_are_one_line() -> None:
    parts = [{"file": f"f{i}", "verdict": "not verified"} for i in range(9)] + [
        {"file": "g", "verdict": "missing"}
    ]
    assert verify._lines(parts) == ["  g: missing", "  9 files: not verified"]


@pytest.mark.parametrize(
    ("name", "files"),
    {"mnist": "MNIST/raw", "fashion_mnist": "FashionMNIST/raw", "phishing": "libsvm/phishing"}.items(),
)
def test_verify_of_whole_real_data(name: str, files: str) -> None:
    real(files)
    said = call("data", "verify", name)
    assert said.code == 0, said.err
    assert said.out.startswith(f"{name}: whole, checksums ok\n")
    assert (
        next(entry for entry in call("data", "list", "--json").json if entry["name"] == name)["state"]
        == "ready"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "folder", "found"),
    [
        ("ixi", "IXI/IXI_sample", "subset 12 of 566"),
        ("reddit", "reddit/data", "subset 6170 of 56587343 posts"),
    ],
)
def test_verify_of_real_subsets(name: str, folder: str, found: str) -> None:
    real(folder)
    said = call("data", "verify", name)
    assert said.code == 1
    assert said.out.startswith(f"{name}: {found}, not verified\n")
    cut = {
        "reddit": "23959 records (20761 training, 3198 test), cut from 6170 posts of 56587343,",
        "ixi": "12 records (12 training, 0 test) of 566,",
    }
    assert f"\n  {cut[name]}" in said.out


# show


@pytest.mark.slow
def test_show_is_what_a_run_would_deal(tmp_path: Path) -> None:
    overrides = ("dataset=digits", "partition=dirichlet", "clients=50")
    shown = call("data", "show", *overrides, "--json").json
    data = load_data(settings_of(*overrides))
    assert shown["hash"] == data.partition_hash
    assert shown["first_sizes"] == [len(part) for part in data.parts[:10]]
    sizes = [len(part) for part in data.parts]
    assert shown["sizes"] == {"min": min(sizes), "median": float(np.median(sizes)), "max": max(sizes)}
    assert shown["first_labels"][3] == [
        int((data.records.train_y[data.parts[3]] == k).sum()) for k in range(10)
    ]
    counts = [int((data.records.train_y == label).sum()) for label in range(10)]
    assert shown["constant"]["label"] == counts.index(max(counts))
    wrong = sum(int(label) != shown["constant"]["label"] for label in data.records.test_y)
    assert shown["constant"]["test_error"] == pytest.approx(wrong / len(data.records.test_y))
    assert (shown["dealt"], shown["distinct"], shown["whole"]) == (1438, 1438, True)
    assert (tmp_path / shown["table"]).read_text() == data.partition_csv()
    assert (tmp_path / "outputs" / "data" / "digits_dirichlet.png").read_bytes()[:4] == b"\x89PNG"


def test_show_as_text(tmp_path: Path) -> None:
    said = call(
        "data",
        "show",
        "dataset=digits",
        "partition=overlap",
        "clients=10",
        "--to",
        str(tmp_path / "new" / "picture.svg"),
    )
    assert said.code == 0, said.err
    assert said.err == ""
    assert said.out.startswith(
        "digits (whole): 1438 training and 359 test records; scikit-learn: load_digits\n"
    )
    assert "partition overlap (seed=0, percent=10.0): 10 clients, hash " in said.out
    assert "records per client: min 143, median 143, max 143; the first: 143, 143" in said.out
    assert "training records are held by a client, 1430 in all hands" in said.out
    assert "  client   0  1  2  3  4  5  6  7  8  9\n" in said.out
    assert "who always answers 1 has a test error of 0.8997\n" in said.out
    assert (tmp_path / "new" / "picture.svg").is_file()
    assert (tmp_path / "new" / "picture.csv").is_file()


def test_show_without_labels() -> None:
    said = call("data", "show", "dataset=synthetic_linear", "dataset.clients=50", "clients=50")
    assert said.code == 0, said.err
    assert "labels" not in said.out
    assert "always answers" not in said.out
    assert (
        call("data", "show", "dataset=synthetic_linear", "dataset.clients=5", "clients=5", "--json").json[
            "first_labels"
        ]
        is None
    )


def test_show_of_many_classes(root: Path) -> None:
    write_images("EMNIST_balanced", root)
    said = call(
        "data", "show", "dataset=emnist_balanced", "dataset.verify=false", "partition=iid", "clients=2"
    )
    assert said.code == 0, said.err
    assert "emnist_balanced (subset 7 of 131600): 3 training and 4 test records" in said.out
    assert "       1  1 classes: " in said.out
    assert show._most([0, 3, 0, 4, 1, 1, 1, 2]) == "6 classes, mostly 3 (4), 1 (3), 7 (2), 4 (1), 5 (1)"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["data"], "data: expected data list, fetch, verify or show"),
        (["data", "lits"], "data lits: expected data list"),
        (["data", "fetch"], "data fetch: expected the name of a data set first"),
        (
            ["data", "verify", "dataset.root=x"],
            "data verify dataset.root=x: expected the name of a data set first",
        ),
        (["data", "fetch", "nothing"], "dataset=nothing: no such choice"),
        (["data", "verify", "digits", "dataset.roots=x"], "roots"),
        (["data", "show", "--to", "picture.jpg"], "--to picture.jpg: expected a file name that ends in .png"),
        (
            ["data", "show", "--to", "/proc/nothing/picture.png"],
            "/proc/nothing/picture.png: cannot be written",
        ),
        (["data", "show", "partition=natural"], "this data set has no natural clients"),
        (["data", "show", "clients=100000", "partition=iid"], "use fewer clients"),
    ],
)
def test_errors_are_one_line(arguments: list[str], said: str) -> None:
    found = call(*arguments)
    assert (found.code, found.out) == (2, "")
    assert said in one_line(found.err)


@pytest.mark.slow
def test_json_alone_goes_to_stdout() -> None:
    """In a process of its own, where libraries print too."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from dpfl_bench.cli import main; main(['data', 'verify', 'digits', '--json'])",
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["whole"] is True
    assert done.stderr == ""
