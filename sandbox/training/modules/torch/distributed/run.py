"""In place of torchrun's module: the sandbox's `standin.torchrun`."""

from standin.node import in_a_pod
from standin.torchrun import main

if __name__ == "__main__":
    in_a_pod()
    main()
