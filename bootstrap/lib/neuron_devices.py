"""Prints the indices of the Neuron devices in neuron-ls' JSON output (stdin), separated by spaces.

Up to Neuron 2.33 it is a list of devices; later releases nest the list in an object.
"""

import json
import sys


def devices(node):
    if isinstance(node, dict):
        if "neuron_device" in node:
            return [int(node["neuron_device"])]
        return [index for value in node.values() for index in devices(value)]
    if isinstance(node, list):
        return [index for value in node for index in devices(value)]
    return []


print(*sorted(set(devices(json.load(sys.stdin)))))
