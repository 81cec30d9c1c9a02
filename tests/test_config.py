from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minagi.config import KEYS, Settings, load_settings, profiles, with_profile
from minagi.errors import UsageError

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture
def load(tmp_path):
    """load_settings in an empty folder, with an empty user's folder and no variables."""
    (tmp_path / "cwd").mkdir()
    (tmp_path / "user").mkdir()

    def load(overrides=None, *, found=None, user=None, named=None, profile=None, environ=None):
        texts = {"cwd/config.yaml": found, "user/config.yaml": user, "named.yaml": named}
        for name, text in texts.items():
            if text is not None:
                (tmp_path / name).write_text(text)
        return load_settings(
            overrides,
            tmp_path / "named.yaml" if named is not None else None,
            profile,
            environ or {},
            tmp_path / "cwd",
            tmp_path / "user",
        )

    return load


def refused(load, *args, **kwargs) -> str:
    with pytest.raises(UsageError) as caught:
        load(*args, **kwargs)
    text = str(caught.value)
    assert text.endswith(".") and "\n" not in text and len(text) < 700, text
    return text


def test_the_defaults_are_those_of_the_dataclasses(load, tmp_path):
    loaded = load()
    home = tmp_path / "user"
    paths = {f.name: getattr(Settings().data, f.name) for f in dataclasses.fields(Settings().data)}
    moved = {name: home / path for name, path in paths.items() if isinstance(path, Path)}
    assert loaded.settings == dataclasses.replace(
        Settings(), data=dataclasses.replace(Settings().data, **moved)
    )
    assert set(loaded.origin) == set(KEYS) and set(loaded.origin.values()) == {"the defaults"}
    assert not loaded.explicit and loaded.base is None and loaded.profile == ""


def test_config_yaml_of_the_repository_states_every_key_at_its_default():
    loaded = load_settings(cwd=REPOSITORY, user_dir=Path("/nonexistent"), environ={})
    for path, key in KEYS.items():
        value = getattr(getattr(loaded.settings, key.section), key.name)
        assert value == (REPOSITORY / key.default if key.kind is Path else key.default), path
        assert loaded.origin[path] == str(REPOSITORY / "config.yaml"), path


def test_settings_are_plain_enough_to_pickle_and_to_turn_into_json(load):
    settings = load({"ui.keys": {"pause": "space"}}).settings
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert dataclasses.asdict(settings)["ui"]["keys"] == {"pause": "space"}


def test_flags_are_unique_and_every_key_says_what_it_does():
    assert len({key.flag for key in KEYS.values()}) == len(KEYS)
    assert len({key.variable for key in KEYS.values()}) == len(KEYS)
    assert KEYS["model.context_end"].flag == "context-end"
    assert all(key.doc and key.rule.holds(key.default) for key in KEYS.values())


def test_precedence_key_by_key(load):
    def lr(value: float) -> str:
        return f"training: {{lr: {value}, clip: {value}}}"

    layers = {"user": lr(0.1), "found": lr(0.2), "profile": "cpu", "named": "training: {lr: 0.4}"}
    assert load(user=lr(0.1)).settings.training.lr == 0.1
    assert load(user=lr(0.1), found=lr(0.2)).settings.training.lr == 0.2
    above_found = load(user=lr(0.1), found=lr(0.2), profile="cpu")
    assert above_found.settings.training.lr not in (0.1, 0.2)
    assert above_found.settings.training.clip == 0.2  # the profile does not speak of it
    assert above_found.origin["training.lr"] == "the profile cpu"
    assert load(**layers).settings.training.lr == 0.4
    environ = {"MINAGI_TRAINING_LR": "0.5"}
    assert load(**layers, environ=environ).settings.training.lr == 0.5
    everything = load({"training.lr": 0.6}, **layers, environ=environ)
    assert everything.settings.training.lr == 0.6
    assert everything.origin["training.lr"] == "the command line"
    assert everything.origin["training.clip"].endswith("config.yaml")


def test_none_on_the_command_line_means_not_given(load):
    assert load({"training.lr": None}, found="training: {lr: 0.25}").settings.training.lr == 0.25


def test_a_profile_applied_later_takes_its_place_among_the_layers(load):
    loaded = load({"model.d_model": 96}, found="model: {d_model: 256}\npool: {experts: 99}")
    assert not loaded.explicit
    later = with_profile(loaded, "cpu")
    assert later.profile == "cpu" and not later.explicit
    assert later.settings.model.d_model == 96
    assert later.settings.pool.experts == load(profile="cpu").settings.pool.experts
    assert with_profile(later, "cpu").settings == later.settings
    with pytest.raises(UsageError, match="no profile 'gpu'"):
        with_profile(loaded, "gpu")


def test_what_counts_as_chosen_by_the_user(load):
    assert load(profile="cpu").explicit
    assert load(named="").explicit
    assert not load(found="training: {lr: 0.1}").explicit


def test_minagi_config_names_a_file(load, tmp_path):
    (tmp_path / "cwd" / "mine.yaml").write_text("training: {lr: 0.125}")
    loaded = load(environ={"MINAGI_CONFIG": "mine.yaml"})
    assert loaded.settings.training.lr == 0.125 and loaded.explicit
    assert loaded.base == tmp_path / "cwd" / "mine.yaml"
    assert load(environ={"MINAGI_CONFIG": ""}).base is None


