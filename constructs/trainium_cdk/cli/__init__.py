"""The command `trn`. This package is empty, so that `trn` can set up its signals before it loads what takes time."""
