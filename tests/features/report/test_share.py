"""`lmsweep report --share`: what it writes can be read anywhere, and names no machine, no person and no folder."""

import functools
import json
import shutil
import signal
import threading
import time
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.dataset
import pytest
import yaml

import lmsweep
from lmsweep.analysis.data.open_store import open_store
from lmsweep.orchestrator.features.report.sharing.allowed import Allowed, scrub_text, shared_error
from lmsweep.trials.spec.config import RequestError
from tests.support.command import ROOT, answer_here, lmsweep_here, start
from tests.support.made_up_results import H200, Attempts, config

STORE, TABLES = (ROOT / "tests" / "support" / "stores" / name for name in ("cpu", "residuals"))
HOST, PERSON = "gpu-node-17.lab.example.org", "annabel"
ERROR = (
    f"/home/{PERSON}/research/mine/flash.py:12: ValueError: no\nTraceback (most recent call last):\n"
    f'  File "/home/{PERSON}/my venv/lib/x.py", line 3, in f\nOSError: {HOST} and gpu-node-17 of {PERSON} at '
    f"C:\\Users\\{PERSON}\\data.bin or /mnt/nfs/{PERSON}/set.bin; see https://pytorch.org/docs/stable/x.html"
)


SECRETS = {
    "an IP address": "10.12.13.14",
    "an IPv6 address": "fe80::7a1c:22ff:fe3b:9d01",
    "a password in a URL": "https://anna:hunter22@registry.corp.example/simple",
    "a token": "token=hf_AbCdEfGhIjKlMnOpQrStUvWx",
    "a key of a cloud": "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG",
    "a bucket": "s3://acme-unreleased-model/runs",
    "a path after a colon": "file:/srv/acme-unreleased/weights.bin",
    "a path with spaces": "/data/Jane Quux/model dir/x.bin",
    "a mail address": "jane.quux@acme-corp.example",
    "a domain": "login.acme-corp.example",
    "a host": "dgx-a100-rack7",
    "a Windows path": r"C:\\Users\\jquux\\model.bin",
    "a share of Windows": r"\\\\fileserver7\\projects\\x.bin",
    "environment variables": "environ({'WANDB_API_KEY': '0123456789abcdef', 'HOSTNAME': 'pod-7f9c'})",
    "JSON with keys": '{"api_key": "sk-ABCDEF0123456789", "org": "acme-corp"}',
    "base64": "QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
    "a user name that is not ASCII": "/home/jürgën/größe.bin",
    "a remote of git": "git@git.acme-corp.example:secret/llm-next.git",
    "a container": "docker://sha256:9f86d081884c7d659a2feaa0c55ad015",
    "a process and its user": "pid=3141 user=jquux uid=50123",
    "a card number": "4111111111111111222",
    "an uncommon word": "Zarathustra",
    "a socket": "tcp://192.168.7.9:29500",
    "a key file": "-----BEGIN-OPENSSH-PRIVATE-KEY-----b3BlbnNzaA",
}
OWN = "lmsweep.trials.code.traceback_text.CodeError"


def texts_with(secret: str) -> dict[str, str]:
    """Errors that hold it -> what is shared of them."""
    trace = f'Traceback (most recent call last):\n  File "/opt/{secret}/mine/x.py", line 3, in f\n    raise it\n'
    return {
        f"mine/x.py:3: ValueError: {secret}\n{trace}ValueError: {secret}": "x.py:3: ValueError",
        f"/opt/{secret}/x.py:3: KeyError: {secret}\n{trace}KeyError: {secret}": "x.py:3: KeyError",
        f"{trace}mine.errors.StepError: {secret}": "x.py:3: StepError",
        f"x.py:3: exited with code 1 in f: {secret}\n{trace}SystemExit: {secret}": "x.py:3: SystemExit",
        f"x.py:3: forward returned {secret}\n{trace}{OWN}: x.py:3: {secret}": "x.py:3: forward returned [...]",
        f"its process was ended by SIGKILL\n{secret}": "its process was ended by SIGKILL",
        f"attention needs a GPU of {secret}": "attention needs a GPU of [...]",
    }


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> Attempts:
    """Results and failures whose path, errors, arguments and questions are hostile. Tests leave them as they are."""
    attempts = Attempts(tmp_path_factory.mktemp("mine") / "Jürgën & \"Söhne\" 'x' <b>" / "results")
    more: dict[str, Any] = {"fingerprint": replace(H200, host_name=HOST)}
    statuses = ("error", "unsupported", "lost", "oom", "timeout")
    for precision in ("fp32", "bf16"):
        attempts.step(config(precision=precision), 1, sweep="10.12.13.14/acme-unreleased", **more)
    attempts.failed(config(context_length=512), "error", error=ERROR, **more)
    for number, secret in enumerate(SECRETS.values()):
        (error, *_) = texts_with(secret)
        attempts.failed(config(context_length=number + 1), statuses[number % 5], error=f"{error} {secret}", **more)
    for secret in list(SECRETS.values())[:3]:
        arguments = json.dumps({"key": secret, secret: 1, "tile": 64, "kind": "causal"})
        mine = config(attention="mine.flash:attend", attention_args=arguments)
        attempts.step(mine, 1, question=json.dumps({"ask": f"How fast is {secret}?"}), **more)
    return attempts