@pytest.mark.parametrize("name", profiles())
def test_every_profile_loads(load, name):
    loaded = load(profile=name)
    assert loaded.profile == name
    assert "the profile " + name in loaded.origin.values()


def test_profiles_are_found_from_any_folder_in_a_fresh_process(tmp_path):
    code = (
        "from minagi.config import load_settings; print(load_settings(profile='cpu').settings.model.d_model)"
    )
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 0
    assert (REPOSITORY / "configs" / "cpu.yaml").is_file()


def test_relative_paths_belong_to_where_they_were_written(load, tmp_path):
    named = "data: {weights: w, history: ~/h.jsonl}"
    loaded = load({"data.held_out": "val"}, named=named, found="data: {train: books}")
    data = loaded.settings.data
    assert data.weights == tmp_path / "w"
    assert data.train == tmp_path / "cwd" / "books"
    assert data.held_out == tmp_path / "cwd" / "val"
    assert data.history == Path.home() / "h.jsonl"
    assert load({"data.weights": "/abs/w"}).settings.data.weights == Path("/abs/w")


@pytest.mark.parametrize(
    ("text", "value"),
    [("100_000", 100_000), ("2e6", 2_000_000), ('"4096"', 4096), ("+7", 7), ("010", 10), ("1_0.0", 10)],
)
def test_whole_numbers(load, text, value):
    assert load(found=f"growth: {{every_chars: {text}}}").settings.growth.every_chars == value


@pytest.mark.parametrize("text", ["3e-4", "3.0E-4", ".0003", "0.000_3"])
def test_numbers_the_way_people_write_them(load, text):
    assert load(found=f"training:\n  lr: {text}").settings.training.lr == pytest.approx(3e-4)
    assert load(environ={"MINAGI_TRAINING_LR": text}).settings.training.lr == pytest.approx(3e-4)


@pytest.mark.parametrize(("text", "value"), [("yes", True), ("off", False), ("False", False), ("1", True)])
def test_truth(load, text, value):
    assert load(found=f"model: {{halt_freeze: {text}}}").settings.model.halt_freeze is value


