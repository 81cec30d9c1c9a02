"""Where settings come from, and which wins.

Command line > MINAGI_<SECTION>_<KEY> > the file of --config or MINAGI_CONFIG > the profile >
./config.yaml > config.yaml in the user's folder > the defaults. Each of these is a LAYER; they are
laid over each other key by key. A profile asked for by name therefore beats a file that merely
happens to lie in the current folder, and yields to one that was named.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import platformdirs
import yaml

from minagi.config.settings import KEYS, REFUSED, SECTIONS, Settings
from minagi.config.values import convert, shown
from minagi.errors import UsageError

PROFILE_FOLDER = Path(__file__).parent.parent / "configs"
MAX_FILE_BYTES = 256 * 1024  # a settings file is never this large
_PREFIX = "MINAGI_"


@dataclass(frozen=True)
class Layer:
    """Values from one place, as written there. Relative paths are taken from `folder`."""

    origin: str  # the place in words
    rank: int  # the higher wins
    folder: Path
    values: Mapping[str, Any]  # "section.key" -> text or Python value


_USER, _FOUND, _PROFILE, _NAMED, _ENVIRONMENT, _COMMAND = range(6)  # ranks


@dataclass(frozen=True)
class LoadedSettings:
    """The settings in effect and where each came from."""

    settings: Settings
    origin: Mapping[str, str]  # "section.key" -> where its value came from, in words
    profile: str  # name of the profile in effect, or ""
    base: Path | None  # the settings file in effect: the one named, else the one found
    explicit: bool  # --config, --profile or MINAGI_CONFIG was given
    notice: str  # one sentence when something was passed over, else ""
    layers: tuple[Layer, ...] = dataclasses.field(repr=False)
    home: Path = dataclasses.field(repr=False)  # where default paths are taken from


def load_settings(
    overrides: Mapping[str, object] | None = None,
    config_file: Path | None = None,
    profile: str | None = None,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
    user_dir: Path | None = None,
) -> LoadedSettings:
    """Read every layer and lay them over each other. Raises UsageError, one sentence a fault.

    `overrides` are the command line's, "section.key" -> value; None there means not given.
    `user_dir` stands in for the user's config and data folders (platformdirs) both.
    """
    try:
        cwd = cwd or Path.cwd()
    except OSError:
        raise UsageError("The folder this was started in is gone. Change to another one first.") from None
    user_config = user_dir or platformdirs.user_config_path("minagi")
    named = config_file or (Path(environ["MINAGI_CONFIG"]) if environ.get("MINAGI_CONFIG") else None)
    layers, notice, base = [], "", None
    for rank, path in ((_USER, user_config / "config.yaml"), (_FOUND, cwd / "config.yaml")):
        if not path.is_file():
            continue
        mapping = read_mapping(path)
        if rank == _FOUND and not _is_ours(mapping):
            notice = f"{path} holds none of minagi's settings and was passed over."
            continue
        layers.append(_file_layer(path, mapping, str(path), rank))
        base = path
    if named is not None:
        base = cwd / named.expanduser()
        layers.append(_file_layer(base, read_mapping(base), str(named), _NAMED))
    if profile:
        layers.append(_profile_layer(profile))
    layers.append(_environment_layer(environ, cwd))
    layers.append(_command_layer(overrides or {}, cwd))
    return _lay(
        layers, profile or "", base, named is not None or bool(profile), notice,
        user_dir or platformdirs.user_data_path("minagi"),
    )  # fmt: skip


def with_profile(loaded: LoadedSettings, profile: str) -> LoadedSettings:
    """The same settings with `profile` in its place among the layers, instead of the one in effect.

    Files named, variables and flags still win over it. Raises UsageError for an unknown profile.
    """
    layers = [layer for layer in loaded.layers if layer.rank != _PROFILE]
    layers.append(_profile_layer(profile))
    return _lay(layers, profile, loaded.base, loaded.explicit, loaded.notice, loaded.home)


def with_values(loaded: LoadedSettings, values: Mapping[str, object]) -> LoadedSettings:
    """The same settings with `values` ("section.key" -> value) laid over all else. Raises UsageError."""
    layer = replace(_command_layer(values, loaded.home), origin="the program")
    return _lay(
        [*loaded.layers, layer], loaded.profile, loaded.base, loaded.explicit, loaded.notice, loaded.home
    )


def profiles() -> list[str]:
    """Names of the profiles there are, sorted."""
    return sorted(path.stem for path in PROFILE_FOLDER.glob("*.yaml"))


# ---------------------------------------------------------------------------------------------- layers


def _file_layer(path: Path, mapping: Mapping[str, Any], origin: str, rank: int) -> Layer:
    values: dict[str, Any] = {}
    for section, body in mapping.items():
        if section not in SECTIONS:
            _check_key(section, origin)
            raise _unknown(f"section {shown(section)}", section, SECTIONS, origin)
        if body in (None, ""):
            continue
        if not isinstance(body, Mapping):
            raise UsageError(f"{section} is {shown(body)} in {origin}: it must be a mapping of its settings.")
        for name, value in body.items():
            _check_key(name, origin)
            if f"{section}.{name}" not in KEYS:
                raise _unknown(f"setting {shown(f'{section}.{name}')}", f"{section}.{name}", KEYS, origin)
            values[f"{section}.{name}"] = value
    return Layer(origin, rank, path.parent, values)


def _profile_layer(profile: str) -> Layer:
    if profile not in profiles():
        known = ", ".join(profiles()) or "none are installed"
        raise UsageError(f"There is no profile {shown(profile)}. There are: {known}.")
    path = PROFILE_FOLDER / f"{profile}.yaml"
    return _file_layer(path, read_mapping(path), f"the profile {profile}", _PROFILE)


def _environment_layer(environ: Mapping[str, str], cwd: Path) -> Layer:
    """Variables of a known section; others that begin alike (MINAGI_CONFIG) are not settings."""
    by_variable = {key.variable: path for path, key in KEYS.items() if key.kind is not Mapping}
    values = {}
    for variable, text in environ.items():
        if variable in by_variable:
            values[by_variable[variable]] = text
        elif any(variable.startswith(f"{_PREFIX}{section.upper()}_") for section in SECTIONS):
            raise _unknown(f"setting for {variable}", variable, by_variable, "the environment")
    return Layer("the environment", _ENVIRONMENT, cwd, values)


def _command_layer(overrides: Mapping[str, object], cwd: Path) -> Layer:
    for path in overrides:
        _check_key(path.rpartition(".")[2], "the command line")
        if path not in KEYS:
            raise _unknown(f"setting {shown(path)}", path, KEYS, "the command line")
    given = {path: value for path, value in overrides.items() if value is not None}
    return Layer("the command line", _COMMAND, cwd, given)


def _check_key(name: str, origin: str) -> None:
    if name in REFUSED:
        raise UsageError(f"{name} stands in {origin}, but {REFUSED[name]}.")


def _unknown(what: str, name: str, known: Iterable[str], origin: str) -> UsageError:
    last = name.rpartition(".")[2]
    near = [path for path in known if "." in name and path.endswith("." + last)]  # the wrong section
    near += difflib.get_close_matches(name[:200], list(known), n=1, cutoff=0.5)
    hint = f"The nearest there is: {near[0]}." if near else "There are: " + ", ".join(SECTIONS) + "."
    return UsageError(f"There is no {what} (in {origin}). {hint}")


def _is_ours(mapping: Mapping[str, Any]) -> bool:
    """config.yaml is a common name: a file found by chance counts when a section is ours, or nearly."""
    return not mapping or any(
        name in SECTIONS or name in REFUSED or difflib.get_close_matches(name[:200], SECTIONS, 1, 0.75)
        for name in mapping
    )


def _lay(
    layers: list[Layer], profile: str, base: Path | None, explicit: bool, notice: str, home: Path
) -> LoadedSettings:
    values, origin = {}, {}
    ordered = sorted(layers, key=lambda layer: layer.rank)
    for path, key in KEYS.items():
        values[path] = home / key.default if key.kind is Path else key.default
        origin[path] = "the defaults"
        for layer in ordered:  # every layer is converted, so that a wrong value is told even where it loses
            if path in layer.values:
                values[path] = convert(key, layer.values[path], layer.origin, layer.folder)
                origin[path] = layer.origin
    sections = {
        section: cls(**{f.name: values[f"{section}.{f.name}"] for f in dataclasses.fields(cls)})
        for section, cls in SECTIONS.items()
    }
    settings = Settings(**sections)
    _check_shape(settings, origin)
    return LoadedSettings(settings, origin, profile, base, explicit, notice, tuple(ordered), home)


def _check_shape(settings: Settings, origin: Mapping[str, str]) -> None:
    """Refuse shapes that cannot be built, naming the two keys that disagree."""
    model, pool = settings.model, settings.pool
    if model.d_model % model.n_head or model.d_model // model.n_head % 2:
        raise UsageError(
            f"model.n_head is {model.n_head} (from {origin['model.n_head']}) and model.d_model is "
            f"{model.d_model} (from {origin['model.d_model']}): d_model must be an even multiple of n_head."
        )
    if pool.top_k > pool.experts:
        raise UsageError(
            f"pool.top_k is {pool.top_k} (from {origin['pool.top_k']}) but pool.experts is only "
            f"{pool.experts} (from {origin['pool.experts']})."
        )
    if model.min_steps > model.max_steps:
        raise UsageError(
            f"model.min_steps is {model.min_steps} (from {origin['model.min_steps']}) but model.max_steps is "
            f"only {model.max_steps} (from {origin['model.max_steps']})."
        )
    if model.halt_freeze and (model.n_recur, model.n_coda) != (1, 0):
        raise UsageError(
            f"model.halt_freeze needs n_recur 1 and n_coda 0, but they are {model.n_recur} and "
            f"{model.n_coda}. Set halt_freeze to false for this shape."
        )


# ---------------------------------------------------------------------------------------------- files


class _Loader(yaml.BaseLoader):
    """Plain YAML in which every scalar stays a text (its key knows the kind) and no key comes twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be a plain name", key_node.start_mark
                )
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{shown(key_node.value)} is there twice", key_node.start_mark
                )
            seen[key_node.value] = self.construct_object(value_node, deep=True)
        return seen


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping of a YAML file, every scalar a text; empty for an empty file. Raises UsageError."""
    try:
        if path.is_dir():
            raise UsageError(f"The settings file {path} is a folder. Name a file in it.")
        if not path.is_file() and path.exists():
            raise UsageError(f"The settings file {path} is not a plain file.")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"The settings file {path} does not exist.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"The settings file {path} cannot be read: {reason}.") from None
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(
            f"The settings file {path} is larger than {MAX_FILE_BYTES // 1024} kB: it is not minagi's."
        )
    try:
        body = yaml.load(data, _Loader)  # a BaseLoader makes texts, lists and mappings, nothing else
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" in line {mark.line + 1}" if mark else ""
        raise UsageError(f"The settings file {path} is not valid YAML{where}: {error.problem}.") from None
    except (yaml.YAMLError, RecursionError, UnicodeError):
        raise UsageError(
            f"The settings file {path} is not valid YAML: it is nested too deeply or not text."
        ) from None
    if body in (None, ""):
        return {}
    if not isinstance(body, dict):
        raise UsageError(
            f"The settings file {path} must be a mapping of sections, as in 'training: {{lr: 1e-3}}'."
        )
    return body
