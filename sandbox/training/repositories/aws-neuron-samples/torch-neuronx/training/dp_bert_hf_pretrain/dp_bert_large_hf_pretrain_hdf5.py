"""A fake at the vendor's path; the implementation is the sandbox's `fakes` package, which torchrun adds to the path."""

from fakes.bert import main

raise SystemExit(main())
