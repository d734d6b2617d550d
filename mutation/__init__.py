"""Small faults in our own code, one at a time: do the tests of that part notice them? `make mutation`."""