def test_optional_values_may_be_null(load):
    found = "hardware: {gpu_mem_gb: null, unified: ~}"
    assert load(found=found).settings.hardware.gpu_mem_gb is None
    assert load(environ={"MINAGI_HARDWARE_GPU_MEM_GB": "7.5"}).settings.hardware.gpu_mem_gb == 7.5
    assert "or null" in refused(load, found="hardware: {unified: maybe}")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("training.lr", "fast"), ("training.lr", "0"), ("training.lr", "-1e-3"), ("training.lr", ".nan"),
        ("training.lr", "nan"), ("training.lr", ".inf"), ("training.lr", "1e999"), ("training.lr", "[1]"),
        ("training.lr", "{a: 1}"), ("training.lr", ""), ("training.lr", "1:30"), ("training.lr", "٣"),
        ("training.clip", "null"), ("training.precision", "bf32"), ("training.precision", "null"),
        ("model.d_model", "1.5"), ("model.d_model", "true"),
        ("model.halt_freeze", "2"), ("data.weights", '""'), ("data.weights", r'"a\0b"'),
        ("data.weights", r'"a\nb"'), ("ui.keys", "space"), ("ui.keys", "{pause: [a]}"),
        ("growth.mem_frac", "1.5"), ("model.context_start", "-5"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_what_is_allowed_and_where_it_stands(load, key, text):
    section, name = key.split(".")
    said = refused(load, found=f"{section}:\n  {name}: {text}\n")
    assert key in said and "must be" in said and "config.yaml" in said


def test_a_number_of_ten_thousand_digits(load):
    assert "model.d_model" in refused(load, found="model: {d_model: " + "9" * 10_000 + "}")


def test_a_wrong_value_is_told_even_where_another_layer_wins(load):
    said = refused(load, {"training.lr": 0.1}, found="training: {lr: quick}")
    assert "'quick'" in said and "config.yaml" in said


def test_wrong_values_from_variables_and_flags_name_their_place(load):
    assert "the environment" in refused(load, environ={"MINAGI_POOL_TOP_K": "many"})
    said = refused(load, {"model.max_steps": 0})
    assert "the command line" in said and "from 1 to 1_024" in said


@pytest.mark.parametrize(
    ("found", "near"),
    [
        ("training: {lrr: 1}", "training.lr"),
        ("trainig: {lr: 1}", "training"),
        ("model: {dmodel: 8}", "model.d_model"),
        ("pool: {lr: 1}", "training.lr"),
        ("model: {top_k: 8}", "pool.top_k"),
    ],
)
def test_an_unknown_key_suggests_the_nearest(load, found, near):
    said = refused(load, found=found)
    assert "There is no" in said and near in said.partition("nearest there is")[2]


def test_an_unknown_variable_or_flag_suggests_the_nearest(load):
    assert "nearest there is: MINAGI_TRAINING_LR." in refused(load, environ={"MINAGI_TRAINING_LRR": "1"})
    assert "nearest there is: training.clip." in refused(load, {"training.clap": 1})
    assert load(environ={"MINAGI_FIXTURES": "/x", "MINAGINATION": "1"}).settings


@pytest.mark.parametrize("name", ["lr_horizon", "lr_warmup", "lr_floor"])
def test_schedules_are_refused_with_the_reason(load, name):
    for said in (
        refused(load, found=f"training: {{{name}: 5}}"),
        refused(load, found=f"{name}: 5"),
        refused(load, {f"training.{name}": 5}),
    ):
        assert name in said and "held-out" in said


def test_a_file_found_by_chance_that_is_not_ours_is_passed_over(load):
    loaded = load(found="database: {url: x}\nlogging: {level: info}")
    assert "passed over" in loaded.notice and loaded.base is None
    assert "no section" in refused(load, named="database: {url: x}")


@pytest.mark.parametrize(
    "text",
    [
        "training: {lr: 1", "training:\n\tlr: 1", "- a\n- b", "just words", "a: b: c", "--- 1\n--- 2",
        "training: {lr: 0.1, lr: 0.2}", "training: {lr: 0.1}\ntraining: {clip: 1}", "? [a]\n: 1", "&a [*a]",
        "training: 5", "training: [lr]", "training: {lr: !!python/object:os.system x}", "%YAML 9.9\n---\n",
        "\x00",
        pytest.param("[" * 20_000, id="deep list"), pytest.param("{a: " * 20_000, id="deep mapping"),
        "*nobody", "training: &t {lr: 0.1}\n<<: *t",
    ],
)  # fmt: skip
def test_broken_files_get_one_sentence(load, tmp_path, text):
    said = refused(load, named=text)
    assert "named.yaml" in said


def test_billion_laughs_are_harmless(load):
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [" + f"*a{i - 1}, " * 9 + "]" for i in range(1, 30)]
    assert "section" in refused(load, named="\n".join(lines))
    lines.append("training: {lr: *a29}")
    assert "section" in refused(load, named="\n".join(lines))


def test_an_alias_is_fine(load):
    named = "training: &t {lr: 0.1}\nmodel: {}\npool:\n"
    assert load(named=named).settings.training.lr == 0.1


@pytest.mark.parametrize("text", [b"\xff\xfe\xff", b"\x80abc", b"training: {lr: \xe9}"])
def test_files_that_are_not_text(tmp_path, text):
    path = tmp_path / "bad.yaml"
    path.write_bytes(text)
    with pytest.raises(UsageError, match=r"bad\.yaml is not valid YAML"):
        load_settings(config_file=path, environ={}, cwd=tmp_path, user_dir=tmp_path)


def test_files_that_cannot_be_read(load, tmp_path):
    def said(path: Path) -> str:
        with pytest.raises(UsageError) as caught:
            load_settings(config_file=path, environ={}, cwd=tmp_path / "cwd", user_dir=tmp_path / "user")
        return str(caught.value)

    assert "does not exist" in said(tmp_path / "absent.yaml")
    assert "is a folder" in said(tmp_path)
    assert "cannot be read" in said(tmp_path / "user" / ("x" * 300))
    os.mkfifo(tmp_path / "pipe")
    assert "not a plain file" in said(tmp_path / "pipe")
    (tmp_path / "huge.yaml").write_text("#" * 300_000)
    assert "larger than" in said(tmp_path / "huge.yaml")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "loop" in said(tmp_path / "loop")
    secret = tmp_path / "secret.yaml"
    secret.write_text("")
    secret.chmod(0)
    if not os.access(secret, os.R_OK):
        assert "cannot be read" in said(secret)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"model.n_head": 7}, "even multiple"),
        ({"model.d_model": 24, "model.n_head": 8}, "even multiple"),
        ({"pool.top_k": 65}, "pool.experts is only 64"),
        ({"model.min_steps": 25}, "model.max_steps is only 24"),
        ({"model.n_recur": 2}, "halt_freeze"),
    ],
)
def test_shapes_that_cannot_be_built(load, overrides, words):
    assert words in refused(load, overrides)
    assert load({"model.n_recur": 2, "model.halt_freeze": False}).settings.model.n_recur == 2


@given(st.sampled_from(sorted(KEYS)), st.text(max_size=40))
def test_any_text_for_any_key_is_a_value_in_range_or_a_sentence(path, text):
    nowhere = Path("/nonexistent")
    try:
        loaded = load_settings({path: text}, environ={}, cwd=nowhere, user_dir=nowhere)
    except UsageError as error:
        assert "\n" not in str(error)
    else:
        key = KEYS[path]
        assert key.rule.holds(getattr(getattr(loaded.settings, key.section), key.name))


@given(st.binary(max_size=200))
def test_any_bytes_as_a_file_are_settings_or_a_sentence(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "fuzz.yaml"
    path.write_bytes(data)
    try:
        load_settings(config_file=path, environ={}, cwd=path.parent, user_dir=path.parent)
    except UsageError as error:
        assert "fuzz.yaml" in str(error) and "\n" not in str(error)
