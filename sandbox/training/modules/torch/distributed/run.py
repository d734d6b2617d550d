"""Replaces torchrun's module with the sandbox's `fakes.torchrun`."""

from fakes.node import in_a_pod
from fakes.torchrun import main

if __name__ == "__main__":
    in_a_pod()
    main()
