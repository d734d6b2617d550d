"""The shell scripts that are sent with every job."""

from pathlib import Path

_HERE = Path(__file__).parent


def read(*names: str) -> bytes:
    """The content of one or more of them, joined."""
    return b"\n".join((_HERE / name).read_bytes() for name in names)


def fetch() -> bytes:
    """fetch.sh and environments.sh, with unpack.py in the variable UNPACK and environment.py in ENVIRONMENT."""
    programs = (b"read -r -d '' %s << 'PYTHON' || true\n%sPYTHON\n" % (name, read(file)) for name, file in _PROGRAMS)
    return b"".join([*programs, read("fetch.sh", "environments.sh")])


_PROGRAMS = ((b"UNPACK", "unpack.py"), (b"ENVIRONMENT", "environment.py"))
