"""Its state of random numbers is read when a checkpoint is saved, which the sandbox's training does itself."""
