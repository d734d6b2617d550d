// Stand-in at the vendor's path: nothing to compile for the sandbox's small model.