@pytest.fixture(scope="module")
def shared(attempts: Attempts) -> Path:
    """What the command writes of them. Tests leave it as it is."""
    folder = Path(attempts.store.location).parent / "shared"
    assert "report.html" in lmsweep_here("report", attempts.store.location, "--share", folder)
    return folder


def test_no_file_of_it_names_a_machine_a_person_or_a_folder(shared: Path) -> None:
    assert {path.name for path in shared.iterdir()} == {
        "README.md", "chart.svg", "environment.json", "files.json", "report.html", "results",
    }  # fmt: skip
    texts = {path: path.read_text("utf-8") for path in shared.iterdir() if path.is_file()}
    for path in (shared / "results").rglob("*.parquet"):
        texts[path] = pd.read_parquet(path).to_csv() + str(path.read_bytes())
    words = """Jürgën J\\u00fc J&uuml; Söhne acme Quux quux hunter22 hf_AbC wJalr 10.12.13.14 dgx-a100 fileserver7
        pod-7f9c sk-ABC QWxh jürgën 9f86d0 192.168 b3Blb Zarath gpu-node-17 /home/ /mnt/nfs"""
    for path, text in texts.items():
        assert not [word for word in (*words.split(), PERSON, str(ROOT)) if word in text], path.name
    assert "lmsweep table results" in texts[shared / "report.html"]


def test_it_has_the_same_results(shared: Path, attempts: Attempts) -> None:
    ours, theirs = lmsweep.load(attempts.store), lmsweep.load(str(shared))
    kept = ["trial_id", "environment_id", "median", "status"]
    assert ours[kept].equals(theirs[kept])
    assert theirs["host_name"].isna().all() and ours["host_name"].notna().all()
    assert "flash.py:12: ValueError" in set(theirs["error"])
    assert theirs["attention_args"].dropna().str.contains('"tile":64,"kind":"causal"', regex=False).all()
    assert theirs["attention_args"].nunique() == 3
    assert json.loads((shared / "environment.json").read_text())[0]["device_name"] == H200.device_name


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--share", "."), "exists already"),
        (("--share", "shared", "--with", "h200-devices"), "take one store as it is; leave out --with"),
        (("--share", "shared", "--to", "zenodo"), "--to zenodo"),
        (("--to", "hf"), "the folder of --share FOLDER"),
        (("--value", "step.time"), "--value and --where choose the number of a badge"),
    ],
)
def test_it_needs_a_new_folder_and_options_that_change_something_there(words: tuple[str, ...], reason: str) -> None:
    done = answer_here("report", STORE, *words)
    assert done.returncode == 2 and reason in done.stderr


def test_its_readme_is_the_card_of_a_data_set_whose_configurations_are_the_tables(tmp_path: Path) -> None:
    card = tmp_path / "shared"
    lmsweep_here("report", TABLES, "--share", card, "--to", "hf")
    nothing, head, text = (card / "README.md").read_text("utf-8").split("---\n", 2)
    about = yaml.safe_load(head)
    assert nothing == "" and text.lstrip().startswith(f"# {about['pretty_name']}")
    assert {one["config_name"] for one in about["configs"]} == {path.name for path in (card / "results").iterdir()}
    assert [one["config_name"] for one in about["configs"] if one.get("default")] == ["measurements"]
    for one in about["configs"]:
        read = pyarrow.dataset.dataset([str(path) for path in card.glob(one["data_files"])])
        stored = open_store(str(TABLES)).read(one["config_name"])[0]
        assert read.count_rows() == len(stored) > 0


def test_results_are_compared_with_those_at_an_address(shared: Path, attempts: Attempts, tmp_path: Path) -> None:
    shutil.copytree(shared, tmp_path / "shared")
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address, mine = f"http://127.0.0.1:{server.server_address[1]}", attempts.store.location
        words = ("compare", mine, "--with", f"{address}/shared/", "--where", "attention=naive")
        assert "Alone: 0 of mine" in lmsweep_here(*words)
        with pytest.raises(RequestError, match=r"none/files.json cannot be read"):
            lmsweep.load(f"{address}/none")
        server.shutdown()


