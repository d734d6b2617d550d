"""Reading files: any content gives an environment, or an error with a fix."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.support import many
from trainium_cdk import settings

ENVIRONMENTS = sorted((Path(__file__).parent.parent / "environments").glob("*.yaml"))
LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)

BAD_TEXTS = [
    ("a: 1\na: 2\n", 'line 2: not YAML: found duplicate key "a" with value "2"'),
    ("name: [\n", "line 2: not YAML: expected the node content"),
    ("name: trn\n\tregion: x\n", "line 2: not YAML: found character"),
    ("- name: trn\n", "its top level is not a mapping. Begin with a key"),
    ("trn", "its top level is not a mapping"),
    ("42", "its top level is not a mapping"),
    ("!!set {a}", "the tag tag:yaml.org,2002:set (tags are not supported)"),
    ("name: trn\nregion: !!python/object/apply:os.system [id]\n", "line 2: not YAML: the tag tag:yaml.org,2002:python"),
    ("name: !Sub ${x}\n", "line 1: not YAML: the tag !Sub (tags are not supported)"),
    ("name: trn\n---\nname: two\n", "not YAML: but found another document"),
    ("name: \x00", "not YAML: unacceptable character #x0000"),
    ("name: *missing\n", "line 1: not YAML: found undefined alias 'missing'"),
    (LAUGHS, "more than 50,000 values. Remove the anchors (&) and aliases (*)"),
    ("tags: &t {a: *t}\n", "line 1: not YAML: an alias (*) refers to the value that contains it"),
    ("pcluster: &p\n  queues: *p\n", "line 1: not YAML: an alias (*) refers to the value that contains it"),
    ("[" * 5000, "nested too deeply"),
    (
        "name: trn\naccount: 0x" + "f" * 100_000,
        "line 2: the number is too large (400,000 bits). Write a smaller number, or put it in quotes",
    ),
    ("tags: {a: [0o" + "7" * 2000 + "]}", "line 1: the number is too large (6,000 bits)"),
    ("? 0x" + "f" * 5000 + "\n: 1\n", "the number is too large (20,000 bits)"),
    ("account: " + "9" * 100_000, "not YAML: Exceeds the limit (4300 digits)"),
    ("account: '${Token[AWS.AccountId.4]}'", "it contains a CDK token (${Token[...). Write the value itself"),
    ("name: dummy-value-for-/trn/name", "it contains a CDK token (dummy-value-for-...). Write the value itself"),
    ("tags: {'${Token[Key.1]}': x}", "it contains a CDK token (${Token[...). Write the value itself"),
    ("pcluster: {queues: [{name: a}, {name: 'dummy-value-for-x'}]}", "it contains a CDK token (dummy-value-for-...)"),
    ("a: " + "{a: " * 100 + "1" + "}" * 100, "more than 40 levels deep"),
]


@pytest.mark.parametrize(("text", "message"), BAD_TEXTS, ids=[m[:50] for _, m in BAD_TEXTS])
def test_invalid_environment_files(text: str, message: str) -> None:
    with pytest.raises((settings.SettingsFileError, settings.SettingsError)) as caught:
        settings.parse(text, "e.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mark", ["dummy-value-for-/trn/name", "${Token[AWS.AccountId.4]}"])
def test_a_comment_may_contain_what_looks_like_a_token(mark: str) -> None:
    assert settings.parse(f"# was {mark}\nname: trn  # not {mark}\n").name == "trn"


def test_anchors_and_merge_keys_work_and_keep_their_lines() -> None:
    text = """
pcluster:
  queues:
    - &first
      name: one
      capacity_type: spot
    - <<: *first
      name: two
    - <<: *first
      name: three
      capacity_type: gift
