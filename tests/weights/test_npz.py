from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from minagi.weights import npz
from minagi.weights.faults import FileFault
from minagi.weights.npz import Npz, check_npz, write_npz

ARRAYS = {
    "w1": np.arange(12, dtype=np.float32).reshape(3, 4),
    "w1_m": np.arange(12, dtype=np.int16).reshape(3, 4),
    "pool.w1|t": np.array(7.0),
    "empty": np.zeros((0, 5), np.float32),
    "tok_emb.weight": np.linspace(0, 1, 265 * 4, dtype=np.float32).reshape(265, 4),
}
any_arrays = st.dictionaries(
    st.text(
        st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_characters="/\\"),
        min_size=1,
        max_size=12,
    ),
    arrays(st.sampled_from([np.float32, np.float64, np.int16]), array_shapes(min_dims=0, max_side=4)),
    max_size=6,
)


def read_all(path: Path) -> dict[str, np.ndarray]:
    with Npz(path) as archive:
        found = {}
        for name in archive.names:
            member = archive.member(name)
            assert member is not None
            found[name] = archive.read(member, check=True)
        return found


def equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    return found.keys() == expected.keys() and all(
        found[n].dtype == a.dtype and found[n].shape == a.shape and found[n].tobytes() == a.tobytes()
        for n, a in expected.items()
    )


@given(any_arrays)
@settings(deadline=None, max_examples=50)
def test_numpy_reads_what_is_written_and_the_other_way_round(tensors: dict[str, np.ndarray]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder, "ours.npz"), Path(folder, "theirs.npz")
        assert write_npz(ours, tensors) == ours.stat().st_size
        with np.load(ours, allow_pickle=False) as archive:
            assert equal({name: archive[name] for name in archive.files}, tensors)
        with theirs.open("wb") as file:
            np.savez(file, **{name: array for name, array in tensors.items() if name != "file"})
        tensors.pop("file", None)
        assert equal(read_all(theirs), tensors)


