"""Stand-in at the vendor's path; what it does is in the sandbox's `standin` package, which torchrun puts on the path."""

from standin.nxdt import main

raise SystemExit(main())
