"""The shell scripts that are sent with every job."""

from importlib.resources import files


def read(*names: str) -> bytes:
    """The content of one or more of them, joined."""
    return b"\n".join(files(__name__).joinpath(name).read_bytes() for name in names)


def fetch() -> bytes:
    """fetch.sh, with unpack.py in its variable UNPACK."""
    return b"read -r -d '' UNPACK << 'PYTHON' || true\n" + read("unpack.py") + b"PYTHON\n" + read("fetch.sh")