def test_equal_arrays_make_equal_bytes_and_arrays_begin_aligned(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz", ARRAYS)
    write_npz(tmp_path / "b.npz", {name: array.copy() for name, array in ARRAYS.items()})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with Npz(tmp_path / "a.npz") as archive:
        assert all(archive.member(name).offset % 64 == 0 for name in archive.names)
    assert zipfile.ZipFile(tmp_path / "a.npz").testzip() is None


@pytest.mark.parametrize("limit", [100, 600, 5000])
def test_archives_beyond_four_gigabytes(limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "ZIP64_FROM", limit)  # the limit comes down, the archive stays small
    path = tmp_path / "large.npz"
    write_npz(path, ARRAYS)
    assert zipfile.ZipFile(path).testzip() is None
    with np.load(path, allow_pickle=False) as archive:
        assert equal({name: archive[name] for name in archive.files}, ARRAYS)
    assert equal(read_all(path), ARRAYS)


def test_arrays_are_the_callers_own(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz", ARRAYS)
    first, second = read_all(tmp_path / "a.npz"), read_all(tmp_path / "a.npz")
    first["w1"][:] = 5
    assert equal(second, ARRAYS)


def test_writing_never_replaces_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        write_npz(tmp_path / "a.npz", ARRAYS)


# ------------------------------------------------------------------------------------------ broken


def archive_bytes(tmp_path: Path) -> bytes:
    path = tmp_path / "whole.npz"
    path.unlink(missing_ok=True)
    write_npz(path, ARRAYS)
    return path.read_bytes()


def faulty(tmp_path: Path, data: bytes) -> str | None:
    """The sentence about an archive of these bytes; None when it reads as if nothing had happened."""
    path = tmp_path / "faulty.npz"
    path.write_bytes(data)
    try:
        assert equal(read_all(path), ARRAYS)
    except FileFault as fault:
        assert str(path) in str(fault)
        return str(fault)
    return None


def test_cut_short_anywhere(tmp_path: Path) -> None:
    whole = archive_bytes(tmp_path)
    for length in [*range(200), *range(200, len(whole), 97), *range(len(whole) - 200, len(whole))]:
        assert faulty(tmp_path, whole[:length]) is not None, length


@given(st.data())
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_flipped_bit_is_found_or_harmless(tmp_path: Path, data: st.DataObject) -> None:
    whole = bytearray(archive_bytes(tmp_path))
    place = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[place // 8] ^= 1 << place % 8
    try:
        faulty(tmp_path, bytes(whole))
    except AssertionError as error:  # a flipped bit may rename an array: then it is missing, not wrong
        with Npz(tmp_path / "faulty.npz") as archive:
            assert set(archive.names) != set(ARRAYS), error


def test_every_flipped_bit_of_an_array_is_found(tmp_path: Path) -> None:
    whole = bytearray(archive_bytes(tmp_path))
    with Npz(tmp_path / "whole.npz") as archive:
        start = archive.member("w1").offset
    for place in range(start, start + 48):
        whole[place] ^= 0x10
        assert "checksum of 'w1'" in (faulty(tmp_path, bytes(whole)) or "")
        whole[place] ^= 0x10


@given(st.binary(max_size=300))
@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rubbish_is_a_fault_and_nothing_else(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "rubbish.npz"
    for content in (data, data + archive_bytes(tmp_path)[-80:], b"PK\x05\x06" + data):
        path.write_bytes(content)
        with pytest.raises(FileFault):
            check_npz(path)
            raise FileFault(path, "was empty but well-formed")


def with_member(tmp_path: Path, data: bytes, compression: int = zipfile.ZIP_STORED) -> Path:
    path = tmp_path / "made.npz"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("w1.npy", data)
    return path


def npy(array: np.ndarray, pickled: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=pickled)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (npy(np.array([{"a": 1}], dtype=object), pickled=True), "not as plain numbers"),
        (npy(np.asfortranarray(np.ones((3, 4)))), "Fortran order"),
        (npy(np.zeros(3, dtype=[("a", "f4")])), "no array of plain numbers"),
        (npy(np.array(["text"])), "not as plain numbers"),
        (npy(np.ones(3) * 1j), "not as plain numbers"),
        (b"not an array", "not a numpy array"),
        (b"\x93NUMPY\x01\x00\xff\xff{'descr'", "no array of plain numbers"),
        (npy(np.ones(8)).replace(b"(8,)", b"(9,)"), "not the bytes its shape needs"),
    ],
    ids=["pickle", "fortran", "records", "text", "complex", "rubbish", "header cut", "wrong size"],
)
def test_members_that_are_no_plain_arrays(data: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(FileFault, match=words):
        check_npz(with_member(tmp_path, data))


def test_an_absurd_shape_takes_no_memory(tmp_path: Path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 1000000000), }"
    header += b" " * (64 - (10 + len(header) + 1) % 64) + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with pytest.raises(FileFault, match="not the bytes"):
        check_npz(with_member(tmp_path, data))


def test_compressed_members_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FileFault, match="'w1' compressed"):
        check_npz(with_member(tmp_path, npy(np.ones(100)), zipfile.ZIP_DEFLATED))


def test_an_array_that_is_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "twice.npz"
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning):
        archive.writestr("w1.npy", npy(np.ones(3)))
        archive.writestr("w1.npy", npy(np.zeros(3)))
    with pytest.raises(FileFault, match="'w1' twice"):
        check_npz(path)


def test_what_is_not_a_file(tmp_path: Path) -> None:
    import os

    (tmp_path / "folder.npz").mkdir()
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "link.npz").symlink_to(tmp_path / "whole.npz")
    archive_bytes(tmp_path)
    for name, words in (
        ("folder", "not an ordinary"),
        ("pipe", "not an ordinary"),
        ("link", "symbolic link"),
    ):
        with pytest.raises(FileFault, match=words):
            Npz(tmp_path / f"{name}.npz")
    with pytest.raises(FileFault, match="is missing"):
        Npz(tmp_path / "nothing.npz")
