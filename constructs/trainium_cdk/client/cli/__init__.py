"""The command `trn`. This module is empty, so that `trn` can set up signal handlers before slow imports."""