"""
    with pytest.raises(settings.SettingsError, match=r"e\.yaml:11: error: pcluster\.queues\[2\]\.capacity_type = gift"):
        settings.parse(text, "e.yaml")
    env = settings.parse(text.replace("gift", "on-demand"))
    assert [(q.name, q.capacity_type) for q in env.pcluster.queues] == [
        ("one", "spot"),
        ("two", "spot"),
        ("three", "on-demand"),
    ]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    latin, huge = tmp_path / "latin.yaml", tmp_path / "huge.yaml"
    latin.write_bytes("name: Müller".encode("latin-1"))
    huge.write_bytes(b"#" * 250_001)
    for file, message in [
        (tmp_path / "absent.yaml", "the file does not exist. Check the path"),
        (tmp_path / "hueg.yaml", f"the file does not exist. Did you mean {huge}?"),
        (tmp_path, "cannot be read: Is a directory. Give a readable file"),
        (latin, "not UTF-8 text (byte 7). Save it as UTF-8"),
        (huge, "larger than 250,000 bytes"),
        (Path("/dev/zero"), "larger than 250,000 bytes"),
        (tmp_path / "a\0b", "cannot be read"),
        (latin / "below", "cannot be read: Not a directory"),
    ]:
        with pytest.raises(settings.SettingsFileError) as caught:
            settings.load(file)
        assert message in str(caught.value)
        assert str(caught.value).startswith(str(file).replace("\0", "\ufffd"))


def test_a_pipe_is_read(tmp_path: Path) -> None:
    """The shell creates one for `-c env=<(...)`."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("name: piped",), daemon=True)
    writer.start()
    assert settings.load(pipe).name == "piped"
    writer.join(10)


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "bom.yaml"
    file.write_bytes(b"\xef\xbb\xbfname: trn\r\nregion: us-west-2\r\n")
    assert settings.load(file).region == "us-west-2"


@pytest.mark.parametrize("file", ENVIRONMENTS, ids=lambda f: f.stem)
def test_round_trip(file: Path) -> None:
    env = settings.load(file)
    assert env.source.file == str(file)
    for options in ({}, {"exclude_unset": True}, {"exclude_defaults": True}):
        data = env.model_dump(mode="json", by_alias=True, **options)
        assert settings.validate(data) == env


_SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates() | st.binary(max_size=5)
)


def _known(model: Any) -> st.SearchStrategy[str]:
    return st.sampled_from(sorted({f.alias or n for n, f in model.model_fields.items()}))


_NAMES = st.one_of(
    *map(
        _known,
        (settings.Environment, settings.Network, settings.Pcluster, settings.Queue, settings.Storage, settings.Fsx),
    ),
    st.sampled_from(["instances", "releases", "prices", "trn1.32xlarge", "compute_resources", "existing", "<<"]),
    st.text(max_size=5),
)
_DATA = st.recursive(
    _SCALARS, lambda d: st.lists(d, max_size=3) | st.dictionaries(_NAMES | _SCALARS, d, max_size=4), max_leaves=20
)


def _outcome(read: Callable[[], settings.Environment]) -> settings.Environment | list[str]:
    """The environment, or the lines of the error: one for each problem."""
    try:
        return read()
    except settings.SettingsError as e:
        return str(e).splitlines() if len(str(e).splitlines()) == len(e.problems) else []
    except settings.SettingsFileError as e:
        return str(e).splitlines()[:1] if len(str(e).splitlines()) == 1 else []


@given(data=st.dictionaries(_NAMES, _DATA, max_size=5))
@hypothesis_settings(max_examples=many(200))
def test_any_data_is_an_environment_or_an_error(data: dict[str, Any]) -> None:
    outcome = _outcome(lambda: settings.validate(data))
    assert outcome
    if isinstance(outcome, settings.Environment):
        assert settings.validate(outcome.model_dump(mode="json", by_alias=True)) == outcome


_YAML_LIKE = st.text(alphabet="ab:-[]{}&*!<>|?%#\"'\n\t 0.,~", max_size=60).map(str.encode)


@given(data=st.binary(max_size=200) | _YAML_LIKE)
@example(data=b"\x80")
@example(data=b"? [a]\n: b")
@example(data=b"storage: &s\n  <<: *s\n")
@example(data=b"%YAML 9.9\n---\na: b")
@example(data=b"<<: [1]")
@hypothesis_settings(max_examples=many(200))
def test_any_bytes_are_an_environment_or_an_error(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(data)
        file.flush()
        assert _outcome(lambda: settings.load(file.name))