def test_what_is_no_path_stays() -> None:
    for text in ("forward/backward, tokens/s and s3://bucket/key", "./mine/flash.py:Flash", "annotations"):
        assert scrub_text(text, {"ann"}) == text
    assert scrub_text("/home/ann/x.py:3 is ann's", {"ann"}) == "x.py:3 is private's"


def test_what_lmsweep_itself_says_is_shared() -> None:
    for text in ("attention flash needs a GPU", "context_length 512 is above the limit of 256.5 %"):
        assert shared_error(text) == text


@pytest.mark.parametrize("what", SECRETS)
def test_an_error_keeps_its_file_line_type_and_lmsweeps_own_words(what: str) -> None:
    secret = SECRETS[what]
    for text, left in texts_with(secret).items():
        found = shared_error(text)
        assert not {word for word in secret.split(" ") if len(word) > 6} & {*found.split(" ")}, found
        kind = left.partition(": ")[2]  # what a path holds may hide where its file begins
        assert found in (left, kind) or (left.endswith("[...]") and found.startswith(left.removesuffix("[...]")))
        assert secret not in found


def test_its_readme_names_every_version_that_measured_the_newest_last(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "results")
    for place, version in enumerate(("0.10.0", "0.9.1")):
        attempts.step(config(context_length=2**place), 1, fingerprint=replace(H200, lmsweep_version=version))
    lmsweep.share(attempts.store.location, tmp_path / "shared")
    assert "with lmsweep 0.9.1, 0.10.0 on" in (tmp_path / "shared" / "README.md").read_text("utf-8")


def test_texts_of_another_shape_are_numbered_alike_in_every_column() -> None:
    allowed = Allowed(set())
    found = [allowed.text(name, text) for name, text in (("sweep", "a/b"), ("sweep", "ok-1"), ("workload", "a b"))]
    assert found == ["private-1", "ok-1", "private-2"] and allowed.text("phase", "a/b") == "private-1"


def shared_question(ask: str, words: set[str] | None = None) -> str:
    return str(json.loads(Allowed(words or set()).text("question", json.dumps({"ask": ask})))["ask"])


PYTHON = """torch.compile torch.compile() torch.compile(model) torch.nn.Linear torch.cat mine.Model mine.model.MyModel
    mine.Model.forward adamw.step optimizer.step() F.scaled_dot_product_attention flash_attn.flash_attn_func"""
HOSTS = """node7.cluster.example.com node7.cluster gpu01.local anna.lan login.hpc dgx.acme.ai torch.hpc.nyu.edu
    TORCH.COM torch.example.com h100.acme.Corp node7.Rack acme.us jane.quux Jane.Quux annas.macbook.pro
    ssh.jane.quux step.adamw.model jane@torch.nn 10.12.13.14 torch.10.1.1.1 torch.compile@acme.com
    torch.compile(hf_AbCdEfGhIjKlMn) torch.compile(node7.acme.com) torch:hunter22secret model.step=hunter22
    torch.compile/acme"""


@pytest.mark.parametrize("name", PYTHON.split())
def test_a_question_keeps_names_of_python(name: str) -> None:
    for ask in (f"Does {name} make my model faster?", f"How fast is {name}?", f"Is `{name}`'s time shorter?"):
        assert shared_question(ask) == ask


@pytest.mark.parametrize(
    "secret",
    [*HOSTS.split(), *(one for one in SECRETS.values() if " " not in one and not one.isalpha())],  # plain words stay
)
def test_a_question_keeps_no_name_of_a_host_a_user_or_a_folder(secret: str) -> None:
    left = shared_question(f"Is it faster on {secret}?")
    assert left == "Is it faster on [...]"


def test_a_question_keeps_no_name_that_the_store_knows_as_its_hosts_or_users() -> None:
    assert shared_question("Is adamw.step faster for ann.step?", {"ann"}) == "Is adamw.step faster for [...]"


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_folder_that_is_shared_is_whole_or_empty_and_the_next_try_succeeds(how: int, tmp_path: Path) -> None:
    words = ("report", "h200-attention", "--share", tmp_path / "mine")
    process = start(*words)
    while not [*tmp_path.rglob("*.parquet")] and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(how)
    process.communicate()
    left = [path.name for path in (tmp_path / "mine").glob("*")]
    if how == signal.SIGINT:  # a slow machine delivers it when all is written
        assert (process.returncode, bool(left)) in ((130, False), (0, True))
    else:
        assert len(left) == 1
    assert answer_here(*words).returncode == 0
    written = {path.name for path in (tmp_path / "mine").iterdir()}
    assert {"results", "report.html", "README.md"} <= written and not any(name.startswith(".") for name in written)
